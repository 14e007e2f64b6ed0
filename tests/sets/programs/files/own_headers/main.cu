// Two headers beside the program: constants and a kernel with its device functions.
#include <cstdio>
#include "config.h"
#include "kernels.cuh"

int main() {
  real h[N], *d;
  for (int i = 0; i < N; i++) h[i] = i;
  cudaMalloc(&d, sizeof h);
  cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice);
  polynomial<<<(N + BLOCK - 1) / BLOCK, BLOCK>>>(d, N, Coefficients{1, 2, 3});
  cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < N; i++) wrong += h[i] != evaluate(Coefficients{1, 2, 3}, i);
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
