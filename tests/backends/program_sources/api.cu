// The runtime's calls: errors, launches by address, streams, events, graphs, copies of every shape, arrays, registered memory.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define EXPECT(what)                                   \
  do {                                                 \
    if (!(what)) printf("FAILED line %d: %s\n", __LINE__, #what); \
  } while (0)
#define OK(call) EXPECT((call) == cudaSuccess)

__global__ void add(float* x, float v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += v;
}
__global__ void __launch_bounds__(64) bounded(float* x) { x[threadIdx.x] = 1; }
__global__ void dynamic(float* x) {
  extern __shared__ float s[];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__device__ float stored[4] = {1, 2, 3, 4};

static void launches(float* d) {
  add<<<0, 32>>>(d, 1, 1);
  EXPECT(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  EXPECT(cudaGetLastError() == cudaSuccess);
  add<<<1, 1025>>>(d, 1, 1);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  bounded<<<1, 128>>>(d);
  EXPECT(cudaGetLastError() != cudaSuccess);
  dynamic<<<1, 32, 100000>>>(d);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  OK(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
  dynamic<<<1, 32, 100000>>>(d);
  OK(cudaGetLastError());
  EXPECT(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 300000) == cudaErrorInvalidValue);
  cudaGetLastError();
  float v = 2;
  int n = 32;
  void* arguments[] = {&d, &v, &n};
  OK(cudaMemset(d, 0, 128));
  OK(cudaLaunchKernel((const void*)add, dim3(1), dim3(32), arguments, 0, nullptr));
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = 32;
  OK(cudaLaunchKernelEx(&config, add, d, 3.0f, 32));
  float first;
  OK(cudaMemcpy(&first, d, 4, cudaMemcpyDeviceToHost));
  EXPECT(first == 5);
  int blocks = 0, grid = 0, block = 0;
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0));
  EXPECT(blocks == 8);
  OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, add, 0, 0));
  EXPECT(block >= 32 && grid >= 1);
  cudaFuncAttributes attributes;
  OK(cudaFuncGetAttributes(&attributes, bounded));
  EXPECT(attributes.maxThreadsPerBlock == 64);
}

static void copies() {
  const int rows = 5, width = 7;
  float host[rows][width], back[rows][width] = {};
  for (int i = 0; i < rows * width; i++) host[0][i] = i;
  float* d;
  size_t pitch;
  OK(cudaMallocPitch(&d, &pitch, width * 4, rows));
  EXPECT(pitch >= width * 4 && pitch % 32 == 0);
  OK(cudaMemcpy2D(d, pitch, host, width * 4, width * 4, rows, cudaMemcpyHostToDevice));
  OK(cudaMemcpy2D(back, width * 4, d, pitch, width * 4, rows, cudaMemcpyDeviceToHost));
  EXPECT(!memcmp(host, back, sizeof host));
  EXPECT(cudaMemcpy(d, host, pitch * rows + 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(host, back, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(back, host, 4, cudaMemcpyHostToHost) == cudaSuccess);
  OK(cudaFree(d));
  EXPECT(cudaFree(d) == cudaErrorInvalidValue);
  EXPECT(cudaMalloc(&d, size_t(1) << 50) == cudaErrorMemoryAllocation);
  cudaGetLastError();
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  OK(cudaMallocArray(&array, &format, width, rows));
  OK(cudaMemcpy2DToArray(array, 0, 0, host, width * 4, width * 4, rows, cudaMemcpyHostToDevice));
  memset(back, 0, sizeof back);
  OK(cudaMemcpy2DFromArray(back, width * 4, array, 0, 0, width * 4, rows, cudaMemcpyDeviceToHost));
  EXPECT(!memcmp(host, back, sizeof host));
  OK(cudaFreeArray(array));
  cudaPitchedPtr box;
  cudaExtent extent = make_cudaExtent(8, 3, 2);
  OK(cudaMalloc3D(&box, extent));
  cudaMemcpy3DParms p{};
  char in[48], out[48] = {};
  for (int i = 0; i < 48; i++) in[i] = (char)i;
  p.srcPtr = make_cudaPitchedPtr(in, 8, 8, 3);
  p.dstPtr = box;
  p.extent = extent;
  p.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&p));
  p.srcPtr = box;
  p.dstPtr = make_cudaPitchedPtr(out, 8, 8, 3);
  p.kind = cudaMemcpyDeviceToHost;
  OK(cudaMemcpy3D(&p));
  EXPECT(!memcmp(in, out, 48));
  void* address;
  size_t bytes;
  OK(cudaGetSymbolAddress(&address, stored));
  OK(cudaGetSymbolSize(&bytes, stored));
  EXPECT(bytes == 16);
  float third;
  OK(cudaMemcpyFromSymbol(&third, stored, 4, 8));
  EXPECT(third == 3);
  EXPECT(cudaMemcpyFromSymbol(&third, stored, 4, 16) == cudaErrorInvalidValue);
  cudaGetLastError();
}

static void CUDART_CB called(void* data) { ++*static_cast<int*>(data); }

static void streams(float* d) {
  cudaStream_t a, b;
  cudaEvent_t start, stop;
  OK(cudaStreamCreate(&a));
  OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&stop));
  OK(cudaMemsetAsync(d, 0, 128, a));
  OK(cudaEventRecord(start, a));
  add<<<1, 32, 0, a>>>(d, 1, 32);
  OK(cudaEventRecord(stop, a));
  OK(cudaStreamWaitEvent(b, stop, 0));
  int calls = 0;
  OK(cudaLaunchHostFunc(b, called, &calls));
  OK(cudaStreamSynchronize(b));
  EXPECT(calls == 1);
  float ms = -1;
  OK(cudaEventElapsedTime(&ms, start, stop));
  EXPECT(ms > 0);
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  add<<<1, 32, 0, a>>>(d, 10, 32);
  OK(cudaEventRecord(start, a));
  OK(cudaStreamWaitEvent(b, start, 0));
  add<<<1, 32, 0, b>>>(d, 100, 32);
  OK(cudaEventRecord(stop, b));
  OK(cudaStreamWaitEvent(a, stop, 0));
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  OK(cudaStreamEndCapture(a, &graph));
  OK(cudaGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  float x;
  OK(cudaMemcpy(&x, d, 4, cudaMemcpyDeviceToHost));
  EXPECT(x == 1);
  OK(cudaGraphLaunch(executable, a));
  OK(cudaGraphLaunch(executable, a));
  OK(cudaStreamSynchronize(a));
  OK(cudaMemcpy(&x, d, 4, cudaMemcpyDeviceToHost));
  EXPECT(x == 221);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
  OK(cudaStreamDestroy(a));
  EXPECT(cudaStreamDestroy(a) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

int main() {
  int count = 0;
  cudaDeviceProp p;
  OK(cudaGetDeviceCount(&count));
  OK(cudaGetDeviceProperties(&p, 0));
  EXPECT(count == 1 && p.major == 9 && p.warpSize == 32 && p.clockRate > 0);
  EXPECT(cudaSetDevice(3) == cudaErrorInvalidDevice);
  cudaGetLastError();
  float* d;
  OK(cudaMalloc(&d, 128));
  launches(d);
  copies();
  streams(d);
  float *pinned, *mapped, *own = (float*)malloc(4096);
  OK(cudaHostAlloc(&pinned, 128, cudaHostAllocMapped));
  OK(cudaHostGetDevicePointer(&mapped, pinned, 0));
  pinned[0] = 1;
  add<<<1, 32>>>(mapped, 1, 1);
  OK(cudaDeviceSynchronize());
  EXPECT(pinned[0] == 2);
  OK(cudaHostRegister(own, 4096, 0));
  own[3] = 5;
  add<<<1, 32>>>(own, 1, 4);
  OK(cudaDeviceSynchronize());
  EXPECT(own[3] == 6);
  OK(cudaHostUnregister(own));
  cudaPointerAttributes kind;
  OK(cudaPointerGetAttributes(&kind, d));
  EXPECT(kind.type == cudaMemoryTypeDevice);
  add<<<1, 32>>>(own, 1, 4);  // not registered any more: an illegal access, told by the next call that waits
  OK(cudaGetLastError());
  EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
  EXPECT(cudaMalloc(&d, 4) == cudaErrorIllegalAddress);
  EXPECT(!strcmp(cudaGetErrorString(cudaErrorIllegalAddress), "an illegal memory access was encountered"));
  EXPECT(!strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress"));
  printf("done\n");
  return 0;
}
