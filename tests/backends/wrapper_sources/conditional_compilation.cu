#include <torch/extension.h>

#ifndef WIDTH
#define WIDTH 4
#endif
#if WIDTH > 2
typedef float acc_t;
#else
typedef double acc_t;
#endif
__global__ void sums(const float* x, float* y, int n) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  acc_t s = 0;
#else
  acc_t s = 1e9;
#endif
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) { int i = threadIdx.x * WIDTH + k; if (i < n) s += x[i]; }
  y[threadIdx.x] = s;
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::zeros({(x.size(0) + WIDTH - 1) / WIDTH}, x.options());
  sums<<<1, y.size(0)>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0));
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
