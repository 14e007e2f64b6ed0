#include <torch/extension.h>
template <typename scalar_t> __global__ void total(const scalar_t* x, scalar_t* y, int n) {
  int i = threadIdx.x;
  if (i < n) atomicAdd(y, x[i]);
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::zeros({1}, x.options());
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "total", [&] {
    total<scalar_t><<<1, 64>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  });
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
