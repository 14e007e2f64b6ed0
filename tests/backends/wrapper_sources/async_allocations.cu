#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

torch::Tensor forward(torch::Tensor x) {
  const size_t bytes = x.numel() * sizeof(float);
  float *a = nullptr, *b = nullptr;
  cudaStream_t s = 0;
  TORCH_CHECK(cudaMallocAsync(&a, bytes, s) == cudaSuccess);
  TORCH_CHECK(cudaMalloc((void**)&b, bytes) == cudaSuccess, "no memory");
  cudaMemcpyAsync(a, x.data_ptr(), bytes, cudaMemcpyDeviceToDevice, s);
  scale_kernel<<<4, 64, 0, s>>>(a, b, 5.f, x.numel());
  std::vector<float> host(x.numel());
  cudaMemcpy(host.data(), b, bytes, cudaMemcpyDeviceToHost);
  for (auto& v : host) v += 1;
  auto y = torch::from_blob(host.data(), x.sizes(), torch::kFloat32).clone().to(x.device());
  cudaFreeAsync(a, s);
  cudaFree(b);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
