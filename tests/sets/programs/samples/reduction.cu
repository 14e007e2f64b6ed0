// arguments: --n=10000 --type=int
// A reduction by templates on type and block size, with the samples' shared memory helper.
#include <stdio.h>
#include <cuda_runtime.h>
#include <helper_cuda.h>
#include <helper_functions.h>
#include <algorithm>

enum ReduceType { REDUCE_INT, REDUCE_FLOAT, REDUCE_DOUBLE };

template <class T>
struct SharedMemory {
  __device__ inline operator T *() {
    extern __shared__ int __smem[];
    return (T *)__smem;
  }
  __device__ inline operator const T *() const {
    extern __shared__ int __smem[];
    return (T *)__smem;
  }
};

template <>
struct SharedMemory<double> {
  __device__ inline operator double *() {
    extern __shared__ double __smem_d[];
    return (double *)__smem_d;
  }
};

template <class T>
__device__ __forceinline__ T warpReduceSum(unsigned int mask, T mySum) {
  for (int offset = warpSize / 2; offset > 0; offset /= 2) mySum += __shfl_down_sync(mask, mySum, offset);
  return mySum;
}

template <class T, unsigned int blockSize, bool nIsPow2>
__global__ void reduce(T *g_idata, T *g_odata, unsigned int n) {
  T *sdata = SharedMemory<T>();
  unsigned int tid = threadIdx.x, i = blockIdx.x * blockSize * 2 + threadIdx.x;
  unsigned int gridSize = blockSize * 2 * gridDim.x;
  T mySum = 0;
  while (i < n) {
    mySum += g_idata[i];
    if (nIsPow2 || i + blockSize < n) mySum += g_idata[i + blockSize];
    i += gridSize;
  }
  sdata[tid] = mySum;
  __syncthreads();
  if ((blockSize >= 512) && (tid < 256)) sdata[tid] = mySum = mySum + sdata[tid + 256];
  __syncthreads();
  if ((blockSize >= 256) && (tid < 128)) sdata[tid] = mySum = mySum + sdata[tid + 128];
  __syncthreads();
  if ((blockSize >= 128) && (tid < 64)) sdata[tid] = mySum = mySum + sdata[tid + 64];
  __syncthreads();
  if (tid < 32) {
    if (blockSize >= 64) mySum += sdata[tid + 32];
    mySum = warpReduceSum<T>(0xffffffff, mySum);
  }
  if (tid == 0) g_odata[blockIdx.x] = mySum;
}

extern "C" bool isPow2(unsigned int x) { return ((x & (x - 1)) == 0); }

template <class T>
void launch(int size, int threads, int blocks, T *d_idata, T *d_odata) {
  dim3 dimBlock(threads, 1, 1), dimGrid(blocks, 1, 1);
  int smemSize = (threads <= 32) ? 2 * threads * sizeof(T) : threads * sizeof(T);
  if (isPow2(size)) {
    switch (threads) {
      case 256: reduce<T, 256, true><<<dimGrid, dimBlock, smemSize>>>(d_idata, d_odata, size); break;
      case 128: reduce<T, 128, true><<<dimGrid, dimBlock, smemSize>>>(d_idata, d_odata, size); break;
      case 64: reduce<T, 64, true><<<dimGrid, dimBlock, smemSize>>>(d_idata, d_odata, size); break;
    }
  } else {
    switch (threads) {
      case 256: reduce<T, 256, false><<<dimGrid, dimBlock, smemSize>>>(d_idata, d_odata, size); break;
      case 128: reduce<T, 128, false><<<dimGrid, dimBlock, smemSize>>>(d_idata, d_odata, size); break;
      case 64: reduce<T, 64, false><<<dimGrid, dimBlock, smemSize>>>(d_idata, d_odata, size); break;
    }
  }
}

template <class T>
bool runTest(int argc, char **argv, ReduceType datatype) {
  int size = 1 << 12;
  if (checkCmdLineFlag(argc, (const char **)argv, "n")) size = getCmdLineArgumentInt(argc, (const char **)argv, "n");
  T *h = (T *)malloc(size * sizeof(T));
  T expected = 0;
  for (int i = 0; i < size; i++) {
    h[i] = datatype == REDUCE_INT ? (T)(rand() & 0xFF) : (T)(rand() & 0x7);
    expected += h[i];
  }
  T *d, *o, out[16];
  checkCudaErrors(cudaMalloc((void **)&d, size * sizeof(T)));
  checkCudaErrors(cudaMalloc((void **)&o, 16 * sizeof(T)));
  checkCudaErrors(cudaMemcpy(d, h, size * sizeof(T), cudaMemcpyHostToDevice));
  bool good = true;
  StopWatchInterface *timer = 0;
  sdkCreateTimer(&timer);
  for (int threads = 64; threads <= 256; threads *= 2) {
    sdkResetTimer(&timer);
    sdkStartTimer(&timer);
    launch<T>(size, threads, 16, d, o);
    getLastCudaError("Kernel execution failed");
    sdkStopTimer(&timer);
    checkCudaErrors(cudaMemcpy(out, o, sizeof out, cudaMemcpyDeviceToHost));
    T sum = 0;
    for (int i = 0; i < 16; i++) sum += out[i];
    good = good && sum == expected && sdkGetAverageTimerValue(&timer) >= 0;
  }
  sdkDeleteTimer(&timer);
  free(h);
  cudaFree(d);
  cudaFree(o);
  return good;
}

int main(int argc, char **argv) {
  char *typeInput = 0;
  getCmdLineArgumentString(argc, (const char **)argv, "type", &typeInput);
  bool good = typeInput && !STRCASECMP(typeInput, "int");
  good = runTest<int>(argc, argv, REDUCE_INT) && good;
  good = runTest<float>(argc, argv, REDUCE_FLOAT) && good;
  good = runTest<double>(argc, argv, REDUCE_DOUBLE) && good;
  printf(good ? "PASS\n" : "FAIL\n");
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
