#include <torch/extension.h>

enum class Mode : int { Sum = 0, Mean = 1 };
template <typename T, bool RELU, Mode MODE = Mode::Sum, unsigned BLOCK = 32u>
__global__ __launch_bounds__(BLOCK) void reduce(const T* x, T* y, int n) {
  __shared__ T s[BLOCK];
  T v = 0;
  for (int i = threadIdx.x; i < n; i += BLOCK) { T t = x[i]; if (RELU) t = t > 0 ? t : 0; v += t; }
  s[threadIdx.x] = v;
  __syncthreads();
  if (threadIdx.x == 0) { T t = 0; for (unsigned k = 0; k < BLOCK; ++k) t += s[k]; y[0] = MODE == Mode::Mean ? t / n : t; }
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::zeros({3}, x.options());
  float* p = y.data_ptr<float>();
  reduce<float, false><<<1, 32>>>(x.data_ptr<float>(), p, (int)x.numel());
  reduce<float, true, Mode::Mean><<<1, 32>>>(x.data_ptr<float>(), p + 1, (int)x.numel());
  reduce<float, true, Mode::Sum, 64><<<1, 64>>>(x.data_ptr<float>(), p + 2, (int)x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
