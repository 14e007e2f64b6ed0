#include <torch/extension.h>

__constant__ float taps[3];
__device__ int counter;
__global__ void filter(const float* x, float* y, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float s = 0;
  for (int k = -1; k <= 1; ++k) if (i + k >= 0 && i + k < n) s += taps[k + 1] * x[i + k];
  y[i] = s;
  atomicAdd(&counter, 1);
}
std::tuple<torch::Tensor, int> forward(torch::Tensor x) {
  auto stream = cudaStream_t(0);
  const float host[3] = {0.25f, 0.5f, 0.25f};
  cudaMemcpyToSymbolAsync(taps, host, sizeof(host), 0, cudaMemcpyHostToDevice, stream);
  void* place = nullptr;
  cudaGetSymbolAddress(&place, counter);
  cudaMemset(place, 0, sizeof(int));
  auto y = torch::empty_like(x);
  filter<<<1, 64, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  int seen = -1;
  cudaMemcpyFromSymbol(&seen, counter, sizeof(int));
  return {y, seen};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
