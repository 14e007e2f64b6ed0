// cuDNN's computing calls: arguments that the documentation forbids return its status, other calls go to the runner.
#ifndef KW_CUDNN_CALLS
#define KW_CUDNN_CALLS

enum cudnnConvolutionFwdAlgo_t {
  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM = 0, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1,
  CUDNN_CONVOLUTION_FWD_ALGO_GEMM = 2, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT = 3, CUDNN_CONVOLUTION_FWD_ALGO_FFT = 4,
  CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING = 5, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD = 6,
  CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED = 7, CUDNN_CONVOLUTION_FWD_ALGO_COUNT = 8,
};
struct cudnnConvolutionFwdAlgoPerf_t {
  cudnnConvolutionFwdAlgo_t algo;
  cudnnStatus_t status;
  float time;
  size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
  int reserved[3];
};
enum cudnnSoftmaxAlgorithm_t { CUDNN_SOFTMAX_FAST = 0, CUDNN_SOFTMAX_ACCURATE = 1, CUDNN_SOFTMAX_LOG = 2 };
enum cudnnSoftmaxMode_t { CUDNN_SOFTMAX_MODE_INSTANCE = 0, CUDNN_SOFTMAX_MODE_CHANNEL = 1 };
enum cudnnBatchNormMode_t {
  CUDNN_BATCHNORM_PER_ACTIVATION = 0, CUDNN_BATCHNORM_SPATIAL = 1, CUDNN_BATCHNORM_SPATIAL_PERSISTENT = 2,
};

namespace kw {
using Numbers = std::vector<int64_t>;
// One tensor as the runner reads it: address, c10::ScalarType, sizes, strides.
inline Numbers dnn_tensor(const void* address, const cudnnTensorStruct* d) {
  c10::ScalarType type = d->type == CUDNN_DATA_DOUBLE ? c10::kDouble : d->type == CUDNN_DATA_HALF ? c10::kHalf
                         : d->type == CUDNN_DATA_BFLOAT16 ? c10::kBFloat16 : c10::kFloat;
  Numbers packed{place(address), int64_t(type)};
  packed.insert(packed.end(), d->size, d->size + d->rank);
  packed.insert(packed.end(), d->stride, d->stride + d->rank);
  return packed;
}
// Carries a call out: choices and factors of the routine, then its tensors with the result last.
inline cudnnStatus_t dnn(const char* name, const Numbers& choices, const std::vector<double>& factors, const std::vector<Numbers>& tensors) {
  std::string full = std::string("cudnn:") + name;
  std::vector<Value> values{Arg(choices).value, Arg(factors).value};
  for (const Numbers& tensor : tensors) values.push_back(Arg(tensor).value);
  int count = 0;
  return static_cast<cudnnStatus_t>(call(full.c_str(), values.data(), int(values.size()), &count)[0].i);
}
// Factors are double for tensors of double, float for all others.
inline double dnn_factor(const void* from, cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE ? *static_cast<const double*>(from) : double(*static_cast<const float*>(from));
}
inline bool dnn_same_sizes(const cudnnTensorStruct* a, const cudnnTensorStruct* b) {
  return a->rank == b->rank && std::equal(a->size, a->size + a->rank, b->size);
}
inline bool dnn_same(const cudnnTensorStruct* a, const cudnnTensorStruct* b) { return a->type == b->type && dnn_same_sizes(a, b); }
inline bool dnn_same_strides(const cudnnTensorStruct* a, const cudnnTensorStruct* b) { return std::equal(a->stride, a->stride + a->rank, b->stride); }
inline bool dnn_ready(std::initializer_list<const cudnnTensorStruct*> descriptors) {
  for (const cudnnTensorStruct* d : descriptors)
    if (!d || !d->rank) return false;
  return true;
}
inline bool dnn_broadcasts(const cudnnTensorStruct* from, const cudnnTensorStruct* to) {
  if (from->rank != to->rank) return false;
  for (int i = 0; i < to->rank; ++i)
    if (from->size[i] != 1 && from->size[i] != to->size[i]) return false;
  return true;
}
// The type that statistics, factors and sums have for tensors of a type.
inline cudnnDataType_t dnn_wide(cudnnDataType_t type) { return type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT; }
inline bool dnn_overlap(const void* a, cudnnTensorDescriptor_t at, const void* b, cudnnTensorDescriptor_t bt) {
  size_t a_bytes = 0, b_bytes = 0;
  cudnnGetTensorSizeInBytes(at, &a_bytes);
  cudnnGetTensorSizeInBytes(bt, &b_bytes);
  return place(a) < place(b) + int64_t(b_bytes) && place(b) < place(a) + int64_t(a_bytes);
}

// The sizes of a convolution's result, or why there is none.
inline cudnnStatus_t dnn_convolved(cudnnConvolutionDescriptor_t c, const cudnnTensorStruct* x, const cudnnTensorStruct* w, int* sizes) {
  if (!c || !c->rank || !dnn_ready({x, w}) || x->type != w->type || x->rank != w->rank || x->rank != c->rank + 2) return CUDNN_STATUS_BAD_PARAM;
  if (int64_t(w->size[1]) * c->groups != x->size[1] || w->size[0] % c->groups) return CUDNN_STATUS_BAD_PARAM;
  sizes[0] = x->size[0];
  sizes[1] = w->size[0];
  for (int i = 0; i < c->rank; ++i) {
    int64_t room = int64_t(x->size[i + 2]) + 2 * int64_t(c->pad[i]) - (int64_t(w->size[i + 2] - 1) * c->dilation[i] + 1);
    if (room < 0) return CUDNN_STATUS_BAD_PARAM;
    sizes[i + 2] = int(room / c->stride[i]) + 1;
  }
  return CUDNN_STATUS_SUCCESS;
}
// The documented limits of each algorithm; DIRECT is declared in cuDNN and implemented nowhere.
inline bool dnn_algorithm_fits(cudnnConvolutionFwdAlgo_t algorithm, cudnnConvolutionDescriptor_t c, const cudnnTensorStruct* w) {
  bool steps = true, dense = true, wider = true;
  for (int i = 0; i < c->rank; ++i) {
    steps &= c->stride[i] == 1;
    dense &= c->dilation[i] == 1;
    wider &= w->size[i + 2] > c->pad[i];
  }
  const int* window = w->size + 2;
  bool square = c->rank == 2 && window[0] == window[1];
  switch (algorithm) {
    case CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM: case CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM: return true;
    case CUDNN_CONVOLUTION_FWD_ALGO_GEMM: return c->rank == 2 && dense;
    case CUDNN_CONVOLUTION_FWD_ALGO_FFT: return c->rank == 2 && steps && dense && wider;
    case CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING: return steps && dense && wider;
    case CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD: return square && window[0] == 3 && steps && dense;
    case CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED: return square && (window[0] == 3 || window[0] == 5) && steps && dense;
    default: return false;
  }
}
inline cudnnStatus_t dnn_convolution_status(cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c,
                                            cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm) {
  cudnnTensorStruct made;
  if (!handle || !dnn_ready({y}) || algorithm < 0 || algorithm >= CUDNN_CONVOLUTION_FWD_ALGO_COUNT) return CUDNN_STATUS_BAD_PARAM;
  cudnnStatus_t status = dnn_convolved(c, x, w, made.size);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  made.rank = x->rank;
  made.type = x->type;
  if (!dnn_same(&made, y)) return CUDNN_STATUS_BAD_PARAM;
  bool wide = c->compute == dnn_wide(x->type) || (x->type == CUDNN_DATA_HALF && c->compute == CUDNN_DATA_HALF);
  if (!wide || c->rank < 2 || c->rank > 3) return CUDNN_STATUS_NOT_SUPPORTED;
  return dnn_algorithm_fits(algorithm, c, w) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}
inline Numbers dnn_choices(cudnnConvolutionDescriptor_t c) {
  Numbers all{c->mode, c->groups};
  for (const int* field : {c->pad, c->stride, c->dilation}) all.insert(all.end(), field, field + c->rank);
  return all;
}
inline cudnnStatus_t dnn_one_algorithm(cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c,
                                       cudnnTensorDescriptor_t y, int wanted, int* found, cudnnConvolutionFwdAlgoPerf_t* results) {
  if (wanted < 1 || !found || !results) return CUDNN_STATUS_BAD_PARAM;
  cudnnStatus_t status = dnn_convolution_status(handle, x, w, c, y, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  results[0] = {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_STATUS_SUCCESS, -1.f, 0, CUDNN_DETERMINISTIC, c->math, {}};
  *found = 1;
  return CUDNN_STATUS_SUCCESS;
}
inline int dnn_pooled(cudnnPoolingDescriptor_t p, const cudnnTensorStruct* x, int i) {
  int64_t room = int64_t(x->size[i + 2]) + 2 * int64_t(p->pad[i]) - p->window[i];
  return room < 0 ? 0 : int(room / p->stride[i]) + 1;
}
}  // namespace kw

// Questions about a convolution.
inline cudnnStatus_t cudnnGetConvolutionNdForwardOutputDim(cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, int rank, int sizes[]) {
  int made[CUDNN_DIM_MAX];
  if (!sizes || !x || rank < x->rank) return CUDNN_STATUS_BAD_PARAM;
  cudnnStatus_t status = kw::dnn_convolved(c, x, w, made);
  if (status == CUDNN_STATUS_SUCCESS) std::copy(made, made + x->rank, sizes);
  return status;
}
inline cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, int* n, int* channels, int* h,
                                                           int* width) {
  int made[4];
  if (kw::any_null({x, n, channels, h, width}) || x->rank != 4) return CUDNN_STATUS_BAD_PARAM;
  cudnnStatus_t status = cudnnGetConvolutionNdForwardOutputDim(c, x, w, 4, made);
  if (status == CUDNN_STATUS_SUCCESS) *n = made[0], *channels = made[1], *h = made[2], *width = made[3];
  return status;
}
inline cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  if (!handle || !count) return CUDNN_STATUS_BAD_PARAM;
  *count = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c,
                                                            cudnnTensorDescriptor_t y, int wanted, int* found, cudnnConvolutionFwdAlgoPerf_t* results) {
  return kw::dnn_one_algorithm(handle, x, w, c, y, wanted, found, results);
}
inline cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c,
                                                          cudnnTensorDescriptor_t y, int wanted, int* found, cudnnConvolutionFwdAlgoPerf_t* results) {
  return kw::dnn_one_algorithm(handle, x, w, c, y, wanted, found, results);
}
inline cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, cudnnTensorDescriptor_t xd, const void* x, cudnnFilterDescriptor_t wd, const void* w,
                                                            cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t yd, void* y, int wanted, int* found,
                                                            cudnnConvolutionFwdAlgoPerf_t* results, void*, size_t) {
  if (kw::any_null({x, w, y})) return CUDNN_STATUS_BAD_PARAM;
  return kw::dnn_one_algorithm(handle, xd, wd, c, yd, wanted, found, results);
}
inline cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c,
                                                             cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  if (!bytes) return CUDNN_STATUS_BAD_PARAM;
  cudnnStatus_t status = kw::dnn_convolution_status(handle, x, w, c, y, algorithm);
  if (status == CUDNN_STATUS_SUCCESS) *bytes = 0;
  return status;
}

// Convolutions.
inline cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t xd, const void* x, cudnnFilterDescriptor_t wd, const void* w,
                                             cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t algorithm, void*, size_t, const void* beta,
                                             cudnnTensorDescriptor_t yd, void* y) {
  if (kw::any_null({alpha, x, w, beta, y})) return CUDNN_STATUS_BAD_PARAM;
  cudnnStatus_t status = kw::dnn_convolution_status(handle, xd, wd, c, yd, algorithm);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (kw::dnn_overlap(x, xd, y, yd) || kw::dnn_overlap(w, wd, y, yd)) kw::fail_unsupported("cudnnConvolutionForward into its own input");
  return kw::dnn("cudnnConvolutionForward", kw::dnn_choices(c), {kw::dnn_factor(alpha, yd->type), kw::dnn_factor(beta, yd->type)},
                 {kw::dnn_tensor(x, xd), kw::dnn_tensor(w, wd), kw::dnn_tensor(y, yd)});
}
inline cudnnStatus_t cudnnConvolutionBiasActivationForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t xd, const void* x, cudnnFilterDescriptor_t wd,
                                                           const void* w, cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t algorithm, void*, size_t,
                                                           const void* beta, cudnnTensorDescriptor_t zd, const void* z, cudnnTensorDescriptor_t bd, const void* bias,
                                                           cudnnActivationDescriptor_t a, cudnnTensorDescriptor_t yd, void* y) {
  if (kw::any_null({alpha, x, w, beta, z, bias, a, y}) || !kw::dnn_ready({zd, bd}) || !a->set) return CUDNN_STATUS_BAD_PARAM;
  cudnnStatus_t status = kw::dnn_convolution_status(handle, xd, wd, c, yd, algorithm);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  bool plain = a->mode == CUDNN_ACTIVATION_IDENTITY && algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  if (!(plain || a->mode == CUDNN_ACTIVATION_RELU) || a->nan != CUDNN_NOT_PROPAGATE_NAN) return CUDNN_STATUS_NOT_SUPPORTED;
  cudnnTensorStruct wanted = *yd;
  for (int i = 0; i < wanted.rank; ++i)
    if (i != 1) wanted.size[i] = 1;
  wanted.type = kw::dnn_wide(yd->type);
  bool bias_fits = kw::dnn_same_sizes(&wanted, bd) && (bd->type == yd->type || bd->type == wanted.type) && bd->stride[1] == 1;
  if (!bias_fits || !kw::dnn_same(zd, yd) || !kw::dnn_same_strides(zd, yd)) return CUDNN_STATUS_NOT_SUPPORTED;
  if (kw::dnn_overlap(x, xd, y, yd) || kw::dnn_overlap(w, wd, y, yd)) kw::fail_unsupported("cudnnConvolutionBiasActivationForward into its own input");
  kw::Numbers choices = kw::dnn_choices(c);
  choices.insert(choices.begin(), a->mode);
  return kw::dnn("cudnnConvolutionBiasActivationForward", choices, {kw::dnn_factor(alpha, yd->type), kw::dnn_factor(beta, yd->type)},
                 {kw::dnn_tensor(x, xd), kw::dnn_tensor(w, wd), kw::dnn_tensor(z, zd), kw::dnn_tensor(bias, bd), kw::dnn_tensor(y, yd)});
}

// Element by element, over windows, over channels.
inline cudnnStatus_t cudnnActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t a, const void* alpha, cudnnTensorDescriptor_t xd, const void* x,
                                            const void* beta, cudnnTensorDescriptor_t yd, void* y) {
  if (kw::any_null({handle, a, alpha, x, beta, y}) || !kw::dnn_ready({xd, yd}) || !a->set) return CUDNN_STATUS_BAD_PARAM;
  if (a->mode == CUDNN_ACTIVATION_IDENTITY || !kw::dnn_same(xd, yd) || (x == y && !kw::dnn_same_strides(xd, yd))) return CUDNN_STATUS_BAD_PARAM;
  return kw::dnn("cudnnActivationForward", {a->mode, a->nan}, {kw::dnn_factor(alpha, yd->type), kw::dnn_factor(beta, yd->type), a->coefficient, a->beta},
                 {kw::dnn_tensor(x, xd), kw::dnn_tensor(y, yd)});
}
inline cudnnStatus_t cudnnGetPooling2dForwardOutputDim(cudnnPoolingDescriptor_t p, cudnnTensorDescriptor_t x, int* n, int* c, int* h, int* w) {
  if (kw::any_null({p, n, c, h, w}) || !kw::dnn_ready({x}) || p->rank != 2 || x->rank != 4) return CUDNN_STATUS_BAD_PARAM;
  *n = x->size[0], *c = x->size[1], *h = kw::dnn_pooled(p, x, 0), *w = kw::dnn_pooled(p, x, 1);
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnGetPoolingNdForwardOutputDim(cudnnPoolingDescriptor_t p, cudnnTensorDescriptor_t x, int rank, int sizes[]) {
  if (!p || !sizes || !kw::dnn_ready({x}) || x->rank != rank || p->rank + 2 != rank) return CUDNN_STATUS_BAD_PARAM;
  for (int i = 0; i < rank; ++i) sizes[i] = i < 2 ? x->size[i] : kw::dnn_pooled(p, x, i - 2);
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, cudnnPoolingDescriptor_t p, const void* alpha, cudnnTensorDescriptor_t xd, const void* x, const void* beta,
                                         cudnnTensorDescriptor_t yd, void* y) {
  if (kw::any_null({handle, p, alpha, x, beta, y}) || !kw::dnn_ready({xd, yd}) || !p->rank) return CUDNN_STATUS_BAD_PARAM;
  if (xd->type != yd->type || xd->rank != yd->rank || p->rank + 2 != xd->rank) return CUDNN_STATUS_BAD_PARAM;
  if (p->rank < 2 || p->rank > 3 || xd->stride[xd->rank - 1] != 1 || yd->stride[yd->rank - 1] != 1) return CUDNN_STATUS_NOT_SUPPORTED;
  if (xd->size[0] != yd->size[0] || xd->size[1] != yd->size[1]) return CUDNN_STATUS_BAD_PARAM;
  for (int i = 0; i < p->rank; ++i)
    if (p->pad[i] >= p->window[i] || yd->size[i + 2] != kw::dnn_pooled(p, xd, i)) return CUDNN_STATUS_BAD_PARAM;
  if (kw::dnn_overlap(x, xd, y, yd)) kw::fail_unsupported("cudnnPoolingForward into its own input");
  kw::Numbers choices{p->mode, p->nan};
  for (const int* field : {p->window, p->pad, p->stride}) choices.insert(choices.end(), field, field + p->rank);
  return kw::dnn("cudnnPoolingForward", choices, {kw::dnn_factor(alpha, yd->type), kw::dnn_factor(beta, yd->type)}, {kw::dnn_tensor(x, xd), kw::dnn_tensor(y, yd)});
}
inline cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm, cudnnSoftmaxMode_t mode, const void* alpha, cudnnTensorDescriptor_t xd,
                                         const void* x, const void* beta, cudnnTensorDescriptor_t yd, void* y) {
  if (kw::any_null({handle, alpha, x, beta, y}) || !kw::dnn_ready({xd, yd}) || !kw::dnn_same(xd, yd)) return CUDNN_STATUS_BAD_PARAM;
  if (algorithm < 0 || algorithm > CUDNN_SOFTMAX_LOG || mode < 0 || mode > CUDNN_SOFTMAX_MODE_CHANNEL) return CUDNN_STATUS_BAD_PARAM;
  return kw::dnn("cudnnSoftmaxForward", {algorithm, mode}, {kw::dnn_factor(alpha, yd->type), kw::dnn_factor(beta, yd->type)},
                 {kw::dnn_tensor(x, xd), kw::dnn_tensor(y, yd)});
}
inline cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t derived, cudnnTensorDescriptor_t x, cudnnBatchNormMode_t mode) {
  if (!derived || !kw::dnn_ready({x}) || mode < 0 || mode > CUDNN_BATCHNORM_SPATIAL_PERSISTENT) return CUDNN_STATUS_BAD_PARAM;
  int sizes[CUDNN_DIM_MAX];
  for (int i = 0; i < x->rank; ++i) sizes[i] = i == 1 || (i > 1 && mode == CUDNN_BATCHNORM_PER_ACTIVATION) ? x->size[i] : 1;
  return kw::dnn_set(derived, kw::dnn_wide(x->type), x->rank, sizes, nullptr);
}
inline cudnnStatus_t cudnnBatchNormalizationForwardInference(cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta, cudnnTensorDescriptor_t xd,
                                                             const void* x, cudnnTensorDescriptor_t yd, void* y, cudnnTensorDescriptor_t pd, const void* scale,
                                                             const void* bias, const void* mean, const void* variance, double epsilon) {
  if (kw::any_null({handle, alpha, beta, x, y, scale, bias, mean, variance}) || !kw::dnn_ready({xd, yd, pd})) return CUDNN_STATUS_BAD_PARAM;
  if (xd->rank < 4 || xd->rank > 5) return CUDNN_STATUS_NOT_SUPPORTED;
  cudnnTensorStruct wanted;
  cudnnStatus_t status = cudnnDeriveBNTensorDescriptor(&wanted, xd, mode);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (!kw::dnn_same(xd, yd) || !kw::dnn_same(&wanted, pd) || !(epsilon >= CUDNN_BN_MIN_EPSILON)) return CUDNN_STATUS_BAD_PARAM;
  return kw::dnn("cudnnBatchNormalizationForwardInference", {}, {kw::dnn_factor(alpha, yd->type), kw::dnn_factor(beta, yd->type), epsilon},
                 {kw::dnn_tensor(x, xd), kw::dnn_tensor(scale, pd), kw::dnn_tensor(bias, pd), kw::dnn_tensor(mean, pd), kw::dnn_tensor(variance, pd),
                  kw::dnn_tensor(y, yd)});
}
inline cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t ad, const void* a, const void* beta, cudnnTensorDescriptor_t cd, void* c) {
  if (kw::any_null({handle, alpha, a, beta, c}) || !kw::dnn_ready({ad, cd})) return CUDNN_STATUS_BAD_PARAM;
  if (ad->type != cd->type || !kw::dnn_broadcasts(ad, cd)) return CUDNN_STATUS_BAD_PARAM;
  if (cd->rank > 5) return CUDNN_STATUS_NOT_SUPPORTED;
  return kw::dnn("cudnnAddTensor", {}, {kw::dnn_factor(alpha, cd->type), kw::dnn_factor(beta, cd->type)}, {kw::dnn_tensor(a, ad), kw::dnn_tensor(c, cd)});
}
inline cudnnStatus_t cudnnOpTensor(cudnnHandle_t handle, cudnnOpTensorDescriptor_t op, const void* alpha1, cudnnTensorDescriptor_t ad, const void* a, const void* alpha2,
                                   cudnnTensorDescriptor_t bd, const void* b, const void* beta, cudnnTensorDescriptor_t cd, void* c) {
  if (kw::any_null({handle, op, alpha1, a, beta, c}) || !kw::dnn_ready({ad, cd}) || !op->set) return CUDNN_STATUS_BAD_PARAM;
  bool one = op->op == CUDNN_OP_TENSOR_SQRT || op->op == CUDNN_OP_TENSOR_NOT;
  if (!one && (kw::any_null({alpha2, b}) || !kw::dnn_ready({bd}) || bd->type != cd->type || !kw::dnn_broadcasts(bd, cd))) return CUDNN_STATUS_BAD_PARAM;
  if (!kw::dnn_same(ad, cd) || op->compute != kw::dnn_wide(cd->type)) return CUDNN_STATUS_BAD_PARAM;
  if (!one && b == c && a != c) kw::fail_unsupported("cudnnOpTensor into its second input");
  kw::Numbers first = kw::dnn_tensor(a, ad);
  return kw::dnn("cudnnOpTensor", {op->op, op->nan},
                 {kw::dnn_factor(alpha1, cd->type), kw::dnn_factor(beta, cd->type), one ? 0.0 : kw::dnn_factor(alpha2, cd->type)},
                 {first, one ? first : kw::dnn_tensor(b, bd), kw::dnn_tensor(c, cd)});
}

namespace at::native {
inline cudnnHandle_t getCudnnHandle() {
  static cudnnContext handle;
  return &handle;
}
}  // namespace at::native
#define AT_CUDNN_CHECK(expression, ...)                                                                            \
  do {                                                                                                             \
    cudnnStatus_t kw_status = (expression);                                                                        \
    TORCH_CHECK(kw_status == CUDNN_STATUS_SUCCESS, "cuDNN error: ", cudnnGetErrorString(kw_status), ##__VA_ARGS__); \
  } while (0)
#endif
