#include <torch/extension.h>

struct Shape { int dims[4]; float scale; };
template <int N> struct Strides { int64_t v[N]; };
__global__ void walk(const float* x, float* y, Shape s, Strides<2> st) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < s.dims[0] * s.dims[1]) y[i] = s.scale * x[(i / s.dims[1]) * st.v[0] + (i % s.dims[1]) * st.v[1]];
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty({x.size(0), x.size(1)}, x.options());
  Shape s{{(int)x.size(0), (int)x.size(1), 0, 0}, 0.5f};
  Strides<2> st; st.v[0] = x.stride(0); st.v[1] = x.stride(1);
  walk<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), s, st);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
