#include <torch/extension.h>

#include <cmath>
struct Sigmoid { __device__ __forceinline__ float operator()(float v) const { return 1.f / (1.f + __expf(-v)); } };
struct Scale { float a; Scale(float v) : a(v) {} __host__ __device__ float operator()(float v) const { return a * v; } };
template <typename F>
__global__ void map(const float* x, float* y, int n, F f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f(x[i]);
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x), z = torch::empty_like(x);
  map<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel(), Sigmoid());
  map<Scale><<<(x.numel() + 63) / 64, 64>>>(y.data_ptr<float>(), z.data_ptr<float>(), (int)x.numel(), Scale(3.f));
  return z;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
