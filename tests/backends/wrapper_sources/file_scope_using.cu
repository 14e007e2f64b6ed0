#include <torch/torch.h>
#include <torch/types.h>
#include <ATen/ATen.h>
#include <pybind11/pybind11.h>
#include <torch/python.h>
using torch::Tensor;
using at::ScalarType;
namespace py = pybind11;
using scalar_list = std::vector<float>;
typedef std::vector<Tensor> TensorVec;
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

Tensor forward(Tensor x) {
  scalar_list factors = {1.f, 2.f};
  TensorVec out;
  for (float f : factors) {
    Tensor y = at::empty(x.sizes(), x.options());
    scale_kernel<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), f, x.numel());
    out.emplace_back(y);
  }
  return at::stack(out, 0);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
