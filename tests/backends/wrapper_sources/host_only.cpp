#include <torch/extension.h>
std::vector<torch::Tensor> many(torch::Tensor x) {
  auto [v, i] = x.max(1);
  return {torch::matmul(x, x.t()), torch::cat({x, x}, 0).flip({1}).cumsum(1), v, i, x.sum({0}, true).view({-1, 1}) * 2 + 1.0f,
          torch::softmax(x, -1), at::linear(x, x, {}), torch::where(x > 0, x, torch::zeros_like(x)), 1.0 / x, 2 - x, x.pow(2),
          x.std(1, /*unbiased=*/false), torch::abs(x).clamp_min(0.5).log(), x.to(torch::kHalf), x[0], x.argmax(1),
          torch::arange(0, 10, 2), x.mean(1), torch::einsum("ij,kj->ik", {x, x}), x.index({torch::indexing::Slice(0, 2), 1}),
          torch::conv2d(x.view({1, 1, x.size(0), x.size(1)}), torch::ones({1, 1, 2, 2}), {}, 1, 1),
          torch::tensor({1.0, 2.5}), torch::full({2}, x.sum().item<float>()), x.transpose(0, 1).contiguous(),
          torch::nn::functional::relu(x), x.unsqueeze(0).expand({3, -1, -1}), x.norm(), std::get<0>(x.sort(1, true))};
}

torch::Tensor optional(c10::optional<torch::Tensor> x) { return x.has_value() ? *x : torch::Tensor(); }
double numbers(int a, int64_t b, float c, double d, bool e) { return a + b + c + d + (e ? 100 : 0); }
std::string text(const std::string& s) { return s + "!"; }
std::tuple<int64_t, std::vector<double>, bool> mixed(std::vector<int64_t> v) { return {v.size(), {0.5, 1.5}, true}; }
void boom(torch::Tensor x) { TORCH_CHECK(x.dim() == 2, "want 2 dims, got ", x.dim(), " in ", x.sizes()); }
void standard() { throw std::runtime_error("plain"); }
torch::Tensor shapes(torch::Tensor x) { return x.view({7, 7, 7}); }
torch::Tensor typed(torch::Tensor x) { x.data_ptr<float>(); return x; }
void fill(torch::Tensor x) { x.fill_(3).add_(1); x.resize_({2, 2}); TORCH_CHECK(x.size(0) == 2 && x.numel() == 4); }
torch::Tensor fresh(torch::Tensor x) { return torch::empty_like(x); }
static torch::Tensor kept;
torch::Tensor keep(torch::Tensor x) { if (!kept.defined()) kept = x; return kept; }
torch::Tensor guarded(torch::Tensor x) { torch::NoGradGuard guard; return x * 2; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("many", &many); m.def("optional", &optional, py::arg("x") = py::none());
  m.def("numbers", &numbers, "adds", py::arg("a"), py::arg("b") = 2, py::arg("c") = 0.5f, py::arg("d") = 1e-1, py::arg("e") = false);
  m.def("text", &text); m.def("mixed", &mixed); m.def("boom", &boom); m.def("standard", &standard);
  m.def("shapes", &shapes); m.def("typed", &typed); m.def("fill", &fill); m.def("fresh", &fresh); m.def("keep", &keep);
  m.def("guarded", &guarded);
  m.def("scaled", [](torch::Tensor x, float a) { return x * a; });
  m.def("over", [](int64_t a) { return a; });
  m.def("over", [](const torch::Tensor& a) { return a.size(-1); });
}
