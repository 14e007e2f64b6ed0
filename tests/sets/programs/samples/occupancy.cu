// Chooses a launch configuration by the occupancy interface.
#include <iostream>
#include <helper_cuda.h>
const int manualBlockSize = 32;

__global__ void square(int *array, int arrayCount) {
  extern __shared__ int dynamicSmem[];
  int idx = threadIdx.x + blockIdx.x * blockDim.x;
  if (idx < arrayCount) array[idx] *= array[idx];
}

static double reportPotentialOccupancy(void *kernel, int blockSize, size_t dynamicSMem) {
  int device;
  cudaDeviceProp prop;
  int numBlocks, activeWarps, maxWarps;
  checkCudaErrors(cudaGetDevice(&device));
  checkCudaErrors(cudaGetDeviceProperties(&prop, device));
  checkCudaErrors(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&numBlocks, kernel, blockSize, dynamicSMem));
  activeWarps = numBlocks * blockSize / prop.warpSize;
  maxWarps = prop.maxThreadsPerMultiProcessor / prop.warpSize;
  return (double)activeWarps / maxWarps;
}

static int launchConfig(int *array, int arrayCount, bool automatic) {
  int blockSize, minGridSize, gridSize;
  size_t dynamicSMemUsage = 0;
  if (automatic) {
    checkCudaErrors(cudaOccupancyMaxPotentialBlockSize(&minGridSize, &blockSize, (void *)square, dynamicSMemUsage, arrayCount));
    std::cout << "Suggested block size: " << blockSize << std::endl << "Minimum grid size: " << minGridSize << std::endl;
  } else {
    blockSize = manualBlockSize;
  }
  gridSize = (arrayCount + blockSize - 1) / blockSize;
  square<<<gridSize, blockSize, dynamicSMemUsage>>>(array, arrayCount);
  checkCudaErrors(cudaDeviceSynchronize());
  double potentialOccupancy = reportPotentialOccupancy((void *)square, blockSize, dynamicSMemUsage);
  std::cout << "Potential occupancy: " << potentialOccupancy * 100 << "%" << std::endl;
  return potentialOccupancy <= 0 || potentialOccupancy > 1;
}

static int test(bool automaticLaunchConfig, const int count = 10000) {
  int *array, *dArray;
  int size = count * sizeof(int);
  array = new int[count];
  for (int i = 0; i < count; i += 1) array[i] = i;
  checkCudaErrors(cudaMalloc(&dArray, size));
  checkCudaErrors(cudaMemcpy(dArray, array, size, cudaMemcpyHostToDevice));
  for (int i = 0; i < count; i += 1) array[i] = 0;
  int bad = launchConfig(dArray, count, automaticLaunchConfig);
  checkCudaErrors(cudaMemcpy(array, dArray, size, cudaMemcpyDeviceToHost));
  checkCudaErrors(cudaFree(dArray));
  for (int i = 0; i < count; i += 1)
    if (array[i] != i * i) bad = 1;
  delete[] array;
  return bad;
}

int main(int argc, char **argv) {
  if (test(false) || test(true)) {
    std::cerr << "Test FAILED\n" << std::endl;
    return EXIT_FAILURE;
  }
  std::cout << "PASS" << std::endl;
  return EXIT_SUCCESS;
}
