// cuda_runtime_api.h, with the fields of cudaDeviceProp that CUDA 13 took away and older programs still print.
#pragma once
#include <stddef.h>
#define cudaDeviceProp kw_cudaDeviceProp
#include <cuda_runtime_api.h>
#undef cudaDeviceProp
#undef cudaGetDeviceProperties

struct cudaDeviceProp : kw_cudaDeviceProp {
#if CUDART_VERSION >= 13000
  int clockRate, deviceOverlap, kernelExecTimeoutEnabled, computeMode, memoryClockRate, singleToDoublePrecisionPerfRatio,
      cooperativeMultiDeviceLaunch, maxTexture1DLinear;
#endif
};
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* properties);
