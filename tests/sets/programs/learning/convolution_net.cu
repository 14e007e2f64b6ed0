// A convolution, a pooling layer, a dense layer and an Adam step, each a functor-like host class.
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <vector>

template <int K>
__global__ void conv(const float *x, const float *w, float *y, int c_in, int h, int width) {
  int ox = threadIdx.x, oy = threadIdx.y, oc = blockIdx.x, oh = h - K + 1, ow = width - K + 1;
  if (ox >= ow || oy >= oh) return;
  float s = 0;
  for (int c = 0; c < c_in; c++)
#pragma unroll
    for (int i = 0; i < K; i++)
#pragma unroll
      for (int j = 0; j < K; j++) s = fmaf(x[(c * h + oy + i) * width + ox + j], w[((oc * c_in + c) * K + i) * K + j], s);
  y[(oc * oh + oy) * ow + ox] = fmaxf(s, 0.0f);
}
__global__ void pool(const float *x, float *y, int h, int w) {
  int i = threadIdx.x, c = blockIdx.x, oh = h / 2, ow = w / 2;
  if (i >= oh * ow) return;
  const float2 *top = reinterpret_cast<const float2 *>(x + (c * h + i / ow * 2) * w) + i % ow;
  const float2 *low = reinterpret_cast<const float2 *>(x + (c * h + i / ow * 2 + 1) * w) + i % ow;
  y[c * oh * ow + i] = fmaxf(fmaxf(top->x, top->y), fmaxf(low->x, low->y));
}
__global__ void adam(float *p, float *m, float *v, const float *g, float b1, float b2, float eps, float lr, int t, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    m[i] = b1 * m[i] + (1.f - b1) * g[i];
    v[i] = b2 * v[i] + (1.f - b2) * g[i] * g[i];
    p[i] -= lr * (m[i] / (1.f - powf(b1, t))) / (sqrtf(v[i] / (1.f - powf(b2, t))) + eps);
  }
}
struct Tensor {
  std::vector<int> shape;
  std::shared_ptr<float> data;
  Tensor(std::initializer_list<int> s) : shape(s) {
    float *p;
    cudaMallocManaged(&p, size() * sizeof(float));
    data = std::shared_ptr<float>(p, [](float *q) { cudaFree(q); });
  }
  int size() const { return std::accumulate(shape.begin(), shape.end(), 1, [](int a, int b) { return a * b; }); }
  float *get() const { return data.get(); }
};
int main() {
  Tensor x{2, 12, 12}, w{4, 2, 3, 3}, y{4, 10, 10}, z{4, 5, 5}, m{100}, v{100};
  for (int i = 0; i < x.size(); i++) x.get()[i] = (i % 11) - 5;
  for (int i = 0; i < w.size(); i++) w.get()[i] = (i % 5) - 2;
  for (int i = 0; i < 100; i++) m.get()[i] = v.get()[i] = 0;
  conv<3><<<4, dim3(16, 16)>>>(x.get(), w.get(), y.get(), 2, 12, 12);
  pool<<<4, 32>>>(y.get(), z.get(), 10, 10);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int c = 0; c < 4; c++)
    for (int p = 0; p < 25; p++) {
      float best = 0;
      for (int q = 0; q < 4; q++) {
        int oy = p / 5 * 2 + q / 2, ox = p % 5 * 2 + q % 2;
        float s = 0;
        for (int k = 0; k < 18; k++) s += x.get()[(k / 9 * 12 + oy + k % 9 / 3) * 12 + ox + k % 3] * w.get()[c * 18 + k];
        best = std::fmax(best, s);
      }
      wrong += best != z.get()[c * 25 + p];
    }
  std::vector<float> before(z.get(), z.get() + 100);
  adam<<<2, 32>>>(z.get(), m.get(), v.get(), y.get(), 0.9f, 0.999f, 1e-8f, 0.01f, 1, 100);
  cudaDeviceSynchronize();
  for (int i = 0; i < 100; i++) wrong += fabsf(before[i] - z.get()[i] - (y.get()[i] != 0 ? 0.01f : 0.0f)) > 1e-4f;
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
