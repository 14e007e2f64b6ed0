#include <torch/extension.h>

namespace {
constexpr int kThreads = 64;
__device__ __forceinline__ float sq(float v) { return v * v; }
__global__ void square(const float* x, float* y, int n) {
  int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) y[i] = sq(x[i]);
}
}  // namespace
namespace ops { namespace detail {
template <typename T, int N>
__global__ void times(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * static_cast<T>(N);
}
}
__global__ void negate(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = -y[i]; }
}
static __global__ void one(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += 1.f; }
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  auto z = torch::empty_like(x);
  int n = x.numel();
  square<<<(n + kThreads - 1) / kThreads, kThreads>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  ops::detail::times<float, 3><<<(n + 31) / 32, 32>>>(y.data_ptr<float>(), z.data_ptr<float>(), n);
  ops::negate<<<(n + 31) / 32, 32>>>(z.data_ptr<float>(), n);
  one<<<(n + 31) / 32, 32>>>(z.data_ptr<float>(), n);
  return z;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
