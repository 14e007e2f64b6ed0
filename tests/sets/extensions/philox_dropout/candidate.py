import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_source = """
#include <torch/extension.h>
std::tuple<at::Tensor, at::Tensor> bias_gelu_dropout_add(
    const at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias, double p,
    std::optional<at::Generator> generator);
"""
cuda_source = r"""
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraphsUtils.cuh>
#include <ATen/AccumulateType.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/macros/Macros.h>
#include <curand_kernel.h>
#include <mutex>
#include <tuple>

#define BOOL_SWITCH(COND, CONST_NAME, ...)      \
  [&] {                                         \
    if (COND) {                                 \
      constexpr static bool CONST_NAME = true;  \
      return __VA_ARGS__();                     \
    } else {                                    \
      constexpr static bool CONST_NAME = false; \
      return __VA_ARGS__();                     \
    }                                           \
  }()

constexpr int UNROLL = 4;

template <typename scalar_t, typename accscalar_t, bool Has_bias>
C10_LAUNCH_BOUNDS_2(256, 4)
__global__ void bias_gelu_dropout_add_kernel(
    const scalar_t* __restrict__ x, const scalar_t* __restrict__ residual, const scalar_t* __restrict__ bias,
    scalar_t* __restrict__ out, uint8_t* __restrict__ mask, int64_t total, int64_t cols, accscalar_t keep,
    at::PhiloxCudaState philox_args) {
  auto [seed, offset] = at::cuda::philox::unpack(philox_args);
  const int64_t idx = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  curandStatePhilox4_32_10_t state;
  curand_init(seed, idx, offset, &state);
  const accscalar_t scale = accscalar_t(1) / keep;
  const int64_t rounded = ((total - 1) / (blockDim.x * gridDim.x * UNROLL) + 1) * blockDim.x * gridDim.x * UNROLL;
  for (int64_t linear = idx; linear < rounded; linear += (int64_t)gridDim.x * blockDim.x * UNROLL) {
    const float4 rand = curand_uniform4(&state);
    const float r[4] = {rand.x, rand.y, rand.z, rand.w};
#pragma unroll
    for (int ii = 0; ii < UNROLL; ii++) {
      const int64_t li = linear + (int64_t)blockDim.x * gridDim.x * ii;
      if (li < total) {
        accscalar_t v = static_cast<accscalar_t>(x[li]);
        if constexpr (Has_bias) v += static_cast<accscalar_t>(bias[li % cols]);
        const accscalar_t gelu = v * accscalar_t(0.5) * (accscalar_t(1) + ::erf(v * accscalar_t(M_SQRT1_2)));
        const bool kept = r[ii] <= keep;
        out[li] = static_cast<scalar_t>(static_cast<accscalar_t>(residual[li]) + gelu * kept * scale);
        mask[li] = kept;
      }
    }
  }
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_dropout_add(
    const at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias, double p,
    std::optional<at::Generator> generator) {
  at::cuda::OptionalCUDAGuard device_guard(at::device_of(x));
  TORCH_CHECK_VALUE(p >= 0.0 && p < 1.0, "dropout probability ", p, " is not in [0, 1)");
  auto gen = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      generator, at::cuda::detail::getDefaultCUDAGenerator());
  auto out = at::empty_like(x);
  auto mask = at::empty(x.sizes(), x.options().dtype(at::kByte));
  const int64_t nelem = x.numel();
  if (nelem == 0) return std::make_tuple(out, mask);
  const int64_t block_size = 256;
  unsigned int blocks_per_sm = at::cuda::getCurrentDeviceProperties()->maxThreadsPerMultiProcessor / block_size;
  dim3 grid((nelem + block_size * UNROLL - 1) / (block_size * UNROLL));
  grid.x = std::min((unsigned int)at::cuda::getCurrentDeviceProperties()->multiProcessorCount * blocks_per_sm, grid.x);
  // number of times random will be generated per thread, to offset philox counter in thc random state
  int64_t counter_offset = ((nelem - 1) / (block_size * grid.x * UNROLL) + 1) * UNROLL;
  at::PhiloxCudaState rng_engine_inputs;
  {
    // See Note [Acquire lock when using random generators]
    std::lock_guard<std::mutex> lock(gen->mutex_);
    rng_engine_inputs = gen->philox_cuda_state(counter_offset);
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "bias_gelu", [&] {
    using accscalar_t = at::acc_type<scalar_t, true>;
    BOOL_SWITCH(bias.defined(), Has_bias, [&] {
      bias_gelu_dropout_add_kernel<scalar_t, accscalar_t, Has_bias>
          <<<grid, block_size, 0, at::cuda::getCurrentCUDAStream()>>>(
              x.const_data_ptr<scalar_t>(), residual.const_data_ptr<scalar_t>(), bias.const_data_ptr<scalar_t>(),
              out.mutable_data_ptr<scalar_t>(), mask.mutable_data_ptr<uint8_t>(), nelem, x.size(-1),
              accscalar_t(1.0 - p), rng_engine_inputs);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
  return std::make_tuple(out, mask);
}
"""
fused = load_inline(
    name="bias_gelu_dropout_add",
    cpp_sources=[cpp_source],
    cuda_sources=[cuda_source],
    functions={"bias_gelu_dropout_add": "gelu(x + bias), dropout, residual"},
)


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x, residual, bias):
        out, _mask = fused.bias_gelu_dropout_add(x, residual, bias, self.p, None)
        return out
