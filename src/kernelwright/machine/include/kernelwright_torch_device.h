// torch's device functions that extensions use: warps (ATen/cuda/DeviceUtils.cuh), sums of a block
// (ATen/native/cuda/block_reduce.cuh), and math by type (c10/cuda/CUDAMathCompat.h). Included only where a text
// includes one of these headers.
#pragma once

__device__ inline unsigned ACTIVE_MASK() { return __activemask(); }
__device__ inline void WARP_SYNC(unsigned mask = 0xffffffff) { __syncwarp(mask); }
__device__ inline unsigned WARP_BALLOT(int predicate, unsigned mask = 0xffffffff) { return __ballot_sync(mask, predicate); }
#define KW_SHUFFLE(NAME, FUNCTION, ARGUMENT)                                                                       \
  template <class T>                                                                                             \
  __device__ inline T NAME(T value, ARGUMENT, int width = warpSize, unsigned mask = 0xffffffff) {                \
    if constexpr (sizeof(T) == 2) {                                                                              \
      unsigned short bits = FUNCTION(mask, *reinterpret_cast<unsigned short*>(&value), by, width);               \
      return *reinterpret_cast<T*>(&bits);                                                                       \
    } else {                                                                                                     \
      return FUNCTION(mask, value, by, width);                                                                   \
    }                                                                                                            \
  }
KW_SHUFFLE(WARP_SHFL, __shfl_sync, int by)
KW_SHUFFLE(WARP_SHFL_UP, __shfl_up_sync, unsigned by)
KW_SHUFFLE(WARP_SHFL_DOWN, __shfl_down_sync, unsigned by)
KW_SHUFFLE(WARP_SHFL_XOR, __shfl_xor_sync, int by)
#undef KW_SHUFFLE
template <class T>
__device__ inline T doLdg(const T* p) { return __ldg(p); }

namespace c10::cuda::compat {
#define KW_COMPAT(NAME)                                                       \
  __device__ inline float NAME(float x) { return ::NAME##f(x); }              \
  __device__ inline double NAME(double x) { return ::NAME(x); }
KW_COMPAT(acos) KW_COMPAT(acosh) KW_COMPAT(asin) KW_COMPAT(asinh) KW_COMPAT(atan) KW_COMPAT(atanh) KW_COMPAT(ceil)
KW_COMPAT(cos) KW_COMPAT(cosh) KW_COMPAT(erf) KW_COMPAT(erfc) KW_COMPAT(exp) KW_COMPAT(expm1) KW_COMPAT(floor)
KW_COMPAT(lgamma) KW_COMPAT(log) KW_COMPAT(log10) KW_COMPAT(log1p) KW_COMPAT(log2) KW_COMPAT(nearbyint) KW_COMPAT(round)
KW_COMPAT(rsqrt) KW_COMPAT(sin) KW_COMPAT(sinh) KW_COMPAT(sqrt) KW_COMPAT(tan) KW_COMPAT(tanh) KW_COMPAT(tgamma)
KW_COMPAT(trunc) KW_COMPAT(normcdf)
#undef KW_COMPAT
__device__ inline float abs(float x) { return ::fabsf(x); }
__device__ inline double abs(double x) { return ::fabs(x); }
#define KW_COMPAT2(NAME)                                                                 \
  __device__ inline float NAME(float x, float y) { return ::NAME##f(x, y); }             \
  __device__ inline double NAME(double x, double y) { return ::NAME(x, y); }
KW_COMPAT2(copysign) KW_COMPAT2(hypot) KW_COMPAT2(pow) KW_COMPAT2(atan2) KW_COMPAT2(fmod)
#undef KW_COMPAT2
__device__ inline float max(float x, float y) { return ::fmaxf(x, y); }
__device__ inline double max(double x, double y) { return ::fmax(x, y); }
__device__ inline float min(float x, float y) { return ::fminf(x, y); }
__device__ inline double min(double x, double y) { return ::fmin(x, y); }
__device__ inline float div(float x, float y) { return __fdividef(x, y); }
__device__ inline double div(double x, double y) { return x / y; }
__device__ inline void sincos(float x, float* s, float* c) { ::sincosf(x, s, c); }
__device__ inline void sincos(double x, double* s, double* c) { ::sincos(x, s, c); }
}  // namespace c10::cuda::compat

namespace at::native::cuda_utils {
constexpr int kCUDABlockReduceNumThreads = 512;
constexpr int kCUDABlockReduceMaxThreads = 1024;
template <class T>
__device__ inline T WarpReduceSum(T value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) value += WARP_SHFL_DOWN(value, offset);
  return value;
}
template <class T>
__device__ inline T WarpReduceMax(T value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    T other = WARP_SHFL_DOWN(value, offset);
    value = other != other || other > value ? other : value;
  }
  return value;
}
struct Block1D {
  static __device__ inline int Tid() { return threadIdx.x; }
  static __device__ inline int Warps() { return blockDim.x / 32; }
};
struct Block2D {
  static __device__ inline int Tid() { return threadIdx.x + threadIdx.y * blockDim.x; }
  static __device__ inline int Warps() { return blockDim.x * blockDim.y / 32; }
};
template <class T, class B = Block1D>
__device__ inline T BlockReduceSum(T value, T* shared) {
  const int lane = B::Tid() % 32, warp = B::Tid() / 32;
  value = WarpReduceSum(value);
  __syncthreads();
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  value = B::Tid() < B::Warps() ? shared[lane] : T(0);
  return warp == 0 ? WarpReduceSum(value) : value;
}
template <class T, class B = Block1D>
__device__ inline T BlockReduceMax(T value, T* shared) {
  const int lane = B::Tid() % 32, warp = B::Tid() / 32;
  value = WarpReduceMax(value);
  __syncthreads();
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  value = B::Tid() < B::Warps() ? shared[lane] : T(-INFINITY);
  return warp == 0 ? WarpReduceMax(value) : value;
}
}  // namespace at::native::cuda_utils
