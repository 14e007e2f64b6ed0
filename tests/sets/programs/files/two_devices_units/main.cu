// files: scale.cu shift.cu
// Units with static device variables and kernels of the same name, each its own.
#include <cstdio>
#include "steps.h"

__global__ void step(float *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] -= 1;
}

int main() {
  const int n = 150;
  float h[n], *d;
  for (int i = 0; i < n; i++) h[i] = i;
  cudaMalloc(&d, sizeof h);
  cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice);
  scale::run(d, n, 3.0f);
  shift::run(d, n, 7.0f);
  step<<<2, 128>>>(d, n);
  cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
  int wrong = scale::launches() != 1 || shift::launches() != 1;
  for (int i = 0; i < n; i++) wrong += h[i] != 3.0f * i + 6;
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
