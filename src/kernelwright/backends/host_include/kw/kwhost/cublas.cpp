// cuBLAS: checks and handles. The runner computes, on the addresses passed to it.
#include "gpu.h"
#include "impl.h"

namespace kw {

static const Value* forward(const char* name, cublasHandle_t handle, int64_t type, std::initializer_list<Arg> args) {
  if (gpu) fail_unsupported(name);  // the builder hands such code to nvcc
  if (handle->mode == CUBLAS_POINTER_MODE_DEVICE) fail_unsupported("cuBLAS scalars in device memory");
  std::string full = std::string("cublas:") + name;
  Value values[24];
  int count = 0, n = 0;
  values[count++] = Arg(type).value;
  for (const Arg& arg : args) values[count++] = arg.value;
  return call(full.c_str(), values, count, &n);
}
cublasStatus_t blas(const char* name, cublasHandle_t handle, int64_t type, std::initializer_list<Arg> args) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  return static_cast<cublasStatus_t>(forward(name, handle, type, args)[0].i);
}
double blas_number(const char* name, cublasHandle_t handle, int64_t type, std::initializer_list<Arg> args) {
  return forward(name, handle, type, args)[0].d;
}
cublasStatus_t gemm(const char* name, cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n,
                    int64_t k, double alpha, double beta, Matrix a, Matrix b, Matrix c, int64_t count) {
  int64_t matrices[12] = {a.place, a.leading, a.step, a.type, b.place, b.leading, b.step, b.type, c.place, c.leading, c.step, c.type};
  c10::IntArrayRef list(matrices, 12);
  return blas(name, handle, c.type, {int64_t(ta), int64_t(tb), m, n, k, alpha, beta, list, count});
}
Matrix matrix(const void* address, cudaDataType type, int64_t leading, int64_t step) {
  c10::ScalarType known = c10::kFloat;
  switch (type) {
    case CUDA_R_32F: break;
    case CUDA_R_64F: known = c10::kDouble; break;
    case CUDA_R_16F: known = c10::kHalf; break;
    case CUDA_R_16BF: known = c10::kBFloat16; break;
    default: fail_unsupported("a cuBLAS matrix of integers");
  }
  return {place(address), leading, step, int64_t(known)};
}
double scale(const void* address, cublasComputeType_t type) {
  if (type == CUBLAS_COMPUTE_64F) return *static_cast<const double*>(address);
  if (type == CUBLAS_COMPUTE_16F || type == CUBLAS_COMPUTE_16F_PEDANTIC) return float(*static_cast<const __half*>(address));
  return *static_cast<const float*>(address);
}

}  // namespace kw

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new kw_cublas;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}
const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    default: return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}
cublasHandle_t at::cuda::getCurrentCUDABlasHandle() {
  static kw_cublas handle;
  return &handle;
}
