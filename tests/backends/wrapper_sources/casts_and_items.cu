#include <torch/extension.h>

__global__ void twice(const at::Half* x, at::Half* y, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] = static_cast<at::Half>(static_cast<float>(x[i]) * 2.0f);
}
std::tuple<torch::Tensor, double, int64_t, bool> forward(torch::Tensor x) {
  auto h = x.to(torch::kHalf);
  auto y = torch::empty(h.sizes(), h.options());
  twice<<<1, 64>>>(h.data_ptr<at::Half>(), y.data_ptr<at::Half>(), h.numel());
  auto f = y.to(x.device(), x.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  auto g = f.to(torch::TensorOptions().dtype(torch::kFloat64)).to(x.dtype());
  double total = g.sum().item<double>();
  int64_t where = g.argmax().item<int64_t>();
  bool any = (g > 100).any().item<bool>();
  return std::make_tuple(g.to(torch::kCUDA), total + g.max().item().toDouble() * 0, where, any);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
