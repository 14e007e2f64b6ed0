#include <torch/extension.h>

#define THREADS 128
#define LAUNCH(kernel, n, ...) kernel<<<((n) + THREADS - 1) / THREADS, THREADS>>>(__VA_ARGS__)
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
template <typename T>
__global__ void plus(const T* x, T* y, T a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + a;
}
template <typename T>
void run_plus(const torch::Tensor& x, torch::Tensor& y, T a) {
  dim3 block(64);
  dim3 grid((x.numel() + block.x - 1) / block.x);
  plus<T><<<grid, block, 0>>>(x.data_ptr<T>(), y.data_ptr<T>(), a, x.numel());
}
torch::Tensor forward(torch::Tensor x) {
  auto a = torch::empty_like(x), b = torch::empty_like(x), c = torch::empty_like(x);
  LAUNCH(twice, x.numel(), x.data_ptr<float>(), a.data_ptr<float>(), (int)x.numel());
  auto go = [&](const torch::Tensor& from, torch::Tensor to) {
    twice<<<(from.numel() + 31) / 32, 32>>>(from.data_ptr<float>(), to.data_ptr<float>(), from.numel());
  };
  go(a, b);
  run_plus<float>(b, c, 1.5f);
  return c;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
