#include <c10/cuda/CUDAStream.h>
void launch_twice(const float* x, float* y, int n, cudaStream_t stream);
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "contiguous");
  torch::Tensor y = torch::empty(x.sizes(), x.options());
  launch_twice(x.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(x.numel()), c10::cuda::getCurrentCUDAStream().stream());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, "run"); }
