#include <torch/extension.h>

__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
torch::Tensor forward(torch::Tensor x, int times) {
  auto y = torch::empty_like(x);
  twice<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
TORCH_LIBRARY(kw_refused_type, m) { m.def("forward", &forward); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}
