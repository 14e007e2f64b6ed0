#include <torch/extension.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/cudnn/Handle.h>
#include <cudnn.h>
__global__ void keep_kernel(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i];
}
static cudnnTensorDescriptor_t described(const torch::Tensor& t) {
  cudnnTensorDescriptor_t d;
  AT_CUDNN_CHECK(cudnnCreateTensorDescriptor(&d));
  AT_CUDNN_CHECK(cudnnSetTensor4dDescriptorEx(d, t.scalar_type() == torch::kHalf ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT, t.size(0), t.size(1), t.size(2), t.size(3),
                                              t.stride(0), t.stride(1), t.stride(2), t.stride(3)));
  return d;
}
static const float alpha = 3.f, beta = 0.25f;  // every result: 3 f(x) + y / 4
torch::Tensor activation(torch::Tensor x, torch::Tensor y, int64_t mode, double coefficient) {
  auto handle = at::native::getCudnnHandle();
  auto xd = described(x), yd = described(y);
  cudnnActivationDescriptor_t a;
  AT_CUDNN_CHECK(cudnnCreateActivationDescriptor(&a));
  AT_CUDNN_CHECK(cudnnSetActivationDescriptor(a, static_cast<cudnnActivationMode_t>(mode), CUDNN_PROPAGATE_NAN, coefficient));
  AT_CUDNN_CHECK(cudnnActivationForward(handle, a, &alpha, xd, x.data_ptr(), &beta, yd, y.data_ptr()));
  if (y.scalar_type() == torch::kFloat && y.is_contiguous()) keep_kernel<<<4, 64>>>(y.data_ptr<float>(), y.numel());
  return y;
}
torch::Tensor pooling(torch::Tensor x, int64_t mode, int64_t h, int64_t w, int64_t ph, int64_t pw, int64_t sh, int64_t sw) {
  auto xd = described(x);
  cudnnPoolingDescriptor_t p;
  AT_CUDNN_CHECK(cudnnCreatePoolingDescriptor(&p));
  AT_CUDNN_CHECK(cudnnSetPooling2dDescriptor(p, static_cast<cudnnPoolingMode_t>(mode), CUDNN_NOT_PROPAGATE_NAN, h, w, ph, pw, sh, sw));
  int size[4];
  AT_CUDNN_CHECK(cudnnGetPooling2dForwardOutputDim(p, xd, size, size + 1, size + 2, size + 3));
  auto y = torch::ones({size[0], size[1], size[2], size[3]}, x.options());
  auto yd = described(y);
  AT_CUDNN_CHECK(cudnnPoolingForward(at::native::getCudnnHandle(), p, &alpha, xd, x.data_ptr(), &beta, yd, y.data_ptr()));
  return y;
}
torch::Tensor softmax(torch::Tensor x, int64_t algorithm, int64_t mode) {
  auto y = torch::ones_like(x);
  auto xd = described(x), yd = described(y);
  AT_CUDNN_CHECK(cudnnSoftmaxForward(at::native::getCudnnHandle(), cudnnSoftmaxAlgorithm_t(algorithm), cudnnSoftmaxMode_t(mode), &alpha, xd, x.data_ptr(), &beta, yd, y.data_ptr()));
  return y;
}
torch::Tensor batch_norm(torch::Tensor x, torch::Tensor scale, torch::Tensor bias, torch::Tensor mean, torch::Tensor variance, int64_t mode) {
  auto y = torch::ones_like(x);
  auto xd = described(x), yd = described(y);
  cudnnTensorDescriptor_t pd;
  AT_CUDNN_CHECK(cudnnCreateTensorDescriptor(&pd));
  AT_CUDNN_CHECK(cudnnDeriveBNTensorDescriptor(pd, xd, cudnnBatchNormMode_t(mode)));
  AT_CUDNN_CHECK(cudnnBatchNormalizationForwardInference(at::native::getCudnnHandle(), cudnnBatchNormMode_t(mode), &alpha, &beta, xd, x.data_ptr(), yd, y.data_ptr(), pd,
                                                         scale.data_ptr(), bias.data_ptr(), mean.data_ptr(), variance.data_ptr(), 1e-3));
  return y;
}
// By the batch's own statistics, into running and saved ones.
torch::Tensor batch_norm_training(torch::Tensor x, torch::Tensor scale, torch::Tensor bias, torch::Tensor mean, torch::Tensor variance, torch::Tensor saved) {
  auto y = torch::ones_like(x);
  auto xd = described(x), yd = described(y), pd = described(scale);
  float* kept = saved.data_ptr<float>();
  AT_CUDNN_CHECK(cudnnBatchNormalizationForwardTraining(at::native::getCudnnHandle(), CUDNN_BATCHNORM_SPATIAL, &alpha, &beta, xd, x.data_ptr(), yd, y.data_ptr(), pd,
                                                        scale.data_ptr(), bias.data_ptr(), 0.1, mean.data_ptr(), variance.data_ptr(), 1e-3, kept, kept + x.size(1)));
  return y;
}
torch::Tensor add(torch::Tensor a, torch::Tensor c) {
  auto ad = described(a), cd = described(c);
  AT_CUDNN_CHECK(cudnnAddTensor(at::native::getCudnnHandle(), &alpha, ad, a.data_ptr(), &beta, cd, c.data_ptr()));
  return c;
}
torch::Tensor op(torch::Tensor a, torch::Tensor b, int64_t which) {
  auto c = torch::ones_like(a);
  auto ad = described(a), bd = described(b), cd = described(c);
  cudnnOpTensorDescriptor_t o;
  AT_CUDNN_CHECK(cudnnCreateOpTensorDescriptor(&o));
  AT_CUDNN_CHECK(cudnnSetOpTensorDescriptor(o, cudnnOpTensorOp_t(which), CUDNN_DATA_FLOAT, CUDNN_NOT_PROPAGATE_NAN));
  const float two = 2.f;
  AT_CUDNN_CHECK(cudnnOpTensor(at::native::getCudnnHandle(), o, &alpha, ad, a.data_ptr(), &two, bd, b.data_ptr(), &beta, cd, c.data_ptr()));
  return c;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("activation", &activation);
  m.def("pooling", &pooling);
  m.def("softmax", &softmax);
  m.def("batch_norm", &batch_norm);
  m.def("batch_norm_training", &batch_norm_training);
  m.def("add", &add);
  m.def("op", &op);
}
