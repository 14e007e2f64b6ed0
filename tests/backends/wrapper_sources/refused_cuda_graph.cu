#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  cudaGraph_t graph;
  cudaGraphCreate(&graph, 0);
  scale_kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), 1.f, x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
