#include <torch/extension.h>

__global__ void big_shared(const float* x, float* y, int n) {
  extern __shared__ float tile[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = tile[n - 1 - i];
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  const size_t shared = 64 * 1024;
  cudaFuncSetAttribute(big_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, big_shared);
  int per_sm = 0, least = 0, block = 0, device = 0, sms = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, big_shared, 128, shared);
  cudaOccupancyMaxPotentialBlockSize(&least, &block, big_shared, 0, 0);
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  TORCH_CHECK(per_sm >= 1 && block > 0 && sms > 0 && attributes.maxThreadsPerBlock >= 128);
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  void* args[] = {&in, &out, &n};
  cudaLaunchKernel((void*)big_shared, dim3(1), dim3(128), args, shared, nullptr);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
