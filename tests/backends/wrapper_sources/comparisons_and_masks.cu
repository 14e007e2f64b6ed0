#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

torch::Tensor forward(torch::Tensor x) {
  auto mask = (x > 0) & (x <= 1.0) | x.eq(0);
  auto y = torch::where(mask, x, torch::zeros_like(x));
  auto z = x.masked_fill(~mask, -1).masked_select(mask).sum();
  scale_kernel<<<1, 128>>>(y.data_ptr<float>(), y.data_ptr<float>(), 2.f, y.numel());
  auto [top, at] = y.view({-1}).topk(2);
  auto [sorted, order] = torch::sort(x.view({-1}), 0, true);
  auto biggest = std::get<0>(x.max(1, /*keepdim=*/true));
  return torch::cat({y.view({-1}), z.view({1}), top, at.to(y.scalar_type()), sorted.slice(0, 0, 2), order.slice(0, 0, 1).to(torch::kFloat), biggest.view({-1})});
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
