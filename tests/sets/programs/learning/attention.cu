// Attention with an online softmax, one warp a query, template head size, and std::string options from the environment.
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <string>
#include <vector>
template <int D>
__global__ void attend(const float *__restrict__ q, const float *__restrict__ k, const float *__restrict__ v, float *__restrict__ o, int n, float scale, bool causal) {
  int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= n) return;
  constexpr int per = D / 32;
  float mine[per], acc[per], m = -INFINITY, l = 0;
  for (int i = 0; i < per; i++) { mine[i] = q[row * D + i * 32 + lane] * scale; acc[i] = 0; }
  int last = causal ? row + 1 : n;
  for (int j = 0; j < last; j++) {
    float s = 0;
    for (int i = 0; i < per; i++) s += mine[i] * k[j * D + i * 32 + lane];
    for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
    float next = fmaxf(m, s), keep = __expf(m - next), p = __expf(s - next);
    l = l * keep + p;
    for (int i = 0; i < per; i++) acc[i] = acc[i] * keep + p * v[j * D + i * 32 + lane];
    m = next;
  }
  for (int i = 0; i < per; i++) o[row * D + i * 32 + lane] = acc[i] / l;
}
int main() {
  const int n = 30, D = 64;
  std::vector<float> q(n * D), k(n * D), v(n * D), o(n * D);
  for (int i = 0; i < n * D; i++) { q[i] = sinf(i); k[i] = cosf(0.5f * i); v[i] = sinf(0.1f * i); }
  float *d[4];
  for (auto &p : d) cudaMalloc(&p, n * D * sizeof(float));
  cudaMemcpy(d[0], q.data(), n * D * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(d[1], k.data(), n * D * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(d[2], v.data(), n * D * 4, cudaMemcpyHostToDevice);
  const char *mode = std::getenv("ATTENTION_MODE");
  bool causal = std::string(mode ? mode : "causal") == "causal";
  attend<D><<<(n + 3) / 4, 128>>>(d[0], d[1], d[2], d[3], n, 1.0f / sqrtf(D), causal);
  cudaMemcpy(o.data(), d[3], n * D * 4, cudaMemcpyDeviceToHost);
  double worst = 0;
  for (int r = 0; r < n; r++) {
    std::vector<double> s(n), out(D);
    double total = 0;
    for (int j = 0; j <= (causal ? r : n - 1); j++) {
      for (int i = 0; i < D; i++) s[j] += (double)q[r * D + i] * k[j * D + i] / 8;
      total += s[j] = exp(s[j]);
    }
    for (int i = 0; i < D; i++) {
      for (int j = 0; j <= (causal ? r : n - 1); j++) out[i] += s[j] / total * v[j * D + i];
      worst = fmax(worst, fabs(out[i] - o[r * D + i]));
    }
  }
  puts(worst < 1e-4 ? "PASS" : "FAIL");
  return worst >= 1e-4;
}
