#include <torch/extension.h>

#include <cuda_fp16.h>
template <typename scalar_t>
__global__ void gelu_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, size_t n) {
  const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = static_cast<float>(x[i]); y[i] = static_cast<scalar_t>(0.5f * v * (1.f + erff(v * 0.70710678f))); }
}
torch::Tensor forward(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
  auto y = torch::empty_like(x);
  const int threads = 128;
  const int blocks = (x.numel() + threads - 1) / threads;
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "gelu", ([&] {
    gelu_kernel<scalar_t><<<blocks, threads>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  }));
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
