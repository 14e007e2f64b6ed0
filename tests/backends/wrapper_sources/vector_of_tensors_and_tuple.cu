#include <torch/extension.h>

#include <vector>
__global__ void minmax(const float* x, float* lo, float* hi, int n) {
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    float a = x[0], b = x[0];
    for (int i = 1; i < n; ++i) { a = fminf(a, x[i]); b = fmaxf(b, x[i]); }
    *lo = a; *hi = b;
  }
}
std::vector<at::Tensor> both(const at::Tensor& x) {
  auto lo = at::empty({}, x.options()), hi = at::empty({}, x.options());
  minmax<<<1, 32>>>(x.data_ptr<float>(), lo.data_ptr<float>(), hi.data_ptr<float>(), (int)x.numel());
  return {lo, hi};
}
std::tuple<at::Tensor, int64_t> pair(const at::Tensor& x) { return std::make_tuple(both(x)[0], x.numel()); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("both", &both); m.def("pair", &pair); }
