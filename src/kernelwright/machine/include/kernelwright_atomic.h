// torch's atomics for device code (ATen/cuda/Atomic.cuh). Included only where a device text names one of them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace c10 {
struct Half;
struct BFloat16;
}  // namespace c10
template <class T>
struct kw_native {
  using type = T;
};
template <>
struct kw_native<c10::Half> {
  using type = __half;
};
template <>
struct kw_native<c10::BFloat16> {
  using type = __nv_bfloat16;
};
template <class T>
__device__ inline T gpuAtomicAdd(T* address, T value) {
  using N = typename kw_native<T>::type;
  N old = atomicAdd(reinterpret_cast<N*>(address), *reinterpret_cast<N*>(&value));
  return *reinterpret_cast<T*>(&old);
}
__device__ inline long long gpuAtomicAdd(long long* address, long long value) {
  return (long long)atomicAdd((unsigned long long*)address, (unsigned long long)value);
}
__device__ inline long gpuAtomicAdd(long* address, long value) {
  return (long)atomicAdd((unsigned long long*)address, (unsigned long long)value);
}
template <class T>
__device__ inline void gpuAtomicAddNoReturn(T* address, T value) { gpuAtomicAdd(address, value); }
// Compare and swap for what the hardware has no instruction for, NaN wins as in torch.
template <class T, class F>
__device__ inline T kw_atomic_update(T* address, T value, F f) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "gpuAtomic for this type is not supported");
  T old = *address, seen;
  do {
    seen = old;
    T wanted = f(seen, value);
    if constexpr (sizeof(T) == 4) {
      unsigned bits = atomicCAS((unsigned*)address, *(unsigned*)&seen, *(unsigned*)&wanted);
      old = *(T*)&bits;
    } else {
      unsigned long long bits = atomicCAS((unsigned long long*)address, *(unsigned long long*)&seen, *(unsigned long long*)&wanted);
      old = *(T*)&bits;
    }
  } while (!(old == seen) && !(old != old && seen != seen));
  return old;
}
template <class T>
__device__ inline T gpuAtomicMul(T* address, T value) {
  return kw_atomic_update(address, value, [](T a, T b) { return a * b; });
}
template <class T>
__device__ inline T gpuAtomicMax(T* address, T value) {
  return kw_atomic_update(address, value, [](T a, T b) { return b != b || b > a ? b : a; });
}
template <class T>
__device__ inline T gpuAtomicMin(T* address, T value) {
  return kw_atomic_update(address, value, [](T a, T b) { return b != b || b < a ? b : a; });
}
namespace at::native {
// ATen/native/cuda/KernelUtils.cuh: the pairs of 16-bit types that torch packs are a matter of speed.
template <class T, class I>
__device__ inline void fastAtomicAdd(T* tensor, I index, const I count, T value, bool) { gpuAtomicAdd(tensor + index, value); }
template <class T, class I>
__device__ inline void fastSpecializedAtomicAdd(T* tensor, I index, const I count, T value) {
  gpuAtomicAdd(tensor + index, value);
}
}  // namespace at::native
