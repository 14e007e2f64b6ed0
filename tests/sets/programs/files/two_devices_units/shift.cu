#include "steps.h"
static __device__ float amount;
static __device__ int count = 0;
static __global__ void step(float *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) count++;
  if (i < n) p[i] += amount;
}
namespace shift {
void run(float *p, int n, float by) {
  cudaMemcpyToSymbol(amount, &by, sizeof by);
  step<<<(n + 63) / 64, 64>>>(p, n);
}
int launches() {
  int c;
  cudaMemcpyFromSymbol(&c, count, sizeof c);
  return c;
}
}
