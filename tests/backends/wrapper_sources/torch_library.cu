#include <torch/extension.h>
#include <torch/library.h>

template <typename T>
__global__ void scale_kernel(const T* x, T* y, float factor, float shift, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * factor + shift;
}

torch::Tensor launch(const torch::Tensor& x, double factor, double shift) {
  TORCH_CHECK(x.is_cuda(), "a CUDA tensor is expected");
  auto y = torch::empty_like(x);
  int n = x.numel();
  scale_kernel<float><<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), factor, shift, n);
  return y;
}

torch::Tensor scaled(torch::Tensor x, double factor, double shift) { return launch(x, factor, shift); }
torch::Tensor on_the_processor(torch::Tensor x, double factor, double shift) { return x * 1000; }
torch::Tensor plain(const at::Tensor& x, int64_t times) { return launch(x, times, 0); }
std::vector<torch::Tensor> both(std::vector<torch::Tensor> list, const std::optional<torch::Tensor>& more) {
  for (auto& x : list) x = launch(x, more ? 3 : 2, 0);
  return list;
}
torch::Tensor sums(const torch::Tensor& x) { return x.sum(); }
std::tuple<torch::Tensor, torch::Tensor> pair_of_sums(const torch::Tensor& x) { return {x.sum(), x.amax()}; }
void double_(torch::Tensor x) { x.copy_(launch(x, 2, 0)); }

class Triple : public torch::autograd::Function<Triple> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, torch::Tensor x, double factor) {
    ctx->save_for_backward({x});
    ctx->saved_data["factor"] = factor;
    return launch(x, factor, 0);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                               torch::autograd::tensor_list grads) {
    auto saved = ctx->get_saved_variables();
    return {launch(grads[0], ctx->saved_data["factor"].toDouble(), 0), torch::Tensor()};
  }
};
torch::Tensor forward(torch::Tensor x) { return Triple::apply(x, 3.0); }

TORCH_LIBRARY(kw_wrapper_test, m) {
  m.def("scaled(Tensor x, float factor=1.5, *, float shift=0.0) -> Tensor");
  m.def("plain", &plain);
  m.def("kw_wrapper_test::both(Tensor[] list, Tensor? more) -> Tensor[]", &both);
  m.def("sums(Tensor x) -> Tensor", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(sums)));
  m.def("count", [](const torch::Tensor& x) -> int64_t { return x.numel(); });
}
TORCH_LIBRARY_FRAGMENT(kw_wrapper_test, m) {
  m.def("sums.pair(Tensor x) -> (Tensor, Tensor)");
  m.def("double_(Tensor(a!) x) -> ()");
}
TORCH_LIBRARY_IMPL(kw_wrapper_test, CPU, m) { m.impl("scaled", &on_the_processor); }
TORCH_LIBRARY_IMPL(kw_wrapper_test, CUDA, m) {
  m.impl("scaled", &scaled);
  m.impl("sums.pair", pair_of_sums);
  m.impl("double_", TORCH_FN(double_));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
