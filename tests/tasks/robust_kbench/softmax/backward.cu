#include <torch/extension.h>

__global__ void softmax_backward(const float* grad, const float* y, float* out, int columns) {
  size_t start = (size_t)blockIdx.x * columns;
  __shared__ float kept[64];
  float sum = 0.f;
  for (int i = threadIdx.x; i < columns; i += 64) sum += grad[start + i] * y[start + i];
  kept[threadIdx.x] = sum;
  __syncthreads();
  float total = 0.f;
  for (int i = 0; i < 64; i++) total += kept[i];
  for (int i = threadIdx.x; i < columns; i += 64) out[start + i] = y[start + i] * (grad[start + i] - total);
}

torch::Tensor forward(torch::Tensor x) { return torch::softmax(x, -1); }

torch::Tensor backward(torch::Tensor grad, torch::Tensor y) {
  auto out = torch::empty_like(grad);
  softmax_backward<<<grad.size(0), 64>>>(grad.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(),
                                         grad.size(1));
  return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward);
  m.def("backward", &backward);
}
