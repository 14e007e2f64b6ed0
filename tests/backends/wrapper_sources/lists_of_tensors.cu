#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

std::vector<torch::Tensor> forward(std::vector<torch::Tensor> xs) {
  std::vector<torch::Tensor> out;
  out.reserve(xs.size());
  for (const auto& x : xs) {
    auto y = torch::empty_like(x);
    scale_kernel<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), 3.f, x.numel());
    out.push_back(y);
  }
  auto both = torch::cat({out[0].view({-1}), out[1].view({-1})}, /*dim=*/0);
  auto parts = both.split({3, both.size(0) - 3}, 0);
  auto chunks = torch::chunk(both, 2);
  out.push_back(torch::stack({parts[0].sum(), parts[1].sum(), chunks[0].sum()}));
  return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
