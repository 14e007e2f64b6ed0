// The part of cuDNN's descriptor API that host wrappers use: numbers and shapes here, arithmetic in the runner
// (backends/libraries/cudnn.py). Written from the documented API, version 9. Read behind the stand-in's headers where a source
// includes <cudnn.h>; it is not part of the precompiled one. Layouts other than NCHW are named and refused.
#ifndef KW_CUDNN_DESCRIPTORS
#define KW_CUDNN_DESCRIPTORS
#define CUDNN_MAJOR 9
#define CUDNN_MINOR 10
#define CUDNN_PATCHLEVEL 2
#define CUDNN_VERSION 91002
#define CUDNN_DIM_MAX 8
#define CUDNN_BN_MIN_EPSILON 0.0

enum cudnnStatus_t {
  CUDNN_STATUS_SUCCESS = 0, CUDNN_STATUS_NOT_INITIALIZED = 1001, CUDNN_STATUS_LICENSE_ERROR = 1005,
  CUDNN_STATUS_BAD_PARAM = 2000, CUDNN_STATUS_NOT_SUPPORTED = 3000, CUDNN_STATUS_INTERNAL_ERROR = 4000,
  CUDNN_STATUS_EXECUTION_FAILED = 5000,
};
enum cudnnDataType_t {
  CUDNN_DATA_FLOAT = 0, CUDNN_DATA_DOUBLE = 1, CUDNN_DATA_HALF = 2, CUDNN_DATA_INT8 = 3, CUDNN_DATA_INT32 = 4,
  CUDNN_DATA_INT8x4 = 5, CUDNN_DATA_UINT8 = 6, CUDNN_DATA_UINT8x4 = 7, CUDNN_DATA_INT8x32 = 8,
  CUDNN_DATA_BFLOAT16 = 9, CUDNN_DATA_INT64 = 10, CUDNN_DATA_BOOLEAN = 11,
};
enum cudnnTensorFormat_t { CUDNN_TENSOR_NCHW = 0, CUDNN_TENSOR_NHWC = 1, CUDNN_TENSOR_NCHW_VECT_C = 2 };
enum cudnnMathType_t {
  CUDNN_DEFAULT_MATH = 0, CUDNN_TENSOR_OP_MATH = 1, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION = 2, CUDNN_FMA_MATH = 3,
};
enum cudnnNanPropagation_t { CUDNN_NOT_PROPAGATE_NAN = 0, CUDNN_PROPAGATE_NAN = 1 };
enum cudnnDeterminism_t { CUDNN_NON_DETERMINISTIC = 0, CUDNN_DETERMINISTIC = 1 };
enum cudnnConvolutionMode_t { CUDNN_CONVOLUTION = 0, CUDNN_CROSS_CORRELATION = 1 };
enum cudnnActivationMode_t {
  CUDNN_ACTIVATION_SIGMOID = 0, CUDNN_ACTIVATION_RELU = 1, CUDNN_ACTIVATION_TANH = 2, CUDNN_ACTIVATION_CLIPPED_RELU = 3,
  CUDNN_ACTIVATION_ELU = 4, CUDNN_ACTIVATION_IDENTITY = 5, CUDNN_ACTIVATION_SWISH = 6,
};
enum cudnnPoolingMode_t {
  CUDNN_POOLING_MAX = 0, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING = 1,
  CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING = 2, CUDNN_POOLING_MAX_DETERMINISTIC = 3,
};
enum cudnnOpTensorOp_t {
  CUDNN_OP_TENSOR_ADD = 0, CUDNN_OP_TENSOR_MUL = 1, CUDNN_OP_TENSOR_MIN = 2, CUDNN_OP_TENSOR_MAX = 3,
  CUDNN_OP_TENSOR_SQRT = 4, CUDNN_OP_TENSOR_NOT = 5,
};

struct cudnnContext { cudaStream_t stream = nullptr; };
struct cudnnTensorStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int rank = 0;  // 0: nothing was set
  int size[CUDNN_DIM_MAX], stride[CUDNN_DIM_MAX];
};
struct cudnnFilterStruct : cudnnTensorStruct {};
struct cudnnConvolutionStruct {
  int rank = 0;  // of the picture: 2 or 3
  int pad[CUDNN_DIM_MAX], stride[CUDNN_DIM_MAX], dilation[CUDNN_DIM_MAX];
  int groups = 1;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};
struct cudnnActivationStruct {
  bool set = false;
  cudnnActivationMode_t mode;
  cudnnNanPropagation_t nan;
  double coefficient, beta = 1;
};
struct cudnnPoolingStruct {
  int rank = 0;
  cudnnPoolingMode_t mode;
  cudnnNanPropagation_t nan;
  int window[CUDNN_DIM_MAX], pad[CUDNN_DIM_MAX], stride[CUDNN_DIM_MAX];
};
struct cudnnOpTensorStruct {
  bool set = false;
  cudnnOpTensorOp_t op;
  cudnnDataType_t compute;
  cudnnNanPropagation_t nan;
};
typedef cudnnContext* cudnnHandle_t;
typedef cudnnTensorStruct* cudnnTensorDescriptor_t;
typedef cudnnFilterStruct* cudnnFilterDescriptor_t;
typedef cudnnConvolutionStruct* cudnnConvolutionDescriptor_t;
typedef cudnnActivationStruct* cudnnActivationDescriptor_t;
typedef cudnnPoolingStruct* cudnnPoolingDescriptor_t;
typedef cudnnOpTensorStruct* cudnnOpTensorDescriptor_t;

namespace kw {
inline bool any_null(std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (!p) return true;
  return false;
}
// Whether the machine computes with a type: one that cuDNN knows and we do not is named, any other number is refused.
inline bool dnn_type(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT: case CUDNN_DATA_DOUBLE: case CUDNN_DATA_HALF: case CUDNN_DATA_BFLOAT16: return true;
    default: break;
  }
  if (type < 0 || type > CUDNN_DATA_BOOLEAN) return false;
  fail_unsupported("a cudnnDataType_t that is not FLOAT, DOUBLE, HALF or BFLOAT16");
}
inline bool dnn_format(cudnnTensorFormat_t format) {
  if (format == CUDNN_TENSOR_NHWC) fail_unsupported("CUDNN_TENSOR_NHWC");
  if (format == CUDNN_TENSOR_NCHW_VECT_C) fail_unsupported("CUDNN_TENSOR_NCHW_VECT_C");
  return format == CUDNN_TENSOR_NCHW;
}
// Sizes and strides (packed where there are none) to a descriptor, which stays as it was where they are refused.
inline cudnnStatus_t dnn_set(cudnnTensorStruct* d, cudnnDataType_t type, int rank, const int* sizes, const int* strides) {
  if (!d || !sizes || !dnn_type(type)) return CUDNN_STATUS_BAD_PARAM;
  if (rank < 3 || rank > CUDNN_DIM_MAX) return CUDNN_STATUS_NOT_SUPPORTED;
  cudnnTensorStruct made;
  made.type = type;
  made.rank = rank;
  int64_t step = 1, last = 1, reach = 1;
  for (int i = rank - 1; i >= 0; --i) {
    made.size[i] = sizes[i];
    if (sizes[i] <= 0 || (strides && strides[i] <= 0)) return CUDNN_STATUS_BAD_PARAM;
    made.stride[i] = strides ? strides[i] : int(step);
    step *= sizes[i];
    reach += int64_t(sizes[i] - 1) * made.stride[i];
    if (step > INT_MAX || reach > INT_MAX) return CUDNN_STATUS_NOT_SUPPORTED;
    if (sizes[i] == 1) continue;
    if (made.stride[i] < last) fail_unsupported("a cuDNN tensor whose strides are not those of NCHW");
    last = made.stride[i];
  }
  *d = made;
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
cudnnStatus_t dnn_make(T** out) {
  if (!out) return CUDNN_STATUS_BAD_PARAM;
  *out = new T;
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
cudnnStatus_t dnn_free(T* d) {
  delete d;
  return CUDNN_STATUS_SUCCESS;
}
}  // namespace kw

inline cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return kw::dnn_make(handle); }
inline cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return handle ? kw::dnn_free(handle) : CUDNN_STATUS_BAD_PARAM; }
inline cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (!handle) return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  if (!handle || !stream) return CUDNN_STATUS_BAD_PARAM;
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}
inline size_t cudnnGetVersion() { return CUDNN_VERSION; }
inline const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_LICENSE_ERROR: return "CUDNN_STATUS_LICENSE_ERROR";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR: return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
  return "CUDNN_UNKNOWN_STATUS";
}

// Tensors.
inline cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* d) { return kw::dnn_make(d); }
inline cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d) { return kw::dnn_free(d); }
inline cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format, cudnnDataType_t type, int n, int c, int h, int w) {
  int sizes[4] = {n, c, h, w};
  return kw::dnn_format(format) ? kw::dnn_set(d, type, 4, sizes, nullptr) : CUDNN_STATUS_BAD_PARAM;
}
inline cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t d, cudnnDataType_t type, int n, int c, int h, int w, int ns, int cs, int hs, int ws) {
  int sizes[4] = {n, c, h, w}, strides[4] = {ns, cs, hs, ws};
  return kw::dnn_set(d, type, 4, sizes, strides);
}
inline cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t type, int rank, const int sizes[], const int strides[]) {
  return strides ? kw::dnn_set(d, type, rank, sizes, strides) : CUDNN_STATUS_BAD_PARAM;
}
inline cudnnStatus_t cudnnSetTensorNdDescriptorEx(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format, cudnnDataType_t type, int rank, const int sizes[]) {
  return kw::dnn_format(format) ? kw::dnn_set(d, type, rank, sizes, nullptr) : CUDNN_STATUS_BAD_PARAM;
}
inline cudnnStatus_t cudnnGetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t* type, int* n, int* c, int* h, int* w, int* ns, int* cs, int* hs, int* ws) {
  if (!d || d->rank != 4) return CUDNN_STATUS_BAD_PARAM;
  *type = d->type;
  *n = d->size[0], *c = d->size[1], *h = d->size[2], *w = d->size[3];
  *ns = d->stride[0], *cs = d->stride[1], *hs = d->stride[2], *ws = d->stride[3];
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t d, int wanted, cudnnDataType_t* type, int* rank, int sizes[], int strides[]) {
  if (!d || !d->rank || !type || !rank) return CUDNN_STATUS_BAD_PARAM;
  *type = d->type;
  *rank = d->rank;
  for (int i = 0; i < std::min(wanted, d->rank); ++i) sizes[i] = d->size[i], strides[i] = d->stride[i];
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnGetTensorSizeInBytes(cudnnTensorDescriptor_t d, size_t* size) {
  if (!d || !d->rank || !size) return CUDNN_STATUS_BAD_PARAM;
  size_t reach = 1;
  for (int i = 0; i < d->rank; ++i) reach += size_t(d->size[i] - 1) * d->stride[i];
  *size = reach * (d->type == CUDNN_DATA_DOUBLE ? 8 : d->type == CUDNN_DATA_FLOAT ? 4 : 2);
  return CUDNN_STATUS_SUCCESS;
}

// Filters: outputs, inputs of a group, then the window.
inline cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* d) { return kw::dnn_make(d); }
inline cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d) { return kw::dnn_free(d); }
inline cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t format, int k, int c, int h, int w) {
  int sizes[4] = {k, c, h, w};
  return kw::dnn_format(format) ? kw::dnn_set(d, type, 4, sizes, nullptr) : CUDNN_STATUS_BAD_PARAM;
}
inline cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t format, int rank, const int sizes[]) {
  return kw::dnn_format(format) ? kw::dnn_set(d, type, rank, sizes, nullptr) : CUDNN_STATUS_BAD_PARAM;
}

// Convolutions.
inline cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* d) { return kw::dnn_make(d); }
inline cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d) { return kw::dnn_free(d); }
inline cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int rank, const int pad[], const int stride[], const int dilation[],
                                                     cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  if (kw::any_null({d, pad, stride, dilation}) || rank < 0 || !kw::dnn_type(compute)) return CUDNN_STATUS_BAD_PARAM;
  if (mode != CUDNN_CONVOLUTION && mode != CUDNN_CROSS_CORRELATION) return CUDNN_STATUS_BAD_PARAM;
  if (rank > CUDNN_DIM_MAX - 2) return CUDNN_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < rank; ++i)
    if (pad[i] < 0 || stride[i] <= 0 || dilation[i] <= 0) return CUDNN_STATUS_BAD_PARAM;
  d->rank = rank;
  d->mode = mode;
  d->compute = compute;
  for (int i = 0; i < rank; ++i) d->pad[i] = pad[i], d->stride[i] = stride[i], d->dilation[i] = dilation[i];
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h, int dilation_w,
                                                     cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  int pad[2] = {pad_h, pad_w}, stride[2] = {stride_h, stride_w}, dilation[2] = {dilation_h, dilation_w};
  return cudnnSetConvolutionNdDescriptor(d, 2, pad, stride, dilation, mode, compute);
}
inline cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups) {
  if (!d || groups <= 0) return CUDNN_STATUS_BAD_PARAM;
  d->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int* groups) {
  if (!d || !groups) return CUDNN_STATUS_BAD_PARAM;
  *groups = d->groups;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
  if (!d || math < CUDNN_DEFAULT_MATH || math > CUDNN_FMA_MATH) return CUDNN_STATUS_BAD_PARAM;
  d->math = math;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t* math) {
  if (!d || !math) return CUDNN_STATUS_BAD_PARAM;
  *math = d->math;
  return CUDNN_STATUS_SUCCESS;
}

// Activations, pooling and operations on two tensors.
inline cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* d) { return kw::dnn_make(d); }
inline cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t d) { return kw::dnn_free(d); }
inline cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t d, cudnnActivationMode_t mode, cudnnNanPropagation_t nan, double coefficient) {
  if (!d || mode < 0 || mode > CUDNN_ACTIVATION_SWISH || nan < 0 || nan > 1) return CUDNN_STATUS_BAD_PARAM;
  d->set = true, d->mode = mode, d->nan = nan, d->coefficient = coefficient;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnSetActivationDescriptorSwishBeta(cudnnActivationDescriptor_t d, double beta) {
  if (!d) return CUDNN_STATUS_BAD_PARAM;
  d->beta = beta;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* d) { return kw::dnn_make(d); }
inline cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t d) { return kw::dnn_free(d); }
inline cudnnStatus_t cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t d, cudnnPoolingMode_t mode, cudnnNanPropagation_t nan, int rank, const int window[],
                                                 const int pad[], const int stride[]) {
  if (kw::any_null({d, window, pad, stride}) || mode < 0 || mode > CUDNN_POOLING_MAX_DETERMINISTIC || nan < 0 || nan > 1) return CUDNN_STATUS_BAD_PARAM;
  if (rank < 1 || rank > CUDNN_DIM_MAX - 2) return CUDNN_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < rank; ++i)
    if (window[i] <= 0 || pad[i] < 0 || stride[i] <= 0) return CUDNN_STATUS_BAD_PARAM;
  d->rank = rank, d->mode = mode, d->nan = nan;
  for (int i = 0; i < rank; ++i) d->window[i] = window[i], d->pad[i] = pad[i], d->stride[i] = stride[i];
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t d, cudnnPoolingMode_t mode, cudnnNanPropagation_t nan, int window_h, int window_w,
                                                 int pad_h, int pad_w, int stride_h, int stride_w) {
  int window[2] = {window_h, window_w}, pad[2] = {pad_h, pad_w}, stride[2] = {stride_h, stride_w};
  return cudnnSetPoolingNdDescriptor(d, mode, nan, 2, window, pad, stride);
}
inline cudnnStatus_t cudnnCreateOpTensorDescriptor(cudnnOpTensorDescriptor_t* d) { return kw::dnn_make(d); }
inline cudnnStatus_t cudnnDestroyOpTensorDescriptor(cudnnOpTensorDescriptor_t d) { return kw::dnn_free(d); }
inline cudnnStatus_t cudnnSetOpTensorDescriptor(cudnnOpTensorDescriptor_t d, cudnnOpTensorOp_t op, cudnnDataType_t compute, cudnnNanPropagation_t nan) {
  if (!d || op < 0 || op > CUDNN_OP_TENSOR_NOT || !kw::dnn_type(compute) || nan < 0 || nan > 1) return CUDNN_STATUS_BAD_PARAM;
  d->set = true, d->op = op, d->compute = compute, d->nan = nan;
  return CUDNN_STATUS_SUCCESS;
}
#endif
