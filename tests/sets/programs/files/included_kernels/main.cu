// The kernels are in a .cu that is included, as benchmarks do, with the reference in an included .c file.
// arguments: 64 3
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <sys/time.h>
#include "common.h"
#include "kernel.cu"
#include "reference.c"

int main(int argc, char **argv) {
  if (argc != 3) return usage(argv[0]);
  int n = atoi(argv[1]), steps = atoi(argv[2]);
  grid_t g = grid_new(n, n);
  FLOAT *d_in, *d_out;
  cudaMalloc((void **)&d_in, g.bytes);
  cudaMalloc((void **)&d_out, g.bytes);
  cudaMemcpy(d_in, g.cells, g.bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(d_out, g.cells, g.bytes, cudaMemcpyHostToDevice);
  double t = seconds();
  for (int i = 0; i < steps; i++) {
    stencil<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(d_in, d_out, n);
    FLOAT *s = d_in; d_in = d_out; d_out = s;
  }
  FLOAT *out = (FLOAT *)malloc(g.bytes);
  cudaMemcpy(out, d_in, g.bytes, cudaMemcpyDeviceToHost);
  t = seconds() - t;
  reference(&g, steps);
  FLOAT worst = t < 0;
  for (int i = 0; i < n * n; i++) worst = fmax(worst, fabs(out[i] - g.cells[i]));
  puts(worst < 1e-5 ? "PASS" : "FAIL");
  return worst >= 1e-5;
}
