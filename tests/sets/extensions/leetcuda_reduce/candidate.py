import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <torch/extension.h>
#include <torch/types.h>
#include <tuple>

#define WARP_SIZE 32
#define FLOAT4(value) (reinterpret_cast<float4 *>(&(value))[0])
#define BFLOAT2(value) (reinterpret_cast<__nv_bfloat162 *>(&(value))[0])
#define LDST128BITS(value) (reinterpret_cast<float4 *>(&(value))[0])

template <const int kWarpSize = WARP_SIZE>
__device__ __forceinline__ float warp_reduce_sum_f32(float val) {
#pragma unroll
  for (int mask = kWarpSize >> 1; mask >= 1; mask >>= 1) {
    val += __shfl_xor_sync(0xffffffff, val, mask);
  }
  return val;
}
template <const int kWarpSize = WARP_SIZE>
__device__ __forceinline__ int32_t warp_reduce_sum_i32(int32_t val) {
#pragma unroll
  for (int mask = kWarpSize >> 1; mask >= 1; mask >>= 1) {
    val += __shfl_xor_sync(0xffffffff, val, mask);
  }
  return val;
}

template <const int NUM_THREADS = 256 / 4>
__global__ void block_all_reduce_sum_f32x4_f32_kernel(float *a, float *y, int N) {
  int tid = threadIdx.x;
  int idx = (blockIdx.x * NUM_THREADS + tid) * 4;
  constexpr int NUM_WARPS = (NUM_THREADS + WARP_SIZE - 1) / WARP_SIZE;
  __shared__ float reduce_smem[NUM_WARPS];
  float4 reg_a = FLOAT4(a[idx]);
  float sum = (idx < N) ? (reg_a.x + reg_a.y + reg_a.z + reg_a.w) : 0.0f;
  int warp = tid / WARP_SIZE;
  int lane = tid % WARP_SIZE;
  sum = warp_reduce_sum_f32<WARP_SIZE>(sum);
  if (lane == 0)
    reduce_smem[warp] = sum;
  __syncthreads();
  sum = (lane < NUM_WARPS) ? reduce_smem[lane] : 0.0f;
  if (warp == 0)
    sum = warp_reduce_sum_f32<NUM_WARPS>(sum);
  if (tid == 0)
    atomicAdd(y, sum);
}

template <const int NUM_THREADS = 256 / 8>
__global__ void block_all_reduce_sum_bf16x8_pack_f32_kernel(__nv_bfloat16 *a, float *y, int N) {
  int tid = threadIdx.x;
  int idx = (blockIdx.x * NUM_THREADS + tid) * 8;
  constexpr int NUM_WARPS = (NUM_THREADS + WARP_SIZE - 1) / WARP_SIZE;
  __shared__ float reduce_smem[NUM_WARPS];
  __nv_bfloat16 pack_a[8];
  LDST128BITS(pack_a[0]) = LDST128BITS(a[idx]);
  float sum_f32 = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sum_f32 += (((idx + i) < N) ? __bfloat162float(pack_a[i]) : 0.0f);
  }
  int warp = tid / WARP_SIZE;
  int lane = tid % WARP_SIZE;
  sum_f32 = warp_reduce_sum_f32<WARP_SIZE>(sum_f32);
  if (lane == 0)
    reduce_smem[warp] = sum_f32;
  __syncthreads();
  sum_f32 = (lane < NUM_WARPS) ? reduce_smem[lane] : 0.0f;
  if (warp == 0)
    sum_f32 = warp_reduce_sum_f32<NUM_WARPS>(sum_f32);
  if (tid == 0)
    atomicAdd(y, sum_f32);
}

template <const int NUM_THREADS = 256 / 16>
__global__ void block_all_reduce_sum_i8x16_pack_i32_kernel(int8_t *a, int32_t *y, int N) {
  int tid = threadIdx.x;
  int idx = (blockIdx.x * NUM_THREADS + tid) * 16;
  constexpr int NUM_WARPS = (NUM_THREADS + WARP_SIZE - 1) / WARP_SIZE;
  __shared__ int32_t reduce_smem[NUM_WARPS];
  int8_t pack_a[16];
  LDST128BITS(pack_a[0]) = LDST128BITS(a[idx]);
  int32_t sum_i32 = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    sum_i32 += static_cast<int32_t>(pack_a[i]);
  }
  int warp = tid / WARP_SIZE;
  int lane = tid % WARP_SIZE;
  sum_i32 = warp_reduce_sum_i32<NUM_THREADS < WARP_SIZE ? NUM_THREADS : WARP_SIZE>(sum_i32);
  if (lane == 0)
    reduce_smem[warp] = sum_i32;
  __syncthreads();
  sum_i32 = (lane < NUM_WARPS) ? reduce_smem[lane] : 0;
  if (warp == 0)
    sum_i32 = warp_reduce_sum_i32<NUM_WARPS>(sum_i32);
  if (tid == 0)
    atomicAdd(y, sum_i32);
}

#define STRINGFY(str) #str
#define TORCH_BINDING_COMMON_EXTENSION(func)                                                       \
  m.def(STRINGFY(func), &func, STRINGFY(func));

#define CHECK_TORCH_TENSOR_DTYPE(T, th_type)                                                       \
  if (((T).options().dtype() != (th_type))) {                                                      \
    std::cout << "Tensor Info:" << (T).options() << std::endl;                                     \
    throw std::runtime_error("values must be " #th_type);                                          \
  }

#define LANUCH_REDUCE_KERNEL(NT, packed_type, acc_type, element_type, out_type)                    \
  block_all_reduce_sum_##packed_type##_##acc_type##_kernel<(NT)>                                   \
      <<<grid, block>>>(reinterpret_cast<element_type *>(x.data_ptr()),                            \
                        reinterpret_cast<out_type *>(y.data_ptr()), N);

#define DISPATCH_REDUCE_KERNEL(K, packed_type, acc_type, element_type, n_elements, out_type)       \
  const int NT = (K) / (n_elements);                                                               \
  dim3 block(NT);                                                                                  \
  dim3 grid((S));                                                                                  \
  switch (NT) {                                                                                    \
  case 16:                                                                                         \
    LANUCH_REDUCE_KERNEL(16, packed_type, acc_type, element_type, out_type)                        \
    break;                                                                                         \
  case 32:                                                                                         \
    LANUCH_REDUCE_KERNEL(32, packed_type, acc_type, element_type, out_type)                        \
    break;                                                                                         \
  case 64:                                                                                         \
    LANUCH_REDUCE_KERNEL(64, packed_type, acc_type, element_type, out_type)                        \
    break;                                                                                         \
  case 128:                                                                                        \
    LANUCH_REDUCE_KERNEL(128, packed_type, acc_type, element_type, out_type)                       \
    break;                                                                                         \
  default:                                                                                         \
    throw std::runtime_error("only support (K)/(n_elements): 16/32/64/128");                       \
    break;                                                                                         \
  }

#define TORCH_BINDING_REDUCE(packed_type, acc_type, th_type, element_type, n_elements, out_type)   \
  torch::Tensor block_all_reduce_sum_##packed_type##_##acc_type(torch::Tensor x) {                 \
    CHECK_TORCH_TENSOR_DTYPE(x, (th_type))                                                         \
    auto y_th_type = (th_type) == torch::kInt8 ? torch::kInt32 : torch::kFloat32;                  \
    auto options = torch::TensorOptions().dtype(y_th_type).device(torch::kCUDA, 0);                \
    auto y = torch::zeros({1}, options);                                                           \
    const int S = x.size(0);                                                                       \
    const int K = x.size(1);                                                                       \
    const int N = S * K;                                                                           \
    DISPATCH_REDUCE_KERNEL(K, packed_type, acc_type, element_type, n_elements, out_type)           \
    return y;                                                                                      \
  }

TORCH_BINDING_REDUCE(f32x4, f32, torch::kFloat32, float, 4, float)
TORCH_BINDING_REDUCE(bf16x8_pack, f32, torch::kBFloat16, __nv_bfloat16, 8, float)
TORCH_BINDING_REDUCE(i8x16_pack, i32, torch::kInt8, int8_t, 16, int32_t)

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  TORCH_BINDING_COMMON_EXTENSION(block_all_reduce_sum_f32x4_f32)
  TORCH_BINDING_COMMON_EXTENSION(block_all_reduce_sum_bf16x8_pack_f32)
  TORCH_BINDING_COMMON_EXTENSION(block_all_reduce_sum_i8x16_pack_i32)
}
"""
lib = load_inline(name="block_all_reduce_lib", cpp_sources=[], cuda_sources=[SOURCE])


class ModelNew(torch.nn.Module):
    def forward(self, a, b, c):
        return (
            lib.block_all_reduce_sum_f32x4_f32(a).squeeze(),
            lib.block_all_reduce_sum_bf16x8_pack_f32(b).squeeze(),
            lib.block_all_reduce_sum_i8x16_pack_i32(c).squeeze(),
        )
