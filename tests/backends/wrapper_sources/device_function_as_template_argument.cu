#include <torch/extension.h>

typedef float (*Op)(float);
__device__ float dbl(float v) { return v + v; }
__device__ __forceinline__ float neg(float v) { return -v; }
template <Op F> __global__ void apply(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = F(x[i]); }
torch::Tensor forward(torch::Tensor x, int which) {
  auto y = torch::empty_like(x);
  switch (which) {
    case 0: apply<dbl><<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); break;
    default: apply<neg><<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  }
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
