// Estimates pi by cuRAND's device interface: one state a thread, kept between launches.
#include <cstdio>
#include <cmath>
#include <curand_kernel.h>

__global__ void setup(curandState *state, unsigned long long seed, int n) {
  int id = threadIdx.x + blockIdx.x * blockDim.x;
  if (id < n) curand_init(seed, id, 0, &state[id]);
}
__global__ void count(curandState *state, unsigned *hits, int n, int samples) {
  int id = threadIdx.x + blockIdx.x * blockDim.x;
  if (id >= n) return;
  curandState local = state[id];
  unsigned found = 0;
  for (int i = 0; i < samples; i++) {
    float x = curand_uniform(&local), y = curand_uniform(&local);
    found += x * x + y * y <= 1.0f;
  }
  state[id] = local;
  atomicAdd(hits, found);
}

int main() {
  const int n = 256, samples = 200;
  curandState *states;
  unsigned *hits, total;
  cudaMalloc((void **)&states, n * sizeof(curandState));
  cudaMalloc((void **)&hits, sizeof(unsigned));
  cudaMemset(hits, 0, sizeof(unsigned));
  setup<<<2, 128>>>(states, 1234ULL, n);
  for (int k = 0; k < 2; k++) count<<<2, 128>>>(states, hits, n, samples);
  cudaMemcpy(&total, hits, sizeof total, cudaMemcpyDeviceToHost);
  double pi = 4.0 * total / (2.0 * n * samples);
  printf("pi about %.1f\n", pi);
  bool good = fabs(pi - M_PI) < 0.03;
  puts(good ? "PASS" : "FAIL");
  return !good;
}
