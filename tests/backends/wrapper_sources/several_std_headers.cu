#include <torch/extension.h>
#include <chrono>
#include <thread>
#include <set>
#include <iomanip>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

torch::Tensor forward(torch::Tensor x) {
  const auto start = std::chrono::high_resolution_clock::now();
  std::set<int> sizes{32, 64};
  std::deque<float> factors{2.f, 3.f};
  std::atomic<int> count{0};
  auto y = torch::empty_like(x);
  for (int size : sizes) {
    scale_kernel<<<(x.numel() + size - 1) / size, size>>>(count ? y.data_ptr<float>() : x.data_ptr<float>(), y.data_ptr<float>(), factors[count], x.numel());
    ++count;
  }
  std::ostringstream text;
  text << std::setprecision(3) << std::chrono::duration<double>(std::chrono::high_resolution_clock::now() - start).count();
  TORCH_CHECK(!text.str().empty());
  for (auto k : c10::irange(2)) y = y + k;
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
