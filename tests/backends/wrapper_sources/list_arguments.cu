#include <torch/extension.h>

__global__ void add(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += x[i]; }
torch::Tensor total(std::vector<torch::Tensor> xs, std::vector<int64_t> shape, const std::string& mode) {
  auto y = torch::zeros(shape, xs[0].options());
  for (auto& x : xs) add<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  if (mode == "mean") y.div_((double)xs.size());
  return y;
}
int64_t count(at::TensorList xs, at::IntArrayRef dims) { return xs.size() * dims.size(); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("total", &total, py::arg("xs"), py::arg("shape"), py::arg("mode") = "sum");
  m.def("count", &count);
}
