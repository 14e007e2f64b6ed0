// Zero-copy: mapped host memory by cudaHostAlloc, cudaHostRegister and a managed variable.
#include <stdio.h>
#include <stdlib.h>
#include <assert.h>

__managed__ int total;
__device__ __managed__ float table[4] = {1.f, 2.f, 3.f, 4.f};

__global__ void add(const int *a, const int *b, int *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(n > 0 && gridDim.y == 1);
  if (i < n) {
    c[i] = a[i] + b[i] + (int)table[i & 3];
    atomicAdd(&total, c[i]);
  }
}

int main() {
  const int n = 700;
  int *a, *b, *c, *da, *db, *dc;
  cudaDeviceProp prop;
  cudaGetDeviceProperties(&prop, 0);
  if (!prop.canMapHostMemory) return 3;
  cudaSetDeviceFlags(cudaDeviceMapHost);
  cudaHostAlloc((void **)&a, n * sizeof(int), cudaHostAllocMapped);
  cudaHostAlloc((void **)&b, n * sizeof(int), cudaHostAllocMapped | cudaHostAllocWriteCombined);
  posix_memalign((void **)&c, 4096, 4096);
  cudaHostRegister(c, 4096, cudaHostRegisterMapped);
  cudaHostGetDevicePointer((void **)&da, a, 0);
  cudaHostGetDevicePointer((void **)&db, b, 0);
  cudaHostGetDevicePointer((void **)&dc, c, 0);
  for (int i = 0; i < n; i++) { a[i] = i; b[i] = 2 * i; }
  total = 0;
  table[3] = 10.f;
  add<<<(n + 255) / 256, 256>>>(da, db, dc, n);
  cudaDeviceSynchronize();
  int sum = 0, wrong = 0;
  const int extra[4] = {1, 2, 3, 10};
  for (int i = 0; i < n; i++) {
    wrong += c[i] != 3 * i + extra[i & 3];
    sum += c[i];
  }
  cudaPointerAttributes where;
  cudaPointerGetAttributes(&where, a);
  printf("wrong %d, type %d\n", wrong, where.type == cudaMemoryTypeHost);
  bool good = !wrong && sum == total;
  cudaHostUnregister(c);
  free(c);
  cudaFreeHost(a);
  cudaFreeHost(b);
  puts(good ? "PASS" : "FAIL");
  return !good;
}
