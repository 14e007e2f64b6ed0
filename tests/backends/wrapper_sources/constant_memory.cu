#include <torch/extension.h>

__constant__ float WEIGHTS[4];
__constant__ int ROUNDS = 2;
__global__ void poly(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float s = 0; for (int k = 3; k >= 0; --k) s = s * x[i] + WEIGHTS[k]; y[i] = s * ROUNDS; }
}
torch::Tensor forward(torch::Tensor x, torch::Tensor w) {
  auto y = torch::empty_like(x);
  cudaMemcpyToSymbol(WEIGHTS, w.data_ptr<float>(), 4 * sizeof(float), 0, cudaMemcpyDeviceToDevice);
  poly<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
