#include <torch/extension.h>
#include <cublasLt.h>
#include <stdexcept>
#define CHECK(call) do { cublasStatus_t s = (call); if (s != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cublasLt: " + std::to_string((int)s)); } while (0)
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}
static cudaDataType_t type_of(const torch::Tensor& t) {
  return t.scalar_type() == torch::kHalf ? CUDA_R_16F : t.scalar_type() == torch::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}
// y = epilogue(x w^T + bias) for row-major x (m, k) and w (n, k): column-major, that is y^T = w x^T.
torch::Tensor linear(torch::Tensor x, torch::Tensor w, torch::Tensor bias, int64_t epilogue) {
  const int64_t m = x.size(0), k = x.size(1), n = w.size(0);
  auto y = torch::empty({m, n}, x.options());
  cublasLtHandle_t handle;
  CHECK(cublasLtCreate(&handle));
  cublasLtMatmulDesc_t desc;
  CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  cublasOperation_t transposed = CUBLAS_OP_T;
  CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
  cublasLtEpilogue_t wanted = static_cast<cublasLtEpilogue_t>(epilogue);
  CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &wanted, sizeof(wanted)));
  void* place = bias.data_ptr();
  CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &place, sizeof(place)));
  cublasLtMatrixLayout_t a, b, c;
  CHECK(cublasLtMatrixLayoutCreate(&a, type_of(w), k, n, k));
  CHECK(cublasLtMatrixLayoutCreate(&b, type_of(x), k, m, k));
  CHECK(cublasLtMatrixLayoutCreate(&c, type_of(y), n, m, n));
  cublasLtMatmulPreference_t preference;
  CHECK(cublasLtMatmulPreferenceCreate(&preference));
  size_t room = 1 << 20;
  CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof(room)));
  cublasLtMatmulHeuristicResult_t best;
  int found = 0;
  CHECK(cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, c, c, preference, 1, &best, &found));
  TORCH_CHECK(found == 1, "no algorithm");
  float alpha = 1.f, beta = 0.f;
  CHECK(cublasLtMatmul(handle, desc, &alpha, w.data_ptr(), a, x.data_ptr(), b, &beta, y.data_ptr(), c, y.data_ptr(), c, &best.algo, nullptr, 0, 0));
  cublasLtMatmulPreferenceDestroy(preference);
  for (auto layout : {a, b, c}) cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(desc);
  cublasLtDestroy(handle);
  return y;
}
// Row-major layouts, batches, and a sum with what is there.
torch::Tensor batched(torch::Tensor x, torch::Tensor w, torch::Tensor y) {
  cublasLtHandle_t handle;
  CHECK(cublasLtCreate(&handle));
  cublasLtMatmulDesc_t desc;
  CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  cublasLtMatrixLayout_t layouts[3];
  int k = 0;
  for (auto& t : {x, w, y}) {
    CHECK(cublasLtMatrixLayoutCreate(&layouts[k], CUDA_R_32F, t.size(1), t.size(2), t.size(2)));
    cublasLtOrder_t order = CUBLASLT_ORDER_ROW;
    int32_t count = t.size(0);
    int64_t step = t.size(1) * t.size(2);
    CHECK(cublasLtMatrixLayoutSetAttribute(layouts[k], CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof(order)));
    CHECK(cublasLtMatrixLayoutSetAttribute(layouts[k], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
    CHECK(cublasLtMatrixLayoutSetAttribute(layouts[k++], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step)));
  }
  float alpha = 2.f, beta = 1.f;
  CHECK(cublasLtMatmul(handle, desc, &alpha, x.data_ptr(), layouts[0], w.data_ptr(), layouts[1], &beta, y.data_ptr(), layouts[2], y.data_ptr(), layouts[2],
                       nullptr, nullptr, 0, 0));
  scale_kernel<<<1, 128>>>(y.data_ptr<float>(), y.data_ptr<float>(), 0.5f, y.numel());
  return y;
}
int64_t refused(torch::Tensor x) {
  cublasLtHandle_t handle;
  cublasLtCreate(&handle);
  cublasLtMatmulDesc_t desc;
  cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayout_t square, other;
  cublasLtMatrixLayoutCreate(&square, CUDA_R_32F, 4, 4, 4);
  cublasLtMatrixLayoutCreate(&other, CUDA_R_32F, 2, 4, 2);
  float one = 1.f, zero = 0.f;
  return cublasLtMatmul(handle, desc, &one, x.data_ptr(), square, x.data_ptr(), other, &zero, x.data_ptr(), square, x.data_ptr(), square, nullptr, nullptr, 0, 0);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("linear", &linear);
  m.def("batched", &batched);
  m.def("refused", &refused);
}
