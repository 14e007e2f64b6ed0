#include <torch/extension.h>
#include <ATen/Dispatch_v2.h>
template <typename T> __global__ void plus_one(T* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] + T(1); }
torch::Tensor forward(torch::Tensor x) {
  auto y = x.clone();
  AT_DISPATCH_V2(y.scalar_type(), "plus_one", AT_WRAP([&] {
    plus_one<scalar_t><<<1, 64>>>(y.data_ptr<scalar_t>(), (int)y.numel());
  }), AT_EXPAND(AT_FLOATING_TYPES), AT_EXPAND(AT_INTEGRAL_TYPES));
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
