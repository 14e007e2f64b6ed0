// Scan by warp shuffles over blocks, then a uniform addition.
#include <stdio.h>
#include <cuda_runtime.h>
#include <helper_cuda.h>
#include <helper_functions.h>

__global__ void shfl_scan_test(int *data, int width, int *partial_sums = NULL) {
  extern __shared__ int sums[];
  int id = ((blockIdx.x * blockDim.x) + threadIdx.x);
  int lane_id = id % warpSize, warp_id = threadIdx.x / warpSize;
  int value = data[id];
#pragma unroll
  for (int i = 1; i <= width; i *= 2) {
    unsigned int mask = 0xffffffff;
    int n = __shfl_up_sync(mask, value, i, width);
    if (lane_id >= i) value += n;
  }
  if (threadIdx.x % warpSize == warpSize - 1) sums[warp_id] = value;
  __syncthreads();
  if (warp_id == 0 && lane_id < (blockDim.x / warpSize)) {
    int warp_sum = sums[lane_id];
    int mask = (1 << (blockDim.x / warpSize)) - 1;
    for (int i = 1; i <= (blockDim.x / warpSize); i *= 2) {
      int n = __shfl_up_sync(mask, warp_sum, i, (blockDim.x / warpSize));
      if (lane_id >= i) warp_sum += n;
    }
    sums[lane_id] = warp_sum;
  }
  __syncthreads();
  int blockSum = 0;
  if (warp_id > 0) blockSum = sums[warp_id - 1];
  value += blockSum;
  data[id] = value;
  if (partial_sums != NULL && threadIdx.x == blockDim.x - 1) partial_sums[blockIdx.x] = value;
}

__global__ void uniform_add(int *data, int *partial_sums, int len) {
  __shared__ int buf;
  int id = ((blockIdx.x * blockDim.x) + threadIdx.x);
  if (id > len) return;
  if (threadIdx.x == 0) buf = partial_sums[blockIdx.x];
  __syncthreads();
  data[id] += buf;
}

static unsigned int iDivUp(unsigned int dividend, unsigned int divisor) {
  return ((dividend % divisor) == 0) ? (dividend / divisor) : (dividend / divisor + 1);
}

bool CPUverify(int *h_data, int *h_result, int n_elements) {
  for (int i = 0; i < n_elements - 1; i++) h_data[i + 1] = h_data[i] + h_data[i + 1];
  int diff = 0;
  for (int i = 0; i < n_elements; i++) diff += h_data[i] - h_result[i];
  StopWatchInterface *hTimer = NULL;
  sdkCreateTimer(&hTimer);
  sdkResetTimer(&hTimer);
  sdkStartTimer(&hTimer);
  sdkStopTimer(&hTimer);
  float cput = sdkGetTimerValue(&hTimer);
  sdkDeleteTimer(&hTimer);
  return diff == 0 && cput >= 0;
}

int main(int argc, char *argv[]) {
  int *h_data, *h_partial_sums, *h_result, *d_data, *d_partial_sums;
  const int n_elements = 8192;
  int sz = sizeof(int) * n_elements, blockSize = 256, gridSize = n_elements / blockSize, nWarps = blockSize / 32;
  int shmem_sz = nWarps * sizeof(int), n_partialSums = n_elements / blockSize, partial_sz = n_partialSums * sizeof(int);
  cudaDeviceProp deviceProp;
  checkCudaErrors(cudaGetDeviceProperties(&deviceProp, 0));
  printf("> %s has %d Multi-Processors\n", deviceProp.name, deviceProp.multiProcessorCount);
  checkCudaErrors(cudaMallocHost((void **)&h_data, sz));
  checkCudaErrors(cudaMallocHost((void **)&h_result, sz));
  checkCudaErrors(cudaMallocHost((void **)&h_partial_sums, partial_sz));
  for (int i = 0; i < n_elements; i++) h_data[i] = i % 7;
  int p_blockSize = min(n_partialSums, blockSize), p_gridSize = iDivUp(n_partialSums, p_blockSize);
  checkCudaErrors(cudaMalloc((void **)&d_data, sz));
  checkCudaErrors(cudaMalloc((void **)&d_partial_sums, partial_sz));
  checkCudaErrors(cudaMemset(d_partial_sums, 0, partial_sz));
  checkCudaErrors(cudaMemcpy(d_data, h_data, sz, cudaMemcpyHostToDevice));
  shfl_scan_test<<<gridSize, blockSize, shmem_sz>>>(d_data, 32, d_partial_sums);
  shfl_scan_test<<<p_gridSize, p_blockSize, shmem_sz>>>(d_partial_sums, 32);
  uniform_add<<<gridSize - 1, blockSize>>>(d_data + blockSize, d_partial_sums, n_elements);
  checkCudaErrors(cudaMemcpy(h_result, d_data, sz, cudaMemcpyDeviceToHost));
  bool bTestResult = CPUverify(h_data, h_result, n_elements);
  checkCudaErrors(cudaFreeHost(h_data));
  checkCudaErrors(cudaFreeHost(h_result));
  checkCudaErrors(cudaFreeHost(h_partial_sums));
  checkCudaErrors(cudaFree(d_data));
  checkCudaErrors(cudaFree(d_partial_sums));
  printf(bTestResult ? "PASS\n" : "FAIL\n");
  exit(bTestResult ? EXIT_SUCCESS : EXIT_FAILURE);
}
