// Takes the place of Thrust's header of this name: what Thrust's host system allocates is device memory of the program's
// runtime, so that kernels may have it. Thrust's algorithms themselves run on the host here.
#pragma once
#include <cuda_runtime_api.h>
#include <thrust/detail/config.h>
#include <thrust/detail/raw_pointer_cast.h>
#include <thrust/system/detail/sequential/execution_policy.h>

THRUST_NAMESPACE_BEGIN
namespace system::detail::sequential {
template <class Policy>
inline void* malloc(execution_policy<Policy>&, std::size_t bytes) {
  void* made = nullptr;
  return ::cudaMalloc(&made, bytes ? bytes : 1) == cudaSuccess ? made : nullptr;
}
template <class Policy, class Pointer>
inline void free(execution_policy<Policy>&, Pointer pointer) {
  ::cudaFree(thrust::raw_pointer_cast(pointer));
}
}  // namespace system::detail::sequential
THRUST_NAMESPACE_END
