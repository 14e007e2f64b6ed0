#ifndef KERNEL_CU
#define KERNEL_CU
#include "common.h"
__global__ void stencil(const FLOAT *in, FLOAT *out, int n) {
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  if (x == 0 || y == 0 || x == n - 1 || y == n - 1) return;
  out[y * n + x] = (FLOAT)0.2 * (in[y * n + x] + in[y * n + x - 1] + in[y * n + x + 1] + in[(y - 1) * n + x] + in[(y + 1) * n + x]);
}
#endif
