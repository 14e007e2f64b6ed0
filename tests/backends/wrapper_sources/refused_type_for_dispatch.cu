#include <torch/extension.h>
template <typename scalar_t> __global__ void copy(const scalar_t* x, scalar_t* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.type(), "copy", ([&] { copy<scalar_t><<<1, 64>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel()); }));
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
