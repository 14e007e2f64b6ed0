// Every integer atomic, checked as the samples do: by what must come out or may come out.
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <math.h>
#ifdef _WIN32
#define WINDOWS_LEAN_AND_MEAN
#include <windows.h>
#endif
#include <cuda_runtime.h>
#include <helper_functions.h>
#include <helper_cuda.h>

__global__ void testKernel(int *g_odata) {
  const unsigned int tid = blockDim.x * blockIdx.x + threadIdx.x;
  atomicAdd(&g_odata[0], 10);
  atomicSub(&g_odata[1], 10);
  atomicExch(&g_odata[2], tid);
  atomicMax(&g_odata[3], tid);
  atomicMin(&g_odata[4], tid);
  atomicInc((unsigned int *)&g_odata[5], 17);
  atomicDec((unsigned int *)&g_odata[6], 137);
  atomicCAS(&g_odata[7], tid - 1, tid);
  atomicAnd(&g_odata[8], 2 * tid + 7);
  atomicOr(&g_odata[9], 1 << tid);
  atomicXor(&g_odata[10], tid);
}

int computeGold(int *gpuData, const int len) {
  int val = 0;
  for (int i = 0; i < len; ++i) val += 10;
  if (val != gpuData[0]) return 0;
  val = 0;
  for (int i = 0; i < len; ++i) val -= 10;
  if (val != gpuData[1]) return 0;
  if (gpuData[2] < 0 || gpuData[2] >= len) return 0;
  if (gpuData[3] != len - 1 || gpuData[4] != 0) return 0;
  val = 0;
  for (int i = 0; i < len; ++i) val = (val >= 17) ? 0 : val + 1;
  if (val != gpuData[5]) return 0;
  val = 0;
  for (int i = 0; i < len; ++i) val = ((val == 0) || (val > 137)) ? 137 : val - 1;
  if (val != gpuData[6]) return 0;
  if (gpuData[7] < 0 || gpuData[7] >= len) return 0;
  val = 0xff;
  for (int i = 0; i < len; ++i) val &= (2 * i + 7);
  if (val != gpuData[8]) return 0;
  if (gpuData[9] != -1) return 0;
  val = 0xff;
  for (int i = 0; i < len; ++i) val ^= i;
  return val == gpuData[10];
}

int main(int argc, char **argv) {
  unsigned int numThreads = 128, numBlocks = 8, numData = 11, memSize = sizeof(int) * numData;
  int *hOData;
  cudaStream_t stream;
  checkCudaErrors(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  checkCudaErrors(cudaMallocHost(&hOData, memSize));
  for (unsigned int i = 0; i < numData; i++) hOData[i] = 0;
  hOData[8] = hOData[10] = 0xff;
  int *dOData;
  checkCudaErrors(cudaMalloc((void **)&dOData, memSize));
  checkCudaErrors(cudaMemcpyAsync(dOData, hOData, memSize, cudaMemcpyHostToDevice, stream));
  testKernel<<<numBlocks, numThreads, 0, stream>>>(dOData);
  checkCudaErrors(cudaMemcpyAsync(hOData, dOData, memSize, cudaMemcpyDeviceToHost, stream));
  checkCudaErrors(cudaStreamSynchronize(stream));
  bool testResult = computeGold(hOData, numThreads * numBlocks);
  checkCudaErrors(cudaFreeHost(hOData));
  checkCudaErrors(cudaFree(dOData));
  printf("%s\n", testResult ? "PASS" : "FAIL");
  exit(testResult ? EXIT_SUCCESS : EXIT_FAILURE);
}
