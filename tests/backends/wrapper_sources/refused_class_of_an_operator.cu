#include <torch/extension.h>

__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
struct Plan : torch::CustomClassHolder {
  int64_t times = 2;
};
TORCH_LIBRARY(kw_refused_class, m) { m.class_<Plan>("Plan").def(torch::init<>()); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}
