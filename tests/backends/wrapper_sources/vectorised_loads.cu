#include <torch/extension.h>

__global__ void add4(const float4* a, const float4* b, float4* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float4 u = a[i], v = b[i]; c[i] = make_float4(u.x + v.x, u.y + v.y, u.z + v.z, u.w + v.w); }
}
__global__ void add1(const float* a, const float* b, float* c, int from, int n) {
  int i = from + blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty_like(a);
  int n = a.numel(), n4 = n / 4;
  if (n4) add4<<<(n4 + 31) / 32, 32>>>(reinterpret_cast<const float4*>(a.data_ptr<float>()),
      reinterpret_cast<const float4*>(b.data_ptr<float>()), reinterpret_cast<float4*>(c.data_ptr<float>()), n4);
  if (n4 * 4 < n) add1<<<1, 32>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n4 * 4, n);
  return c;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
