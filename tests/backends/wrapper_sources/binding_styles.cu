#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

#include <string>
#include <map>
torch::Tensor scaled(torch::Tensor x, double s) {
  auto y = torch::empty_like(x);
  scale_kernel<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), (float)s, x.numel());
  return y;
}
extern "C" int answer() { return 42; }
static std::string greet(const std::string& name, int times) { std::string s; for (int i = 0; i < times; ++i) s += name; return s; }
std::pair<torch::Tensor, std::string> pair_of(torch::Tensor x) { return {scaled(x, 2), "two"}; }
std::map<std::string, torch::Tensor> named(torch::Tensor x) { return {{"double", scaled(x, 2)}, {"half", scaled(x, 0.5)}}; }
std::optional<torch::Tensor> maybe(torch::Tensor x, bool give) { if (!give) return std::nullopt; return scaled(x, 1); }
void into(torch::Tensor x, torch::Tensor& out) { scale_kernel<<<1, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), 3.f, x.numel()); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "several bindings";
  m.def("scaled", &scaled, "Scales a tensor", py::arg("x"), py::arg("s") = 2.0);
  m.def("answer", []() { return answer(); });
  m.def("greet", &greet, py::arg("name") = "ab", py::arg("times") = 2);
  m.def("pair_of", &pair_of);
  m.def("named", &named);
  m.def("maybe", &maybe);
  m.def("into", &into, py::call_guard<py::gil_scoped_release>());
  m.def("quarter", [](torch::Tensor x) { return scaled(x, 0.25); }, "A lambda");
  m.attr("VERSION") = "1.0";
  m.attr("WIDTH") = 32;
}
