// arguments: --size 500 -r 3 --verbose input.txt
// Options by getopt_long with a struct of parameters that host code fills and a kernel takes a part of.
#include <getopt.h>
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int n;
  float factor;
} Shape;

typedef struct {
  Shape shape;
  int repeat;
  bool verbose;
  const char *file;
  FILE *log;
} Params;

__global__ void work(float *p, Shape s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < s.n) p[i] += s.factor * i;
}

static void usage(const char *name) {
  fprintf(stderr, "usage: %s [-s N] [-r N] [-v] FILE\n", name);
  exit(2);
}

static Params input_params(int argc, char **argv) {
  Params p = {{1000, 0.5f}, 1, false, NULL, stderr};
  static struct option long_options[] = {{"size", required_argument, 0, 's'},
                                         {"repeat", required_argument, 0, 'r'},
                                         {"verbose", no_argument, 0, 'v'},
                                         {0, 0, 0, 0}};
  int opt;
  while ((opt = getopt_long(argc, argv, "s:r:vh", long_options, NULL)) != -1) {
    switch (opt) {
      case 's': p.shape.n = atoi(optarg); break;
      case 'r': p.repeat = atoi(optarg); break;
      case 'v': p.verbose = true; break;
      default: usage(argv[0]);
    }
  }
  if (optind < argc) p.file = argv[optind];
  return p;
}

int main(int argc, char **argv) {
  Params p = input_params(argc, argv);
  if (p.shape.n != 500 || p.repeat != 3 || !p.verbose || !p.file || strcmp(p.file, "input.txt")) usage(argv[0]);
  size_t bytes = p.shape.n * sizeof(float);
  float *h = (float *)calloc(p.shape.n, sizeof(float)), *d;
  cudaMalloc((void **)&d, bytes);
  cudaMemset(d, 0, bytes);
  for (int k = 0; k < p.repeat; k++) work<<<(p.shape.n + 63) / 64, 64>>>(d, p.shape);
  cudaMemcpy(h, d, bytes, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < p.shape.n; i++) wrong += h[i] != 1.5f * i;
  fprintf(p.log, "wrong: %d\n", wrong);
  printf(wrong ? "FAIL\n" : "PASS\n");
  free(h);
  cudaFree(d);
  return wrong;
}
