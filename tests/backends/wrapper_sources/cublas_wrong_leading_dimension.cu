#include <torch/extension.h>
#include <cublas_v2.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

int64_t forward(torch::Tensor a) {
  cublasHandle_t handle;
  cublasCreate(&handle);
  const float one = 1.f, zero = 0.f;
  auto c = torch::zeros({4, 4}, a.options());
  scale_kernel<<<1, 16>>>(a.data_ptr<float>(), c.data_ptr<float>(), 1.f, 16);
  auto status = cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a.data_ptr<float>(), 2, a.data_ptr<float>(), 4, &zero, c.data_ptr<float>(), 4);
  cublasDestroy(handle);
  return (int64_t)status;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
