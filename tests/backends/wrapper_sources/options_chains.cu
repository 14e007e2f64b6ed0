#include <torch/extension.h>

__global__ void iota(int64_t* p, int n) { int i = threadIdx.x; if (i < n) p[i] = i; }
std::vector<torch::Tensor> forward(torch::Tensor x) {
  auto opts = torch::TensorOptions().dtype(torch::kInt64).device(x.device()).requires_grad(false);
  auto a = torch::empty({5}, opts);
  iota<<<1, 32>>>(a.data_ptr<int64_t>(), 5);
  auto b = torch::full({2, 2}, 1.5, torch::device(torch::kCUDA).dtype(torch::kFloat32));
  auto c = torch::ones({3}, x.options().dtype(at::kDouble));
  auto d = at::zeros({2}, at::TensorOptions(at::kCUDA).dtype(at::kInt));
  auto e = torch::arange(0, 6, 2, torch::dtype(torch::kFloat).device(torch::kCUDA, 0));
  auto f = torch::empty_strided({2, 3}, {1, 2}, x.options()).fill_(1);
  auto g = torch::full_like(x, 2).to(c10::kInt);
  auto h = torch::eye(2, x.options()) + torch::linspace(0, 1, 2, x.options());
  return {a, b, c, d, e, f, g, h};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
