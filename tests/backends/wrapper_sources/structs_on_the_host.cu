#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

struct Config { int threads = 64; float factor{3.f}; bool check() const { return threads > 0; } };
class Workspace {
 public:
  explicit Workspace(const torch::Tensor& like) : data_(torch::empty_like(like)) {}
  torch::Tensor get() const { return data_; }
  float* pointer() { return data_.data_ptr<float>(); }
 private:
  torch::Tensor data_;
};
enum class Mode : int { Plain = 0, Twice };
template <Mode M> torch::Tensor run(const torch::Tensor& x, const Config& config) {
  Workspace space(x);
  const int n = static_cast<int>(x.numel());
  for (int k = 0; k < (M == Mode::Twice ? 2 : 1); ++k)
    scale_kernel<<<(n + config.threads - 1) / config.threads, config.threads>>>(k ? space.pointer() : x.data_ptr<float>(), space.pointer(), config.factor, n);
  return space.get();
}
torch::Tensor forward(torch::Tensor x, int64_t mode) {
  Config config;
  TORCH_CHECK(config.check());
  std::function<torch::Tensor(const torch::Tensor&)> f = mode == 1 ? [=](const torch::Tensor& t) { return run<Mode::Twice>(t, config); }
                                                                   : std::function<torch::Tensor(const torch::Tensor&)>([=](const torch::Tensor& t) { return run<Mode::Plain>(t, config); });
  return f(x);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
