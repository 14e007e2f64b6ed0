#include <torch/extension.h>

__global__ void swish_kernel(float* data, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    data[i] = data[i] / (1.0f + expf(-data[i]));
}
at::Tensor forward(const at::Tensor& x, const at::Tensor& w, const c10::optional<at::Tensor>& bias, int64_t stride, int64_t pad) {
  at::Tensor y = at::conv2d(x, w, bias, {stride, stride}, {pad, pad}, {1, 1}, 1);
  swish_kernel<<<4, 128>>>(y.data_ptr<float>(), static_cast<int>(y.numel()));
  return at::adaptive_avg_pool2d(y, {1, 1}).flatten(1);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, py::arg("x"), py::arg("w"), py::arg("bias") = c10::nullopt, py::arg("stride") = 1,
        py::arg("pad") = 0);
}
