// The last block adds the partial sums: __threadfence and a counter in device memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <helper_cuda.h>
#include <helper_functions.h>

__device__ unsigned int retirementCount = 0;

cudaError_t setRetirementCount(int retCnt) {
  return cudaMemcpyToSymbol(retirementCount, &retCnt, sizeof(unsigned int), 0, cudaMemcpyHostToDevice);
}

template <unsigned int blockSize>
__device__ void reduceBlock(volatile float *sdata, float mySum, const unsigned int tid) {
  sdata[tid] = mySum;
  __syncthreads();
  for (unsigned int s = blockSize / 2; s > 0; s >>= 1) {
    if (tid < s) sdata[tid] = mySum = mySum + sdata[tid + s];
    __syncthreads();
  }
}

template <unsigned int blockSize>
__global__ void reduceSinglePass(const float *g_idata, float *g_odata, unsigned int n) {
  const unsigned int tid = threadIdx.x;
  __shared__ float smem[blockSize];
  float mySum = 0;
  for (unsigned int i = blockIdx.x * blockSize + tid; i < n; i += blockSize * gridDim.x) mySum += g_idata[i];
  reduceBlock<blockSize>(smem, mySum, tid);
  if (tid == 0) g_odata[blockIdx.x] = smem[0];
  if (gridDim.x > 1) {
    __shared__ bool amLast;
    __threadfence();
    if (tid == 0) {
      unsigned int ticket = atomicInc(&retirementCount, gridDim.x);
      amLast = (ticket == gridDim.x - 1);
    }
    __syncthreads();
    if (amLast) {
      float mySum = 0;
      for (int i = tid; i < (int)gridDim.x; i += blockSize) mySum += ((volatile float *)g_odata)[i];
      reduceBlock<blockSize>(smem, mySum, tid);
      if (tid == 0) {
        g_odata[0] = smem[0];
        retirementCount = 0;
      }
    }
  }
}

template <class T>
T reduceCPU(T *data, int size) {
  T sum = data[0], c = (T)0.0;
  for (int i = 1; i < size; i++) {
    T y = data[i] - c, t = sum + y;
    c = (t - sum) - y;
    sum = t;
  }
  return sum;
}

int main(int argc, char **argv) {
  int size = 20000, maxThreads = 128, maxBlocks = 24;
  float *h_idata = (float *)malloc(size * sizeof(float)), *d_idata = NULL, *d_odata = NULL, gpu_result = 0;
  for (int i = 0; i < size; i++) h_idata[i] = (rand() & 0xFF) / (float)RAND_MAX;
  checkCudaErrors(cudaMalloc((void **)&d_idata, size * sizeof(float)));
  checkCudaErrors(cudaMalloc((void **)&d_odata, maxBlocks * sizeof(float)));
  checkCudaErrors(cudaMemcpy(d_idata, h_idata, size * sizeof(float), cudaMemcpyHostToDevice));
  bool good = true;
  float cpu_result = reduceCPU<float>(h_idata, size);
  checkCudaErrors(setRetirementCount(0));
  for (int repeat = 0; repeat < 2; repeat++) {
    reduceSinglePass<128><<<maxBlocks, maxThreads>>>(d_idata, d_odata, size);
    checkCudaErrors(cudaMemcpy(&gpu_result, d_odata, sizeof(float), cudaMemcpyDeviceToHost));
    good = good && fabs(gpu_result - cpu_result) < 1e-8 * size;
  }
  free(h_idata);
  cudaFree(d_idata);
  cudaFree(d_odata);
  puts(good ? "PASS" : "FAIL");
  return !good;
}
