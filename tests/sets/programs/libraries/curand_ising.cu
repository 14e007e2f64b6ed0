// An Ising lattice by checkerboard updates with Philox, and normal numbers with their moments.
#include <cstdio>
#include <cmath>
#include <vector>
#include <curand_kernel.h>

template <bool black>
__global__ void update(signed char *spins, int nx, int ny, float beta, unsigned long long seed, int step) {
  int id = blockIdx.x * blockDim.x + threadIdx.x, i = id / (ny / 2), j = id % (ny / 2);
  if (i >= nx) return;
  curandStatePhilox4_32_10_t rng;
  curand_init(seed, id, 2 * step + black, &rng);
  int col = 2 * j + ((i + (black ? 1 : 0)) & 1);
  int up = (i + nx - 1) % nx, down = (i + 1) % nx, left = (col + ny - 1) % ny, right = (col + 1) % ny;
  int sum = spins[up * ny + col] + spins[down * ny + col] + spins[i * ny + left] + spins[i * ny + right];
  float accept = expf(-2.0f * beta * sum * spins[i * ny + col]);
  if (curand_uniform(&rng) < accept) spins[i * ny + col] = -spins[i * ny + col];
}
__global__ void normals(float *mean, float *square, int each) {
  curandState_t s;
  curand_init(99, blockIdx.x * blockDim.x + threadIdx.x, 0, &s);
  float m = 0, q = 0;
  for (int i = 0; i < each; i += 3) {
    float2 pair = curand_normal2(&s);
    float one = curand_normal(&s);
    m += pair.x + pair.y + one;
    q += pair.x * pair.x + pair.y * pair.y + one * one;
  }
  atomicAdd(mean, m);
  atomicAdd(square, q);
}

int main() {
  const int nx = 32, ny = 32;
  std::vector<signed char> h(nx * ny, 1);
  signed char *d;
  float *m, sums[2];
  cudaMalloc(&d, nx * ny);
  cudaMalloc(&m, 8);
  cudaMemset(m, 0, 8);
  cudaMemcpy(d, h.data(), nx * ny, cudaMemcpyHostToDevice);
  for (int step = 0; step < 10; step++) {
    update<true><<<4, 128>>>(d, nx, ny, 1.0f, 7ULL, step);
    update<false><<<4, 128>>>(d, nx, ny, 1.0f, 7ULL, step);
  }
  normals<<<4, 64>>>(m, m + 1, 60);
  cudaMemcpy(h.data(), d, nx * ny, cudaMemcpyDeviceToHost);
  cudaMemcpy(sums, m, 8, cudaMemcpyDeviceToHost);
  double magnet = 0, n = 4 * 64 * 60;
  for (signed char s : h) magnet += s;
  magnet /= nx * ny;
  bool good = magnet > 0.9 && fabs(sums[0] / n) < 0.04 && fabs(sums[1] / n - 1) < 0.06;
  printf("%.3f %.3f %.3f\n", magnet, sums[0] / n, sums[1] / n);
  puts(good ? "PASS" : "FAIL");
  return !good;
}
