// Two of cuDNN's training calls that inference uses too: backward data, which is a transposed convolution, and batch
// normalisation by the batch's own statistics. Read behind cudnn_calls.h.
#ifndef KW_CUDNN_TRAINING
#define KW_CUDNN_TRAINING

enum cudnnConvolutionBwdDataAlgo_t {
  CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 = 0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT = 2,
  CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING = 3, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD = 4,
  CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED = 5, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT = 6,
};
struct cudnnConvolutionBwdDataAlgoPerf_t {
  cudnnConvolutionBwdDataAlgo_t algo;
  cudnnStatus_t status;
  float time;
  size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
  int reserved[3];
};

namespace kw {
// Backward data is refused where the convolution of `dx` that it belongs to is; both have the same limits.
inline cudnnStatus_t dnn_backward_status(cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c,
                                         cudnnTensorDescriptor_t dx, cudnnConvolutionBwdDataAlgo_t algorithm) {
  if (algorithm < 0 || algorithm >= CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT) return CUDNN_STATUS_BAD_PARAM;
  bool general = algorithm <= CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
  int forward = general ? int(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM) : int(algorithm) - CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT + CUDNN_CONVOLUTION_FWD_ALGO_FFT;
  return dnn_convolution_status(handle, dx, w, c, dy, cudnnConvolutionFwdAlgo_t(forward));
}
inline cudnnStatus_t dnn_one_backward(cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dx,
                                      int wanted, int* found, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  if (wanted < 1 || !found || !results) return CUDNN_STATUS_BAD_PARAM;
  cudnnStatus_t status = dnn_backward_status(handle, w, dy, c, dx, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  results[0] = {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_STATUS_SUCCESS, -1.f, 0, CUDNN_DETERMINISTIC, c->math, {}};
  *found = 1;
  return CUDNN_STATUS_SUCCESS;
}
}  // namespace kw

inline cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  if (!handle || !count) return CUDNN_STATUS_BAD_PARAM;
  *count = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c,
                                                                 cudnnTensorDescriptor_t dx, int wanted, int* found, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return kw::dnn_one_backward(handle, w, dy, c, dx, wanted, found, results);
}
inline cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c,
                                                               cudnnTensorDescriptor_t dx, int wanted, int* found, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return kw::dnn_one_backward(handle, w, dy, c, dx, wanted, found, results);
}
inline cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c,
                                                                  cudnnTensorDescriptor_t dx, cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  if (!bytes) return CUDNN_STATUS_BAD_PARAM;
  cudnnStatus_t status = kw::dnn_backward_status(handle, w, dy, c, dx, algorithm);
  if (status == CUDNN_STATUS_SUCCESS) *bytes = 0;
  return status;
}
inline cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t wd, const void* w, cudnnTensorDescriptor_t dyd, const void* dy,
                                                  cudnnConvolutionDescriptor_t c, cudnnConvolutionBwdDataAlgo_t algorithm, void*, size_t, const void* beta,
                                                  cudnnTensorDescriptor_t dxd, void* dx) {
  if (kw::any_null({alpha, w, dy, beta, dx})) return CUDNN_STATUS_BAD_PARAM;
  cudnnStatus_t status = kw::dnn_backward_status(handle, wd, dyd, c, dxd, algorithm);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (kw::dnn_overlap(dy, dyd, dx, dxd) || kw::dnn_overlap(w, wd, dx, dxd)) kw::fail_unsupported("cudnnConvolutionBackwardData into its own input");
  return kw::dnn("cudnnConvolutionBackwardData", kw::dnn_choices(c), {kw::dnn_factor(alpha, dxd->type), kw::dnn_factor(beta, dxd->type)},
                 {kw::dnn_tensor(dy, dyd), kw::dnn_tensor(w, wd), kw::dnn_tensor(dx, dxd)});
}
inline cudnnStatus_t cudnnBatchNormalizationForwardTraining(cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta, cudnnTensorDescriptor_t xd,
                                                            const void* x, cudnnTensorDescriptor_t yd, void* y, cudnnTensorDescriptor_t pd, const void* scale,
                                                            const void* bias, double momentum, void* running_mean, void* running_variance, double epsilon,
                                                            void* saved_mean, void* saved_inverse) {
  if (kw::any_null({handle, alpha, beta, x, y, scale, bias}) || !kw::dnn_ready({xd, yd, pd})) return CUDNN_STATUS_BAD_PARAM;
  if (xd->rank < 4 || xd->rank > 5) return CUDNN_STATUS_NOT_SUPPORTED;
  cudnnTensorStruct wanted;
  cudnnStatus_t status = cudnnDeriveBNTensorDescriptor(&wanted, xd, mode);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (!kw::dnn_same(xd, yd) || !kw::dnn_same(&wanted, pd) || !(epsilon >= CUDNN_BN_MIN_EPSILON)) return CUDNN_STATUS_BAD_PARAM;
  // Running and saved statistics are wanted in pairs, or not at all.
  if (!running_mean != !running_variance || !saved_mean != !saved_inverse) return CUDNN_STATUS_BAD_PARAM;
  if (x == y) kw::fail_unsupported("cudnnBatchNormalizationForwardTraining into its own input");
  std::vector<kw::Numbers> tensors{kw::dnn_tensor(x, xd), kw::dnn_tensor(scale, pd), kw::dnn_tensor(bias, pd)};
  for (void* p : {running_mean, running_variance, saved_mean, saved_inverse})
    if (p) tensors.push_back(kw::dnn_tensor(p, pd));
  tensors.push_back(kw::dnn_tensor(y, yd));
  return kw::dnn("cudnnBatchNormalizationForwardTraining", {running_mean != nullptr, saved_mean != nullptr},
                 {kw::dnn_factor(alpha, yd->type), kw::dnn_factor(beta, yd->type), epsilon, momentum}, tensors);
}
#endif
