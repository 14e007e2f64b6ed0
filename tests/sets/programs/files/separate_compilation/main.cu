// files: device_functions.cu
// flags: -rdc=true
// Relocatable device code: a kernel calls a function and reads a constant of another unit.
#include <cstdio>
#include "device_functions.h"

__global__ void apply(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = weighted(x[i]) + offset;
}

int main() {
  const int n = 100;
  float h[n], *d, w = 2.5f;
  for (int i = 0; i < n; i++) h[i] = i;
  cudaMalloc(&d, sizeof h);
  cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice);
  cudaMemcpyToSymbol(weight, &w, sizeof w);
  apply<<<1, 128>>>(d, n);
  cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < n; i++) wrong += h[i] != 2.5f * i + 4;
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
