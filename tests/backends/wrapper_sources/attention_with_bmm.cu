#include <torch/extension.h>

__global__ void softmax_rows(float* x, int cols, float scale) {
  float* row = x + (size_t)blockIdx.x * cols;
  __shared__ float share[32];
  float m = -INFINITY;
  for (int c = threadIdx.x; c < cols; c += 32) m = fmaxf(m, row[c] * scale);
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, o));
  float s = 0;
  for (int c = threadIdx.x; c < cols; c += 32) { row[c] = __expf(row[c] * scale - m); s += row[c]; }
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
  if (threadIdx.x == 0) share[0] = s;
  __syncwarp();
  for (int c = threadIdx.x; c < cols; c += 32) row[c] /= share[0];
}
torch::Tensor forward(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
  const int64_t B = q.size(0), H = q.size(1), T = q.size(2), D = q.size(3);
  auto scores = torch::bmm(q.reshape({B * H, T, D}), k.reshape({B * H, T, D}).transpose(-2, -1)).contiguous();
  softmax_rows<<<B * H * T, 32>>>(scores.data_ptr<float>(), T, 1.0f / std::sqrt(static_cast<float>(D)));
  return at::bmm(scores, v.reshape({B * H, T, D})).view({B, H, T, D});
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
