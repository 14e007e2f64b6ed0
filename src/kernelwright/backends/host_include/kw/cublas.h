// The part of cuBLAS that host wrappers call: handles here, the arithmetic in the runner, recorded as library work.
#pragma once

#include "cuda.h"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16,
};
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 };
enum cublasMath_t {
  CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3,
};
enum cublasAtomicsMode_t { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99, CUBLAS_GEMM_DFALT_TENSOR_OP = 99 };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_16F_PEDANTIC = 65, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_32F_FAST_16F = 74, CUBLAS_COMPUTE_32F_FAST_16BF = 75, CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
  CUBLAS_COMPUTE_64F = 70,
};
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_8I = 3, CUDA_R_16BF = 14 };
typedef cudaDataType_t cudaDataType;
struct kw_cublas {
  cudaStream_t stream = nullptr;
  cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};
typedef kw_cublas* cublasHandle_t;

namespace kw {
struct Matrix {
  int64_t place;
  int64_t leading;
  int64_t step;  // between the matrices of a batch
  int64_t type;  // c10::ScalarType
};
template <class T>
constexpr int64_t number() {
  return std::is_same_v<T, float> ? int64_t(c10::kFloat) : std::is_same_v<T, double> ? int64_t(c10::kDouble) : int64_t(c10::kHalf);
}
inline int64_t place(const void* address) { return reinterpret_cast<int64_t>(address); }
template <class T>
Matrix matrix(const T* address, int64_t leading, int64_t step = 0) { return {place(address), leading, step, number<T>()}; }
Matrix matrix(const void* address, cudaDataType type, int64_t leading, int64_t step = 0);
cublasStatus_t blas(const char* name, cublasHandle_t handle, int64_t type, std::initializer_list<Arg> args);
cublasStatus_t gemm(const char* name, cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n,
                    int64_t k, double alpha, double beta, Matrix a, Matrix b, Matrix c, int64_t count);
double blas_number(const char* name, cublasHandle_t handle, int64_t type, std::initializer_list<Arg> args);
template <class T>
cublasStatus_t blas_result(const char* name, cublasHandle_t handle, int64_t type, std::initializer_list<Arg> args, T* result) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  T value = static_cast<T>(blas_number(name, handle, type, args));
  if (handle->mode == CUBLAS_POINTER_MODE_DEVICE) cudaMemcpy(result, &value, sizeof value, cudaMemcpyHostToDevice);
  else *result = value;
  return CUBLAS_STATUS_SUCCESS;
}
double scale(const void* address, cublasComputeType_t type);
}  // namespace kw

cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
#define cublasCreate_v2 cublasCreate
#define cublasDestroy_v2 cublasDestroy
#define cublasSetStream_v2 cublasSetStream
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = handle->math;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {
  *version = 130000;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t status);
inline const char* cublasGetStatusName(cublasStatus_t status) { return cublasGetStatusString(status); }

#define KW_BLAS_HEAD cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb
inline cublasStatus_t cublasSgemm(KW_BLAS_HEAD, int m, int n, int k, const float* alpha, const float* a, int lda,
                                   const float* b, int ldb, const float* beta, float* c, int ldc) {
  return kw::gemm("cublasSgemm", handle, ta, tb, m, n, k, *alpha, *beta, kw::matrix(a, lda), kw::matrix(b, ldb), kw::matrix(c, ldc), 1);
}
inline cublasStatus_t cublasSgemmStridedBatched(KW_BLAS_HEAD, int m, int n, int k, const float* alpha, const float* a, int lda,
                                                 long long sa, const float* b, int ldb, long long sb, const float* beta,
                                                 float* c, int ldc, long long sc, int count) {
  return kw::gemm("cublasSgemmStridedBatched", handle, ta, tb, m, n, k, *alpha, *beta, kw::matrix(a, lda, sa), kw::matrix(b, ldb, sb),
                  kw::matrix(c, ldc, sc), count);
}
inline cublasStatus_t cublasDgemm(KW_BLAS_HEAD, int m, int n, int k, const double* alpha, const double* a, int lda,
                                   const double* b, int ldb, const double* beta, double* c, int ldc) {
  return kw::gemm("cublasDgemm", handle, ta, tb, m, n, k, *alpha, *beta, kw::matrix(a, lda), kw::matrix(b, ldb), kw::matrix(c, ldc), 1);
}
inline cublasStatus_t cublasDgemmStridedBatched(KW_BLAS_HEAD, int m, int n, int k, const double* alpha, const double* a, int lda,
                                                 long long sa, const double* b, int ldb, long long sb, const double* beta,
                                                 double* c, int ldc, long long sc, int count) {
  return kw::gemm("cublasDgemmStridedBatched", handle, ta, tb, m, n, k, *alpha, *beta, kw::matrix(a, lda, sa), kw::matrix(b, ldb, sb),
                  kw::matrix(c, ldc, sc), count);
}
inline cublasStatus_t cublasHgemm(KW_BLAS_HEAD, int m, int n, int k, const __half* alpha, const __half* a, int lda,
                                   const __half* b, int ldb, const __half* beta, __half* c, int ldc) {
  return kw::gemm("cublasHgemm", handle, ta, tb, m, n, k, *alpha, *beta, kw::matrix(a, lda), kw::matrix(b, ldb), kw::matrix(c, ldc), 1);
}
inline cublasStatus_t cublasHgemmStridedBatched(KW_BLAS_HEAD, int m, int n, int k, const __half* alpha, const __half* a, int lda,
                                                 long long sa, const __half* b, int ldb, long long sb, const __half* beta,
                                                 __half* c, int ldc, long long sc, int count) {
  return kw::gemm("cublasHgemmStridedBatched", handle, ta, tb, m, n, k, *alpha, *beta, kw::matrix(a, lda, sa), kw::matrix(b, ldb, sb),
                  kw::matrix(c, ldc, sc), count);
}
inline cublasStatus_t cublasGemmEx(KW_BLAS_HEAD, int m, int n, int k, const void* alpha, const void* a, cudaDataType at, int lda,
                                   const void* b, cudaDataType bt, int ldb, const void* beta, void* c, cudaDataType ct,
                                   int ldc, cublasComputeType_t compute, cublasGemmAlgo_t) {
  return kw::gemm("cublasGemmEx", handle, ta, tb, m, n, k, kw::scale(alpha, compute), kw::scale(beta, compute), kw::matrix(a, at, lda),
                  kw::matrix(b, bt, ldb), kw::matrix(c, ct, ldc), 1);
}
inline cublasStatus_t cublasGemmStridedBatchedEx(KW_BLAS_HEAD, int m, int n, int k, const void* alpha, const void* a, cudaDataType at,
                                                 int lda, long long sa, const void* b, cudaDataType bt, int ldb, long long sb,
                                                 const void* beta, void* c, cudaDataType ct, int ldc, long long sc, int count,
                                                 cublasComputeType_t compute, cublasGemmAlgo_t) {
  return kw::gemm("cublasGemmStridedBatchedEx", handle, ta, tb, m, n, k, kw::scale(alpha, compute), kw::scale(beta, compute),
                  kw::matrix(a, at, lda, sa), kw::matrix(b, bt, ldb, sb), kw::matrix(c, ct, ldc, sc), count);
}
inline cublasStatus_t cublasSgemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const float* alpha, const float* a,
                                   int lda, const float* x, int incx, const float* beta, float* y, int incy) {
  return kw::blas("cublasSgemv", handle, kw::number<float>(), {op, m, n, *alpha, *beta, kw::place(a), lda, kw::place(x), incx, kw::place(y), incy});
}
inline cublasStatus_t cublasSger(cublasHandle_t handle, int m, int n, const float* alpha, const float* x, int incx, const float* y, int incy,
                                  float* a, int lda) {
  return kw::blas("cublasSger", handle, kw::number<float>(), {m, n, *alpha, kw::place(x), incx, kw::place(y), incy, kw::place(a), lda});
}
inline cublasStatus_t cublasSgeam(KW_BLAS_HEAD, int m, int n, const float* alpha, const float* a, int lda, const float* beta,
                                   const float* b, int ldb, float* c, int ldc) {
  return kw::blas("cublasSgeam", handle, kw::number<float>(),
                  {ta, tb, m, n, *alpha, kw::place(a), lda, *beta, kw::place(b), ldb, kw::place(c), ldc});
}
inline cublasStatus_t cublasSaxpy(cublasHandle_t handle, int n, const float* alpha, const float* x, int incx, float* y, int incy) {
  return kw::blas("cublasSaxpy", handle, kw::number<float>(), {n, *alpha, kw::place(x), incx, kw::place(y), incy});
}
inline cublasStatus_t cublasSscal(cublasHandle_t handle, int n, const float* alpha, float* x, int incx) {
  return kw::blas("cublasSscal", handle, kw::number<float>(), {n, *alpha, kw::place(x), incx});
}
inline cublasStatus_t cublasScopy(cublasHandle_t handle, int n, const float* x, int incx, float* y, int incy) {
  return kw::blas("cublasScopy", handle, kw::number<float>(), {n, kw::place(x), incx, kw::place(y), incy});
}
inline cublasStatus_t cublasSdot(cublasHandle_t handle, int n, const float* x, int incx, const float* y, int incy, float* result) {
  return kw::blas_result("cublasSdot", handle, kw::number<float>(), {n, kw::place(x), incx, kw::place(y), incy}, result);
}
inline cublasStatus_t cublasSnrm2(cublasHandle_t handle, int n, const float* x, int incx, float* result) {
  return kw::blas_result("cublasSnrm2", handle, kw::number<float>(), {n, kw::place(x), incx}, result);
}
inline cublasStatus_t cublasSasum(cublasHandle_t handle, int n, const float* x, int incx, float* result) {
  return kw::blas_result("cublasSasum", handle, kw::number<float>(), {n, kw::place(x), incx}, result);
}
inline cublasStatus_t cublasDgemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const double* alpha, const double* a,
                                   int lda, const double* x, int incx, const double* beta, double* y, int incy) {
  return kw::blas("cublasDgemv", handle, kw::number<double>(), {op, m, n, *alpha, *beta, kw::place(a), lda, kw::place(x), incx, kw::place(y), incy});
}
inline cublasStatus_t cublasDger(cublasHandle_t handle, int m, int n, const double* alpha, const double* x, int incx, const double* y, int incy,
                                  double* a, int lda) {
  return kw::blas("cublasDger", handle, kw::number<double>(), {m, n, *alpha, kw::place(x), incx, kw::place(y), incy, kw::place(a), lda});
}
inline cublasStatus_t cublasDgeam(KW_BLAS_HEAD, int m, int n, const double* alpha, const double* a, int lda, const double* beta,
                                   const double* b, int ldb, double* c, int ldc) {
  return kw::blas("cublasDgeam", handle, kw::number<double>(),
                  {ta, tb, m, n, *alpha, kw::place(a), lda, *beta, kw::place(b), ldb, kw::place(c), ldc});
}
inline cublasStatus_t cublasDaxpy(cublasHandle_t handle, int n, const double* alpha, const double* x, int incx, double* y, int incy) {
  return kw::blas("cublasDaxpy", handle, kw::number<double>(), {n, *alpha, kw::place(x), incx, kw::place(y), incy});
}
inline cublasStatus_t cublasDscal(cublasHandle_t handle, int n, const double* alpha, double* x, int incx) {
  return kw::blas("cublasDscal", handle, kw::number<double>(), {n, *alpha, kw::place(x), incx});
}
inline cublasStatus_t cublasDcopy(cublasHandle_t handle, int n, const double* x, int incx, double* y, int incy) {
  return kw::blas("cublasDcopy", handle, kw::number<double>(), {n, kw::place(x), incx, kw::place(y), incy});
}
inline cublasStatus_t cublasDdot(cublasHandle_t handle, int n, const double* x, int incx, const double* y, int incy, double* result) {
  return kw::blas_result("cublasDdot", handle, kw::number<double>(), {n, kw::place(x), incx, kw::place(y), incy}, result);
}
inline cublasStatus_t cublasDnrm2(cublasHandle_t handle, int n, const double* x, int incx, double* result) {
  return kw::blas_result("cublasDnrm2", handle, kw::number<double>(), {n, kw::place(x), incx}, result);
}
inline cublasStatus_t cublasDasum(cublasHandle_t handle, int n, const double* x, int incx, double* result) {
  return kw::blas_result("cublasDasum", handle, kw::number<double>(), {n, kw::place(x), incx}, result);
}
#undef KW_BLAS_HEAD

namespace at::cuda {
cublasHandle_t getCurrentCUDABlasHandle();
}
#define TORCH_CUDABLAS_CHECK(expression)                                                                       \
  do {                                                                                                         \
    cublasStatus_t kw_status = (expression);                                                                   \
    TORCH_CHECK(kw_status == CUBLAS_STATUS_SUCCESS, "CUDA error: ", cublasGetStatusString(kw_status), " when calling `" #expression "`"); \
  } while (0)
