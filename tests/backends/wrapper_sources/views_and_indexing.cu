#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

using torch::indexing::Slice;
using torch::indexing::None;
using namespace torch::indexing;

torch::Tensor forward(torch::Tensor x) {
  auto a = x.index({Slice(1, None), Slice(None, None, 2)}).contiguous();
  auto b = x.slice(0, 1).slice(1, 0, x.size(1), 2);
  auto c = x.narrow(0, 1, x.size(0) - 1).select(1, 0);
  auto d = x[0].unsqueeze(0).expand({2, -1}).transpose(0, 1).reshape({-1});
  auto e = x.index_select(1, torch::tensor({2, 0}, torch::dtype(torch::kLong).device(x.device())));
  auto f = x.permute({1, 0}).flatten().view({x.size(1), -1}).squeeze(-1);
  auto y = torch::empty_like(a);
  scale_kernel<<<1, 256>>>(a.data_ptr<float>(), y.data_ptr<float>(), 2.0f, a.numel());
  auto out = torch::zeros({6}, x.options());
  out.index_put_({0}, (y - b * 2).abs().sum());
  out[1] = c.sum();
  out[2] = d.mean();
  out.index_put_({Slice(3, 5)}, e.sum(0));
  out[5] = f.select(0, 1).sum() + x.index({Ellipsis, -1}).sum();
  return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
