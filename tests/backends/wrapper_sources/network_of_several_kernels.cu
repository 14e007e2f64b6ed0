#include <torch/extension.h>

__global__ void conv3x3(const float* x, const float* w, const float* b, float* y, int N, int C, int H, int W, int K) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N * K * H * W) return;
  int wq = i % W, hq = (i / W) % H, k = (i / (W * H)) % K, n = i / (W * H * K);
  float s = b ? b[k] : 0.f;
  for (int c = 0; c < C; ++c)
    for (int dy = -1; dy <= 1; ++dy)
      for (int dx = -1; dx <= 1; ++dx) {
        int yy = hq + dy, xx = wq + dx;
        if (yy >= 0 && yy < H && xx >= 0 && xx < W) s += x[((n * C + c) * H + yy) * W + xx] * w[((k * C + c) * 3 + dy + 1) * 3 + dx + 1];
      }
  y[i] = s;
}
__global__ void relu_pool2(const float* x, float* y, int planes, int H, int W) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, h = H / 2, w = W / 2;
  if (i >= planes * h * w) return;
  int xx = i % w, yy = (i / w) % h, p = i / (w * h);
  const float* q = x + (p * H + 2 * yy) * W + 2 * xx;
  y[i] = fmaxf(fmaxf(fmaxf(q[0], q[1]), fmaxf(q[W], q[W + 1])), 0.f);
}
__global__ void dense(const float* x, const float* w, const float* b, float* y, int rows, int in, int out) {
  int r = blockIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= out) return;
  float s = b[c];
  for (int k = 0; k < in; ++k) s += x[r * in + k] * w[c * in + k];
  y[r * out + c] = s;
}
torch::Tensor forward(torch::Tensor x, std::vector<torch::Tensor> weights) {
  const auto N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
  const auto K = weights[0].size(0);
  auto a = torch::empty({N, K, H, W}, x.options());
  conv3x3<<<(a.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), weights[0].data_ptr<float>(), weights[1].data_ptr<float>(), a.data_ptr<float>(), N, C, H, W, K);
  auto b = torch::empty({N, K, H / 2, W / 2}, x.options());
  relu_pool2<<<(b.numel() + 127) / 128, 128>>>(a.data_ptr<float>(), b.data_ptr<float>(), N * K, H, W);
  auto flat = b.view({N, -1});
  const int out = weights[2].size(0);
  auto y = torch::empty({N, out}, x.options());
  dim3 grid((out + 31) / 32, N);
  dense<<<grid, 32>>>(flat.data_ptr<float>(), weights[2].data_ptr<float>(), weights[3].data_ptr<float>(), y.data_ptr<float>(), N, flat.size(1), out);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
