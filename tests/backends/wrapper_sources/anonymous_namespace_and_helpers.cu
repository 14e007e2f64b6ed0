#include <torch/extension.h>

namespace {
constexpr int kThreads = 128;
inline int blocks_for(int64_t n) { return static_cast<int>((n + kThreads - 1) / kThreads); }
__device__ __forceinline__ float op(float v) { return v * v + 1.f; }
template <typename F> __global__ void map_kernel(const float* x, float* y, int64_t n, F f) {
  const int64_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f(op(x[i]));
}
struct Halve { __host__ __device__ float operator()(float v) const { return v * factor; } float factor; };
template <typename F> void launch_map(const torch::Tensor& x, torch::Tensor& y, F f) {
  map_kernel<F><<<blocks_for(x.numel()), kThreads>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), f);
}
}  // namespace
namespace ops { namespace detail {
static torch::Tensor run(const torch::Tensor& x) { auto y = torch::empty_like(x); launch_map(x, y, Halve{0.5f}); return y; }
}}
torch::Tensor forward(torch::Tensor x) { return ops::detail::run(x.contiguous()); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
