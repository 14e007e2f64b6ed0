#include <torch/extension.h>

#include <cuda_fp16.h>
__global__ void add_half(const __half* a, const __half* b, __half* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = __hadd(a[i], b[i]);
}
torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty_like(a);
  add_half<<<(a.numel() + 63) / 64, 64>>>(reinterpret_cast<const __half*>(a.data_ptr<at::Half>()),
      reinterpret_cast<const __half*>(b.data_ptr<at::Half>()), reinterpret_cast<__half*>(c.data_ptr<at::Half>()), a.numel());
  return c;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
