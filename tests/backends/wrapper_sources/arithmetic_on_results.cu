#include <torch/extension.h>

__global__ void square(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i];
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  square<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  auto norm = torch::sqrt(y.sum(-1, /*keepdim=*/true)) + 1e-6;
  auto z = x / norm;
  z = torch::cumsum(z.flip({1}), 1).flip({1});
  z *= 2.0f;
  return (z - 1) * 0.5 + torch::ones_like(z) / 4;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
