#include <torch/extension.h>
#include <cuda_fp16.h>
#include <c10/util/Half.h>
__global__ void add2(const __half2* a, const __half2* b, __half2* c, int n) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i < n) c[i] = __hadd2(a[i], b[i]);
}
__global__ void scale4(const float4* x, float4* y, float s, int n) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i < n) { float4 v = x[i]; y[i] = make_float4(v.x * s, v.y * s, v.z * s, v.w * s); }
}
std::vector<torch::Tensor> forward(torch::Tensor x) {
  auto h = x.to(torch::kFloat16);
  auto c = torch::empty_like(h);
  const int n = h.numel() / 2;
  add2<<<1, 64>>>(reinterpret_cast<const __half2*>(h.data_ptr<at::Half>()), reinterpret_cast<const __half2*>(h.data_ptr<c10::Half>()),
                  (__half2*)c.data_ptr<at::Half>(), n);
  auto y = torch::empty_like(x);
  scale4<<<1, 64>>>(reinterpret_cast<float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()), 1.5f, x.numel() / 4);
  TORCH_INTERNAL_ASSERT(c.element_size() == 2 && x.is_contiguous());
  AT_ASSERTM(y.defined(), "y");
  return {c, y};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
