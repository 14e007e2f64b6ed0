#include <torch/extension.h>
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void normalise(const float* x, float* y, float* parts, int n) {
  cg::grid_group grid = cg::this_grid();
  float s = 0;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) s += x[i];
  atomicAdd(&parts[blockIdx.x], s);
  grid.sync();
  float t = 0;
  for (int b = 0; b < gridDim.x; b++) t += parts[b];
  for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[i] / t;
}

__global__ void rotate(const float* x, float* y) {
  __shared__ float s[32];
  cg::cluster_group c = cg::this_cluster();
  s[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
  c.sync();
  y[blockIdx.x * 32 + threadIdx.x] = *c.map_shared_rank(s + threadIdx.x, (c.block_rank() + 1) % c.num_blocks());
  c.sync();
}

__global__ void tile(const __grid_constant__ CUtensorMap map, float* y) {
  __shared__ alignas(128) float s[8][16];
  __shared__ unsigned long long barrier;
  unsigned b = (unsigned)__cvta_generic_to_shared(&barrier), to = (unsigned)__cvta_generic_to_shared(s);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;" ::"r"(b));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(&map), "r"(16), "r"(8), "r"(b) : "memory");
  }
  __syncthreads();
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }" ::"r"(b) : "memory");
  for (int i = threadIdx.x; i < 128; i += 32) y[i] = s[i / 16][i % 16];
}

torch::Tensor normalised(torch::Tensor x) {
  auto y = torch::empty_like(x), parts = torch::zeros({4}, x.options());
  const float* from = x.data_ptr<float>();
  float *to = y.data_ptr<float>(), *p = parts.data_ptr<float>();
  int n = x.numel();
  void* args[] = {&from, &to, &p, &n};
  TORCH_CHECK(cudaLaunchCooperativeKernel((void*)normalise, dim3(4), dim3(64), args, 0, nullptr) == cudaSuccess);
  return y;
}

torch::Tensor rotated(torch::Tensor x, int size) {
  auto y = torch::empty_like(x);
  cudaLaunchConfig_t config = {0};
  config.gridDim = dim3(x.numel() / 32);
  config.blockDim = dim3(32);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = size;
  attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  TORCH_CHECK(cudaLaunchKernelEx(&config, rotate, (const float*)x.data_ptr<float>(), y.data_ptr<float>()) == cudaSuccess);
  return y;
}

torch::Tensor corner(torch::Tensor x) {
  auto y = torch::empty({8, 16}, x.options());
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &status);
  TORCH_CHECK(found && status == cudaDriverEntryPointSuccess);
  CUtensorMap map;
  cuuint64_t dims[] = {(cuuint64_t)x.size(1), (cuuint64_t)x.size(0)}, strides[] = {x.size(1) * sizeof(float)};
  cuuint32_t box[] = {16, 8}, steps[] = {1, 1};
  CUresult done = ((decltype(&cuTensorMapEncodeTiled))found)(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x.data_ptr<float>(), dims, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(done == CUDA_SUCCESS);
  tile<<<1, 32>>>(map, y.data_ptr<float>());
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("normalised", &normalised);
  m.def("rotated", &rotated);
  m.def("corner", &corner);
}
