// Included before a program's host text: NVIDIA's own runtime headers as nvcc shows them to host code, what nvcc adds to
// the host language, and the two calls that a launch becomes. Device functions are not declared here: host code has none.
#pragma once
#define KERNELWRIGHT_PRELUDE 1
#include "properties.h"
#include <host_defines.h>
// The second half of cuda_runtime.h (symbols, occupancy, launches with types) is there for nvcc only. Host code may use
// all of it, device built-ins excepted, so these headers count as included already.
#define __CUDACC__
#define __COMMON_FUNCTIONS_H__
#define __CUDACC_COMMON_FUNCTIONS_H__
#define __DEVICE_FUNCTIONS_H__
#define __DEVICE_LAUNCH_PARAMETERS_H__
#include <cuda_runtime.h>
#undef __CUDACC__

#if CUDART_VERSION >= 13000
inline cudaError_t cudaMemPrefetchAsync(const void* address, size_t bytes, int device, cudaStream_t stream = nullptr) {
  cudaMemLocation where{};
  where.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  where.id = device == cudaCpuDeviceId ? 0 : device;
  return ::cudaMemPrefetchAsync(address, bytes, where, 0u, stream);
}
inline cudaError_t cudaMemAdvise(const void* address, size_t bytes, cudaMemoryAdvise advice, int device) {
  cudaMemLocation where{};
  where.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  where.id = device == cudaCpuDeviceId ? 0 : device;
  return ::cudaMemAdvise(address, bytes, advice, where);
}
inline cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                            unsigned long long* id) {
  return ::cudaStreamGetCaptureInfo(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}
#endif
inline cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
inline cudaError_t cudaThreadExit() { return cudaDeviceReset(); }
#ifndef cudaDevicePropDontCare
#define cudaDevicePropDontCare cudaDeviceProp{}
#endif

#include <assert.h>
#include <ctype.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

// Host code may name these in functions for both sides; there is nothing behind them.
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
extern const int warpSize;

// What nvcc's mathematical headers give to host code in the global namespace.
#define KW_MIN_MAX(T)                                  \
  inline T min(T a, T b) { return b < a ? b : a; }     \
  inline T max(T a, T b) { return a < b ? b : a; }
KW_MIN_MAX(int)
KW_MIN_MAX(unsigned)
KW_MIN_MAX(long)
KW_MIN_MAX(unsigned long)
KW_MIN_MAX(long long)
KW_MIN_MAX(unsigned long long)
#undef KW_MIN_MAX
#define KW_MIN_MAX(A, B, T)                                  \
  inline T min(A a, B b) { return (T)b < (T)a ? (T)b : (T)a; } \
  inline T max(A a, B b) { return (T)a < (T)b ? (T)b : (T)a; }
KW_MIN_MAX(int, unsigned, unsigned)
KW_MIN_MAX(unsigned, int, unsigned)
KW_MIN_MAX(long, unsigned long, unsigned long)
KW_MIN_MAX(unsigned long, long, unsigned long)
KW_MIN_MAX(long long, unsigned long long, unsigned long long)
KW_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef KW_MIN_MAX
#define KW_MIN_MAX(A, B, T, F)                       \
  inline T min(A a, B b) { return ::fmin##F(a, b); } \
  inline T max(A a, B b) { return ::fmax##F(a, b); }
KW_MIN_MAX(float, float, float, f)
KW_MIN_MAX(double, double, double, )
KW_MIN_MAX(float, double, double, )
KW_MIN_MAX(double, float, double, )
#undef KW_MIN_MAX
inline float rsqrtf(float x) { return 1.0f / ::sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline double rcbrt(double x) { return 1.0 / ::cbrt(x); }
inline float rcbrtf(float x) { return 1.0f / ::cbrtf(x); }
inline double sinpi(double x) { return ::sin(x * 3.14159265358979323846); }
inline double cospi(double x) { return ::cos(x * 3.14159265358979323846); }
inline float sinpif(float x) { return (float)sinpi((double)x); }
inline float cospif(float x) { return (float)cospi((double)x); }
inline double normcdf(double x) { return 0.5 * ::erfc(-x * 0.70710678118654752440); }
inline float normcdff(float x) { return (float)normcdf((double)x); }
template <class T>
inline T __ldg(const T* p) { return *p; }

// Namespaces that a program may open or rename although their headers hold nothing for the host.
namespace cooperative_groups {}
namespace nvcuda::wmma {}
namespace cuda {}

namespace kw {
void configure(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr);
// `id` is an address that is this kernel's own; `sizes` are those of the arguments behind `arguments`.
void launch(const void* id, const void* const* arguments, const unsigned* sizes, int count);
}  // namespace kw
