// cublasLtMatmul for host wrappers: descriptors here, the product and its epilogue in the runner (backends/libraries/cublas.py).
// Read behind the stand-in's headers where a source includes <cublasLt.h>; it is not part of the precompiled one.
#ifndef KW_CUBLAS_LT
#define KW_CUBLAS_LT
#include <cstring>

enum cublasLtOrder_t { CUBLASLT_ORDER_COL = 0, CUBLASLT_ORDER_ROW = 1 };
enum cublasLtPointerMode_t { CUBLASLT_POINTER_MODE_HOST = 0, CUBLASLT_POINTER_MODE_DEVICE = 1 };
enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_COMPUTE_TYPE = 0, CUBLASLT_MATMUL_DESC_SCALE_TYPE = 1, CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,
  CUBLASLT_MATMUL_DESC_TRANSA = 3, CUBLASLT_MATMUL_DESC_TRANSB = 4, CUBLASLT_MATMUL_DESC_TRANSC = 5,
  CUBLASLT_MATMUL_DESC_FILL_MODE = 6, CUBLASLT_MATMUL_DESC_EPILOGUE = 7, CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
  CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE = 10, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
};
enum cublasLtMatrixLayoutAttribute_t {
  CUBLASLT_MATRIX_LAYOUT_TYPE = 0, CUBLASLT_MATRIX_LAYOUT_ORDER = 1, CUBLASLT_MATRIX_LAYOUT_ROWS = 2,
  CUBLASLT_MATRIX_LAYOUT_COLS = 3, CUBLASLT_MATRIX_LAYOUT_LD = 4, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
};
enum cublasLtEpilogue_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_RELU = 2, CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_RELU_BIAS = 6, CUBLASLT_EPILOGUE_GELU = 32, CUBLASLT_EPILOGUE_GELU_BIAS = 36,
};
enum cublasLtMatmulPreferenceAttributes_t {
  CUBLASLT_MATMUL_PREF_SEARCH_MODE = 0, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
};

struct kw_lt_layout { uint64_t rows, cols; int64_t ld, step = 0; int32_t type, order = 0, count = 1; };
struct kw_lt_desc {
  int32_t compute, scale, mode = 0, ta = 0, tb = 0, tc = 0, bias_type = -1;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct cublasLtMatmulAlgo_t { uint64_t data[8]; };
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};
struct kw_lt_preference { uint64_t workspace = 0; };
typedef kw_cublas* cublasLtHandle_t;
typedef kw_lt_layout* cublasLtMatrixLayout_t;
typedef kw_lt_desc* cublasLtMatmulDesc_t;
typedef kw_lt_preference* cublasLtMatmulPreference_t;

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return cublasCreate(handle); }
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return cublasDestroy(handle); }
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t scale) {
  *out = new kw_lt_desc{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType_t type, uint64_t rows, uint64_t cols, int64_t ld) {
  *out = new kw_lt_layout{rows, cols, ld, 0, type};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = new kw_lt_preference;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { delete d; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t d) { delete d; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t d) { delete d; return CUBLAS_STATUS_SUCCESS; }

namespace kw {
template <class T>
cublasStatus_t lt_set(T& field, const void* from, size_t bytes) {
  if (bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
}  // namespace kw

inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name, const void* from, size_t bytes) {
  switch (name) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return kw::lt_set(d->compute, from, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return kw::lt_set(d->scale, from, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return kw::lt_set(d->mode, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA: return kw::lt_set(d->ta, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return kw::lt_set(d->tb, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSC: return kw::lt_set(d->tc, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return kw::lt_set(d->epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return kw::lt_set(d->bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return kw::lt_set(d->bias_type, from, bytes);
    default: kw::fail_unsupported("an attribute of cublasLtMatmulDesc_t");
  }
}
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t d, cublasLtMatrixLayoutAttribute_t name, const void* from, size_t bytes) {
  switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return kw::lt_set(d->type, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return kw::lt_set(d->order, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return kw::lt_set(d->rows, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return kw::lt_set(d->cols, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD: return kw::lt_set(d->ld, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return kw::lt_set(d->count, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return kw::lt_set(d->step, from, bytes);
    default: kw::fail_unsupported("an attribute of cublasLtMatrixLayout_t");
  }
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t name, const void* from, size_t bytes) {
  return name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? kw::lt_set(p->workspace, from, bytes) : CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int wanted, cublasLtMatmulHeuristicResult_t* results, int* found) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (wanted < 1 || !results || !found) return CUBLAS_STATUS_INVALID_VALUE;
  results[0] = cublasLtMatmulHeuristicResult_t{{}, 0, CUBLAS_STATUS_SUCCESS, 1.f, {}};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

namespace kw {
inline Matrix lt_matrix(const void* address, cublasLtMatrixLayout_t d) { return matrix(address, cudaDataType(d->type), d->ld, d->step); }
}  // namespace kw

inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a, cublasLtMatrixLayout_t at, const void* b,
                                     cublasLtMatrixLayout_t bt, const void* beta, const void* c, cublasLtMatrixLayout_t ct, void* d, cublasLtMatrixLayout_t dt,
                                     const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!desc || !at || !bt || !ct || !dt || !alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
  if (desc->mode != CUBLASLT_POINTER_MODE_HOST) kw::fail_unsupported("cuBLAS scalars in device memory");
  if (desc->tc) kw::fail_unsupported("CUBLASLT_MATMUL_DESC_TRANSC");
  switch (desc->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT: case CUBLASLT_EPILOGUE_RELU: case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS: case CUBLASLT_EPILOGUE_GELU: case CUBLASLT_EPILOGUE_GELU_BIAS: break;
    default: kw::fail_unsupported("an epilogue of cublasLtMatmul");
  }
  auto number = [&](const void* from) {
    if (desc->scale == CUDA_R_64F) return *static_cast<const double*>(from);
    if (desc->scale == CUDA_R_16F) return double(float(*static_cast<const __half*>(from)));
    return double(*static_cast<const float*>(from));
  };
  kw::Matrix m[4] = {kw::lt_matrix(a, at), kw::lt_matrix(b, bt), kw::lt_matrix(c ? c : d, ct), kw::lt_matrix(d, dt)};
  cublasLtMatrixLayout_t layouts[4] = {at, bt, ct, dt};
  int64_t numbers[4 * 7 + 5], n = 0;
  for (int i = 0; i < 4; ++i)
    for (int64_t v : {m[i].place, m[i].leading, m[i].step, m[i].type, int64_t(layouts[i]->rows), int64_t(layouts[i]->cols), int64_t(layouts[i]->order)})
      numbers[n++] = v;
  int64_t bias_type = desc->bias_type < 0 ? m[3].type : kw::matrix(d, cudaDataType(desc->bias_type), 1).type;
  for (int64_t v : {int64_t(desc->ta), int64_t(desc->tb), int64_t(desc->epilogue), kw::place(desc->bias), bias_type}) numbers[n++] = v;
  return kw::blas("cublasLtMatmul", handle, m[3].type, {number(alpha), number(beta), c10::IntArrayRef(numbers, n), int64_t(dt->count)});
}
#endif
