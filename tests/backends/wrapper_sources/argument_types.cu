#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

torch::Tensor forward(at::Tensor x, at::IntArrayRef sizes, const at::Scalar& factor, c10::optional<double> shift, at::ScalarType type,
                      c10::Device device, std::array<bool, 2> flags, std::tuple<int64_t, float> pair, std::string mode, uint8_t small) {
  TORCH_CHECK(device.is_cuda(), "wanted a CUDA device, got ", device);
  TORCH_CHECK(x.scalar_type() == type, "Expected ", type, " but got ", x.scalar_type());
  auto y = torch::empty(sizes, x.options());
  scale_kernel<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), factor.toFloat(), x.numel());
  if (shift.has_value()) y.add_(shift.value());
  if (flags[0] && !flags[1]) y = y + std::get<0>(pair) * std::get<1>(pair);
  return mode == "neg" ? y.neg() * small : y * small;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
