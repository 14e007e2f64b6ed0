#include <torch/extension.h>

__global__ void add_one(float* x, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) x[i] += 1.f; }
torch::Tensor forward(torch::Tensor x) {
  auto y = x.clone();
  add_one<<<2, 64>>>(y.data_ptr<float>(), y.numel());
  y += 1; y *= 2.0; y -= x; y /= 2.0f;
  y.add_(x, 0.5).mul_(2).clamp_(-5, 5);
  auto z = torch::zeros_like(y);
  z.copy_(y);
  z.fill_(0.25).add_(y);
  y.zero_();
  return -z + 1 - (z > 0).to(torch::kFloat) * 0.5 + (z != z).to(z.scalar_type());
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
