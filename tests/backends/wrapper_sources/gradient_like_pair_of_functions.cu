#include <torch/extension.h>
#include <vector>
template <typename scalar_t>
__global__ void fwd(const scalar_t* x, scalar_t* y, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanh(x[i]);
}
template <typename scalar_t>
__global__ void bwd(const scalar_t* g, const scalar_t* y, scalar_t* dx, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dx[i] = g[i] * (scalar_t(1) - y[i] * y[i]);
}
torch::Tensor tanh_forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", ([&] { fwd<scalar_t><<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel()); }));
  return y;
}
std::vector<torch::Tensor> tanh_backward(torch::Tensor g, torch::Tensor y) {
  auto dx = torch::empty_like(g);
  AT_DISPATCH_FLOATING_TYPES(g.scalar_type(), "b", ([&] { bwd<scalar_t><<<(g.numel() + 63) / 64, 64>>>(g.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), dx.data_ptr<scalar_t>(), g.numel()); }));
  return {dx};
}
