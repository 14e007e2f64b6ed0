#include <torch/extension.h>

#define HD __host__ __device__ __forceinline__
#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)
HD int ceil_of(int a, int b) { return (a + b - 1) / b; }
extern "C" {
__global__ void half_of(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] / ceil_of(3, 2);
}
}
extern "C" __global__ void plus_one(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += 1; }
torch::Tensor forward(torch::Tensor x) {
  CHECK_INPUT(x);
  auto y = torch::empty_like(x);
  half_of<<<ceil_of(x.numel(), 64), 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  plus_one<<<ceil_of(x.numel(), 64), 64>>>(y.data_ptr<float>(), x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
