#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cudnn.h>
#define CHECK_CUDNN(call)                                                                     \
  do {                                                                                        \
    cudnnStatus_t status = (call);                                                                \
    if (status != CUDNN_STATUS_SUCCESS) throw std::runtime_error(std::string("cuDNN: ") + cudnnGetErrorString(status)); \
  } while (0)
__global__ void twice_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.f * x[i];
}
static cudnnDataType_t type_of(const torch::Tensor& t) {
  return t.scalar_type() == torch::kHalf ? CUDNN_DATA_HALF : t.scalar_type() == torch::kDouble ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}
struct Descriptors {
  cudnnTensorDescriptor_t x, y;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t c;
  Descriptors() {
    CHECK_CUDNN(cudnnCreateTensorDescriptor(&x));
    CHECK_CUDNN(cudnnCreateTensorDescriptor(&y));
    CHECK_CUDNN(cudnnCreateFilterDescriptor(&w));
    CHECK_CUDNN(cudnnCreateConvolutionDescriptor(&c));
  }
  ~Descriptors() {
    cudnnDestroyTensorDescriptor(x);
    cudnnDestroyTensorDescriptor(y);
    cudnnDestroyFilterDescriptor(w);
    cudnnDestroyConvolutionDescriptor(c);
  }
};
// alpha * conv(x) + beta, into a tensor of ones: a picture in two directions, with an algorithm that was asked for.
torch::Tensor conv2d(torch::Tensor x, torch::Tensor w, int64_t pad, int64_t stride, int64_t dilation, int64_t groups, double alpha, double beta, bool flip) {
  static cudnnHandle_t handle = nullptr;
  if (!handle) CHECK_CUDNN(cudnnCreate(&handle));
  CHECK_CUDNN(cudnnSetStream(handle, at::cuda::getCurrentCUDAStream()));
  Descriptors d;
  cudnnDataType_t type = type_of(x);
  CHECK_CUDNN(cudnnSetTensor4dDescriptor(d.x, CUDNN_TENSOR_NCHW, type, x.size(0), x.size(1), x.size(2), x.size(3)));
  CHECK_CUDNN(cudnnSetFilter4dDescriptor(d.w, type, CUDNN_TENSOR_NCHW, w.size(0), w.size(1), w.size(2), w.size(3)));
  CHECK_CUDNN(cudnnSetConvolution2dDescriptor(d.c, pad, pad, stride, stride, dilation, dilation, flip ? CUDNN_CONVOLUTION : CUDNN_CROSS_CORRELATION,
                                              type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
  CHECK_CUDNN(cudnnSetConvolutionGroupCount(d.c, groups));
  CHECK_CUDNN(cudnnSetConvolutionMathType(d.c, CUDNN_FMA_MATH));
  int n, k, h, v;
  CHECK_CUDNN(cudnnGetConvolution2dForwardOutputDim(d.c, d.x, d.w, &n, &k, &h, &v));
  auto y = torch::ones({n, k, h, v}, x.options());
  CHECK_CUDNN(cudnnSetTensor4dDescriptor(d.y, CUDNN_TENSOR_NCHW, type, n, k, h, v));
  cudnnConvolutionFwdAlgoPerf_t best;
  int found = 0;
  CHECK_CUDNN(cudnnGetConvolutionForwardAlgorithm_v7(handle, d.x, d.w, d.c, d.y, 1, &found, &best));
  TORCH_CHECK(found == 1 && best.status == CUDNN_STATUS_SUCCESS, "no algorithm");
  size_t bytes = 1;
  CHECK_CUDNN(cudnnGetConvolutionForwardWorkspaceSize(handle, d.x, d.w, d.c, d.y, best.algo, &bytes));
  auto room = torch::empty({int64_t(bytes)}, x.options().dtype(torch::kByte));
  float one = alpha, two = beta;
  const void* factors[2] = {&one, &two};
  if (type == CUDNN_DATA_DOUBLE) factors[0] = &alpha, factors[1] = &beta;
  CHECK_CUDNN(cudnnConvolutionForward(handle, factors[0], d.x, x.data_ptr(), d.w, w.data_ptr(), d.c, best.algo, room.data_ptr(), bytes, factors[1], d.y, y.data_ptr()));
  return y;
}
// relu(conv(x) + 0.5 * z + bias), then doubled by a kernel of its own.
torch::Tensor fused(torch::Tensor x, torch::Tensor w, torch::Tensor bias, torch::Tensor z) {
  cudnnHandle_t handle;
  CHECK_CUDNN(cudnnCreate(&handle));
  Descriptors d;
  cudnnTensorDescriptor_t b;
  cudnnActivationDescriptor_t relu;
  CHECK_CUDNN(cudnnCreateTensorDescriptor(&b));
  CHECK_CUDNN(cudnnCreateActivationDescriptor(&relu));
  CHECK_CUDNN(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0.0));
  CHECK_CUDNN(cudnnSetTensor4dDescriptor(d.x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, x.size(0), x.size(1), x.size(2), x.size(3)));
  CHECK_CUDNN(cudnnSetTensor4dDescriptor(d.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, z.size(0), z.size(1), z.size(2), z.size(3)));
  CHECK_CUDNN(cudnnSetTensor4dDescriptor(b, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, bias.size(0), 1, 1));
  CHECK_CUDNN(cudnnSetFilter4dDescriptor(d.w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, w.size(0), w.size(1), w.size(2), w.size(3)));
  CHECK_CUDNN(cudnnSetConvolution2dDescriptor(d.c, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  const float one = 1.f, half = 0.5f;
  auto y = torch::empty_like(z), out = torch::empty_like(z);
  CHECK_CUDNN(cudnnConvolutionBiasActivationForward(handle, &one, d.x, x.data_ptr<float>(), d.w, w.data_ptr<float>(), d.c,
                                                    CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, nullptr, 0, &half, d.y, z.data_ptr<float>(), b,
                                                    bias.data_ptr<float>(), relu, d.y, y.data_ptr<float>()));
  twice_kernel<<<(y.numel() + 127) / 128, 128>>>(y.data_ptr<float>(), out.data_ptr<float>(), y.numel());
  CHECK_CUDNN(cudnnDestroyActivationDescriptor(relu));
  CHECK_CUDNN(cudnnDestroyTensorDescriptor(b));
  CHECK_CUDNN(cudnnDestroy(handle));
  return out;
}
// Three directions by the descriptors of any rank, which hold one number a direction.
torch::Tensor conv3d(torch::Tensor x, torch::Tensor w, std::vector<int64_t> pad, std::vector<int64_t> stride) {
  cudnnHandle_t handle;
  CHECK_CUDNN(cudnnCreate(&handle));
  Descriptors d;
  int sizes[5], steps[5], window[5], out[5], p[3], s[3], ones[3] = {1, 1, 1};
  for (int i = 0; i < 5; ++i) sizes[i] = x.size(i), steps[i] = x.stride(i), window[i] = w.size(i);
  for (int i = 0; i < 3; ++i) p[i] = pad[i], s[i] = stride[i];
  CHECK_CUDNN(cudnnSetTensorNdDescriptor(d.x, CUDNN_DATA_FLOAT, 5, sizes, steps));
  CHECK_CUDNN(cudnnSetFilterNdDescriptor(d.w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 5, window));
  CHECK_CUDNN(cudnnSetConvolutionNdDescriptor(d.c, 3, p, s, ones, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CHECK_CUDNN(cudnnGetConvolutionNdForwardOutputDim(d.c, d.x, d.w, 5, out));
  auto y = torch::empty({out[0], out[1], out[2], out[3], out[4]}, x.options());
  for (int i = 0; i < 5; ++i) steps[i] = y.stride(i);
  CHECK_CUDNN(cudnnSetTensorNdDescriptor(d.y, CUDNN_DATA_FLOAT, 5, out, steps));
  float one = 1.f, zero = 0.f;
  CHECK_CUDNN(cudnnConvolutionForward(handle, &one, d.x, x.data_ptr(), d.w, w.data_ptr(), d.c, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &zero, d.y,
                                      y.data_ptr()));
  CHECK_CUDNN(cudnnDestroy(handle));
  return y;
}
// A transposed convolution is the gradient of the convolution's input.
torch::Tensor transposed(torch::Tensor x, torch::Tensor w, int64_t pad, int64_t stride, int64_t more) {
  cudnnHandle_t handle;
  CHECK_CUDNN(cudnnCreate(&handle));
  Descriptors d;
  int64_t h = (x.size(2) - 1) * stride - 2 * pad + w.size(2) + more, v = (x.size(3) - 1) * stride - 2 * pad + w.size(3) + more;
  auto y = torch::ones({x.size(0), w.size(1), h, v}, x.options());
  CHECK_CUDNN(cudnnSetTensor4dDescriptor(d.x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, x.size(0), x.size(1), x.size(2), x.size(3)));
  CHECK_CUDNN(cudnnSetTensor4dDescriptor(d.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, y.size(0), y.size(1), h, v));
  CHECK_CUDNN(cudnnSetFilter4dDescriptor(d.w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, w.size(0), w.size(1), w.size(2), w.size(3)));
  CHECK_CUDNN(cudnnSetConvolution2dDescriptor(d.c, pad, pad, stride, stride, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  cudnnConvolutionBwdDataAlgoPerf_t best;
  int found = 0;
  size_t bytes = 1;
  CHECK_CUDNN(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, d.w, d.x, d.c, d.y, 1, &found, &best));
  CHECK_CUDNN(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, d.w, d.x, d.c, d.y, best.algo, &bytes));
  const float two = 2.f, half = 0.5f;
  CHECK_CUDNN(cudnnConvolutionBackwardData(handle, &two, d.w, w.data_ptr(), d.x, x.data_ptr(), d.c, best.algo, nullptr, bytes, &half, d.y, y.data_ptr()));
  CHECK_CUDNN(cudnnDestroy(handle));
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("conv2d", &conv2d);
  m.def("fused", &fused);
  m.def("transposed", &transposed);
  m.def("conv3d", &conv3d);
}
