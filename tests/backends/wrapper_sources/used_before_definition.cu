#include <torch/extension.h>

template <typename T> __global__ void later(const T* x, T* y, int n);
__global__ void also_later(float* y, int n);
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  later<float><<<(x.numel() + 31) / 32, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  also_later<<<(x.numel() + 31) / 32, 32>>>(y.data_ptr<float>(), x.numel());
  return y;
}
template <typename T>
__global__ void later(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + T(1);
}
__global__ void also_later(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] *= 3.f;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
