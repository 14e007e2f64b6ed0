#include <torch/extension.h>
#include <cudnn.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}
// The status of a 3 x 3 convolution of (1, 2, 5, 5) to (1, 4, 3, 3), one of whose parameters is `wrong`.
int64_t convolve(torch::Tensor x, torch::Tensor w, torch::Tensor y, std::string wrong) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t xd, yd;
  cudnnFilterDescriptor_t wd;
  cudnnConvolutionDescriptor_t c;
  cudnnCreate(&handle);
  cudnnCreateTensorDescriptor(&xd);
  cudnnCreateTensorDescriptor(&yd);
  cudnnCreateFilterDescriptor(&wd);
  cudnnCreateConvolutionDescriptor(&c);
  cudnnSetTensor4dDescriptor(xd, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, wrong == "channels" ? 3 : 2, 5, 5);
  cudnnSetTensor4dDescriptor(yd, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 4, 3, wrong == "output" ? 2 : 3);
  if (wrong != "unset filter") cudnnSetFilter4dDescriptor(wd, wrong == "filter type" ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4, 2, 3, 3);
  cudnnSetConvolution2dDescriptor(c, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, wrong == "compute type" ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  if (wrong == "groups") cudnnSetConvolutionGroupCount(c, 2);
  float one = 1.f, zero = 0.f;
  auto algorithm = wrong == "algorithm" ? CUDNN_CONVOLUTION_FWD_ALGO_DIRECT : CUDNN_CONVOLUTION_FWD_ALGO_GEMM;
  int64_t status = cudnnConvolutionForward(wrong == "handle" ? nullptr : handle, wrong == "alpha" ? nullptr : &one, xd, x.data_ptr(), wd, w.data_ptr(), c, algorithm,
                                           nullptr, 0, &zero, yd, y.data_ptr());
  cudnnDestroyTensorDescriptor(xd);
  cudnnDestroyTensorDescriptor(yd);
  cudnnDestroyFilterDescriptor(wd);
  cudnnDestroyConvolutionDescriptor(c);
  cudnnDestroy(handle);
  scale_kernel<<<1, 64>>>(y.data_ptr<float>(), y.data_ptr<float>(), 1.f, y.numel());
  return status;
}
// What setters and the elementwise calls refuse.
std::vector<int64_t> settings(torch::Tensor x) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t d, other;
  cudnnConvolutionDescriptor_t c;
  cudnnActivationDescriptor_t a;
  cudnnPoolingDescriptor_t p;
  cudnnCreate(&handle);
  cudnnCreateTensorDescriptor(&d);
  cudnnCreateTensorDescriptor(&other);
  cudnnCreateConvolutionDescriptor(&c);
  cudnnCreateActivationDescriptor(&a);
  cudnnCreatePoolingDescriptor(&p);
  std::vector<int64_t> found;
  int two[2] = {4, 4};
  found.push_back(cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 0, 4, 4));
  found.push_back(cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, static_cast<cudnnDataType_t>(99), 1, 1, 4, 4));
  found.push_back(cudnnSetTensorNdDescriptor(d, CUDNN_DATA_FLOAT, 2, two, two));
  found.push_back(cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 65536, 65536, 4, 4));
  found.push_back(cudnnSetConvolution2dDescriptor(c, -1, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  found.push_back(cudnnSetConvolution2dDescriptor(c, 0, 0, 0, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  found.push_back(cudnnSetConvolutionGroupCount(c, 0));
  found.push_back(cudnnSetPooling2dDescriptor(p, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 0, 2, 0, 0, 2, 2));
  cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 4, 4);
  cudnnSetTensor4dDescriptor(other, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 2, 4);
  float one = 1.f, zero = 0.f;
  cudnnSetActivationDescriptor(a, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0.0);
  found.push_back(cudnnActivationForward(handle, a, &one, d, x.data_ptr(), &zero, other, x.data_ptr()));
  found.push_back(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_MODE_CHANNEL, &one, d, x.data_ptr(), &zero, other, x.data_ptr()));
  found.push_back(cudnnAddTensor(handle, &one, other, x.data_ptr(), &one, d, x.data_ptr()));
  found.push_back(cudnnDestroy(handle));
  return found;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("convolve", &convolve);
  m.def("settings", &settings);
}
