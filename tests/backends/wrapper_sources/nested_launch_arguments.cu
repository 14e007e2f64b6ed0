#include <torch/extension.h>

__global__ void fill(float* y, float v, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = v; }
struct Launcher {
  int threads = 32;
  dim3 grid(int n) const { return dim3((n + threads - 1) / threads); }
  void operator()(torch::Tensor& y, float v) const {
    fill<<<grid(static_cast<int>(y.numel())), dim3(threads, 1, 1), (size_t)(0), nullptr>>>(
        y.data_ptr<float>(), /* value */ v, std::max<int>(static_cast<int>(y.numel()), 0));  // trailing <<< comment >>>
  }
};
torch::Tensor forward(torch::Tensor x, double v) {
  auto y = torch::empty_like(x);
  const char* text = "fill<<<1, 2>>>(not a launch)";
  TORCH_CHECK(text[4] == '<');
  Launcher()(y, (float)v);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
