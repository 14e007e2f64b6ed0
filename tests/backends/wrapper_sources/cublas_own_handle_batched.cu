#include <torch/extension.h>
#include <cublas_v2.h>
#include <cuda_fp16.h>
#define CHECK_CUBLAS(call) do { cublasStatus_t s = (call); if (s != CUBLAS_STATUS_SUCCESS) { throw std::runtime_error("cuBLAS failed: " + std::to_string((int)s)); } } while (0)
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

std::vector<torch::Tensor> forward(torch::Tensor a, torch::Tensor b) {
  static cublasHandle_t handle = nullptr;
  if (!handle) CHECK_CUBLAS(cublasCreate(&handle));
  CHECK_CUBLAS(cublasSetStream(handle, 0));
  CHECK_CUBLAS(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH));
  const int batch = a.size(0), m = a.size(1), k = a.size(2), n = b.size(1);
  auto c = torch::zeros({batch, m, n}, a.options());
  float alpha = 1.f, beta = 1.f;
  CHECK_CUBLAS(cublasSgemmStridedBatched(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &alpha, b.data_ptr<float>(), k, (long long)n * k,
                                         a.data_ptr<float>(), k, (long long)m * k, &beta, c.data_ptr<float>(), n, (long long)m * n, batch));
  auto ah = a[0].to(torch::kHalf).contiguous(), bh = b[0].to(torch::kHalf).contiguous();
  auto ch = torch::empty({m, n}, ah.options());
  beta = 0.f;
  CHECK_CUBLAS(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &alpha, bh.data_ptr(), CUDA_R_16F, k, ah.data_ptr(), CUDA_R_16F, k,
                            &beta, ch.data_ptr(), CUDA_R_16F, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP));
  auto v = torch::empty({m}, a.options());
  CHECK_CUBLAS(cublasSgemv(handle, CUBLAS_OP_T, k, m, &alpha, a.data_ptr<float>(), k, b.data_ptr<float>(), 1, &beta, v.data_ptr<float>(), 1));
  float norm = 0;
  CHECK_CUBLAS(cublasSnrm2(handle, m, v.data_ptr<float>(), 1, &norm));
  scale_kernel<<<1, 64>>>(v.data_ptr<float>(), v.data_ptr<float>(), 1.f / norm, m);
  return {c, ch, v};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
