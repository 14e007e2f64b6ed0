// flags: --extended-lambda
// Kernels that take __device__ and __host__ __device__ lambdas.
#include <cstdio>
#include <vector>

template <typename F>
__global__ void for_each(int n, F f) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) f(i);
}
template <typename T, typename F>
__host__ __device__ T twice(F f, T x) { return f(f(x)); }
template <typename F>
void parallel_for(int n, F f) { for_each<<<4, 64>>>(n, f); }

int main() {
  const int n = 500;
  float *x, *y, a = 1.5f;
  cudaMallocManaged(&x, n * sizeof(float));
  cudaMallocManaged(&y, n * sizeof(float));
  parallel_for(n, [=] __device__(int i) { x[i] = a * i; y[i] = 0; });
  auto grow = [=] __host__ __device__(float v) { return v * 2.0f + a; };
  parallel_for(n, [x, y, grow] __device__(int i) { y[i] = grow(grow(x[i])); });
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < n; i++) wrong += y[i] != twice(grow, a * i);
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
