#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)
#define CHECK_FLOAT(x) TORCH_CHECK(x.dtype() == torch::kFloat32, #x " must be float32, not ", x.dtype())
torch::Tensor forward(torch::Tensor x) {
  CHECK_INPUT(x);
  CHECK_FLOAT(x);
  TORCH_CHECK_EQ(x.dim(), 1);
  auto y = torch::empty_like(x);
  scale_kernel<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), 1.f, x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
