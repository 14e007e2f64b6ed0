// The state of torch's random generator as a kernel takes it (ATen/cuda/PhiloxUtils.cuh): seed and offset by value.
//
// Compiled twice, as kernelwright_accessor.h is. On the device it is included only where a text names its types.
#pragma once

namespace at {
struct PhiloxCudaState {
  union Payload {
    unsigned long val;
    long* ptr;
  };
  PhiloxCudaState() = default;
  PhiloxCudaState(unsigned long seed, unsigned long offset) {
    seed_.val = seed;
    offset_.val = offset;
  }
  Payload seed_{};
  Payload offset_{};
  unsigned offset_intragraph_ = 0;
  bool captured_ = false;
};
}  // namespace at
#ifdef __CUDACC__
#include <cuda/std/tuple>
namespace at::cuda::philox {
__device__ inline ::cuda::std::tuple<unsigned long, unsigned long> unpack(at::PhiloxCudaState arg) {
  return {arg.seed_.val, arg.offset_.val};
}
}  // namespace at::cuda::philox
#endif
