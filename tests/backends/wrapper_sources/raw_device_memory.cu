#include <torch/extension.h>

__global__ void copy(const float* x, float* t, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) t[i] = x[i] * 2; }
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  float* temp = nullptr;
  size_t bytes = x.numel() * sizeof(float);
  cudaMalloc(&temp, bytes);
  cudaMemset(temp, 0, bytes);
  copy<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), temp, x.numel());
  cudaMemcpyAsync(y.data_ptr<float>(), temp, bytes, cudaMemcpyDeviceToDevice, 0);
  std::vector<float> host(x.numel());
  cudaMemcpy(host.data(), temp, bytes, cudaMemcpyDeviceToHost);
  TORCH_CHECK(host.size() == (size_t)x.numel());
  cudaFree(temp);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
