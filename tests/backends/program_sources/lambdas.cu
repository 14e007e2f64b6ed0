#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
#define CHECK(e) do { cudaError_t err_ = (e); if (err_ != cudaSuccess) { printf("%s\n", cudaGetErrorString(err_)); return 1; } } while (0)
struct Params { float a, b; int n; };
namespace tools {
__device__ float scale(float v) { return v * 3; }
template <class F, class T> __global__ void map(const T *in, T *out, int n, F f) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = f(in[i]);
}
template <class T, class F> void apply(const T *in, T *out, int n, F f) { map<<<2, 64>>>(in, out, n, f); }
template <class T, int K> void power(const T *in, T *out, int n) {
  using Acc = T;
  constexpr int twice = 2 * K;
  apply(in, out, n, [] __device__ (T v) { Acc r = 1; float tmp[twice]; for (int i = 0; i < K; i++) { tmp[i] = v; r *= tmp[i]; } return r; });
}
void triple(float *x, int n) { apply(x, x, n, [=] __device__ (float v) -> float { return scale(v) + 0 * n; }); }
}  // namespace tools
template <class F> __global__ void each(F f, int n) { int i = threadIdx.x; if (i < n) f(i); }
template <class F> __global__ void reduce(float *out, F get, int n) {
  __shared__ float s[64];
  float v = 0;
  for (int i = threadIdx.x; i < n; i += 64) v += get(i);
  s[threadIdx.x] = v; __syncthreads();
  for (int o = 32; o; o >>= 1) { if (threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x + o]; __syncthreads(); }
  if (!threadIdx.x) *out = s[0];
}
int main(int argc, char **argv) {
  const int n = 64;
  std::vector<float> host(n);
  for (int i = 0; i < n; i++) host[i] = i;
  float *x, *y, w[3] = {1, 10, 100};
  CHECK(cudaMalloc(&x, n * sizeof(float)));
  CHECK(cudaMalloc((void **)&y, n * sizeof(float)));
  CHECK(cudaMemcpy(x, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  Params p{2, 5, n};
  auto affine = [p] __device__ (float v) {
    // comment with , ] } tokens
    return v * p.a + p.b;
  };
  tools::map<<<1, 32>>>(x, y, n, affine);
  tools::power<float, 2>(y, y, n);
  tools::triple(y, n);
  each<<<1, 64>>>([=] __device__ (int i) mutable {
    #pragma unroll
    for (int k = 0; k < 3; k++) y[i] += w[k];
    w[0]++; y[i] += w[0];
  }, n);
  for (int round = 0; round < 2; round++) {
    float add = 0.5f * round;
    each<<<1, n>>>([=] __device__ (auto i) { y[i] += add; if (i == n - 1) y[i] += round; }, n);
  }
  auto launch = [&](int first, float by) {
    each<<<1, 64>>>([=, shift = first + 1] __device__ (int i) { if (i >= first) y[i] += by * shift; }, n);
  };
  launch(62, 1000);
  auto square = [=] __host__ __device__ (int i, float v) -> float { return v * v + i; };
  reduce<<<1, 64>>>(x, [y, square] __device__ (int i) { return square(i, y[i] > 1e6f ? 1.f : 0.f); }, n);
  float sum; CHECK(cudaMemcpy(&sum, x, 4, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(host.data(), y, n * sizeof(float), cudaMemcpyDeviceToHost));
  printf("%g %g %g %g | %g %g\n", host[0], host[1], host[62], host[63], sum, square(3, 4.f));
  return 0;
}
