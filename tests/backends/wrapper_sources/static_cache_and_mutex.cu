#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

#include <mutex>
#include <unordered_map>
static std::unordered_map<int64_t, torch::Tensor> cache;
static std::mutex guard;
static torch::Tensor& buffer(int64_t n, const torch::TensorOptions& options) {
  std::lock_guard<std::mutex> lock(guard);
  auto found = cache.find(n);
  if (found == cache.end()) found = cache.emplace(n, torch::empty({n}, options)).first;
  return found->second;
}
torch::Tensor forward(torch::Tensor x) {
  auto& y = buffer(x.numel(), x.options());
  scale_kernel<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), 7.f, x.numel());
  return y.view_as(x).clone();
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
