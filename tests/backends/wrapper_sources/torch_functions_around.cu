#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

namespace F = torch::nn::functional;
torch::Tensor forward(torch::Tensor x, torch::Tensor w) {
  torch::NoGradGuard no_grad;
  auto h = F::relu(torch::addmm(torch::zeros({w.size(1)}, x.options()), x, w));
  h = F::softmax(h, F::SoftmaxFuncOptions(-1)) + torch::softmax(h, -1) + at::log_softmax(h, 1).exp();
  h = torch::gelu(h, "tanh") + F::gelu(h) + torch::sigmoid(h) * torch::tanh(h).pow(2) + torch::silu(h);
  h = torch::layer_norm(h, {h.size(1)}) + torch::clamp(h, 0.0, 1.0) + at::leaky_relu(h, 0.2);
  auto y = torch::empty_like(h);
  h = h.contiguous();
  scale_kernel<<<1, 256>>>(h.data_ptr<float>(), y.data_ptr<float>(), 0.5f, h.numel());
  return y + torch::einsum("ij,ij->i", {h, h}).unsqueeze(1) + torch::mean(h, {0, 1}) + h.sum({1}, true) + torch::max(h) + h.std(1, false, true)
      + torch::rsqrt(h.var(1, true, true) + 1e-5) + torch::linalg_vector_norm(h, 2, {1}, true) + h.argmax(1, true) + torch::norm(h);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
