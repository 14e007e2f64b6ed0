#include <torch/extension.h>

__global__ void set_to(float* y, float v, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = v; }
__global__ void add_to(float* y, float v, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += v; }
#define LAUNCH(kernel, n, ...) kernel<<<((n) + 31) / 32, 32>>>(__VA_ARGS__)
#define CUDA_CHECK(expr)                                                         \
  do {                                                                           \
    cudaError_t e = (expr);                                                      \
    if (e != cudaSuccess) {                                                      \
      fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
      throw std::runtime_error(cudaGetErrorString(e));                           \
    }                                                                            \
  } while (0)
torch::Tensor forward(torch::Tensor x, bool up) {
  auto y = torch::empty_like(x);
  float* p = y.data_ptr<float>();
  const int n = static_cast<int>(y.numel());
  LAUNCH(set_to, n, p, 1.f, n);
  auto go = [&](float v) { add_to<<<dim3((n + 63) / 64), dim3(64, 1, 1), 0, 0>>>(p, v, n); };
  up ? go(2.f) : go(-2.f);
  for (int k = 0; k < 3; ++k) if (k % 2 == 0) add_to<<<dim3{(unsigned)(n + 15) / 16, 1, 1}, 16>>>(p, 0.5f, n);
  switch (n % 2) { case 0: LAUNCH(add_to, n, p, 10.f, n); break; default: LAUNCH(add_to, n, p, 20.f, n); }
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaDeviceSynchronize());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
