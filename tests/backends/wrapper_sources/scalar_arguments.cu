#include <torch/extension.h>

__global__ void mix(const float* x, float* y, float a, double b, int c, long long d, bool e, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] = e ? a * x[i] + (float)b + c + (float)d : 0.f;
}
torch::Tensor forward(torch::Tensor x, float a, double b, int c, int64_t d, bool e) {
  auto y = torch::empty_like(x);
  mix<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), a, b, c, d, e, x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
