#include <torch/extension.h>

template <typename scalar_t>
__global__ void iota(scalar_t* y, int n) { int i = threadIdx.x; if (i < n) y[i] = static_cast<scalar_t>(i * 2); }
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::zeros_like(x);
  AT_DISPATCH_ALL_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "iota", [&] {
    iota<scalar_t><<<1, 32>>>(y.data_ptr<scalar_t>(), y.numel());
  });
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
