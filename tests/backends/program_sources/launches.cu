// Kernels that launch kernels: what runs when, recursion, arguments of every size, errors.
#include <cstdio>
#include <cuda_runtime.h>

__device__ int place;
__device__ char seen[64];
__device__ int errors[3], count;

__device__ void note(char c) { seen[atomicAdd(&place, 1)] = c; }
__global__ void say(char c) { note(c); }
__global__ void inner(char c) {
  say<<<1, 1, 0, cudaStreamTailLaunch>>>(c + 2);
  note(c);
  say<<<1, 1>>>(c + 1);
}
__global__ void outer() {
  say<<<1, 1, 0, cudaStreamTailLaunch>>>('Z');
  inner<<<1, 1>>>('a');
  inner<<<1, 1>>>('m');
  say<<<1, 1, 0, cudaStreamFireAndForget>>>('x');
  note('P');
}

struct Wide {
  double a;
  char b;
  float c[3];
};
template <int W, class T>
__global__ void add(char first, T* x, Wide w, bool twice) {
  extern __shared__ T part[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = x[i];
  __syncthreads();
  x[i] = part[blockDim.x - 1 - threadIdx.x] + T(first + w.a + w.b + w.c[2] + W) * (twice ? 2 : 1);
}
__global__ void spread(float* x, int n) {
  Wide w{1, 2, {0, 0, 3}};
  if (blockIdx.x == 1 && threadIdx.x == 0) add<100><<<dim3(n / 32), 32, 32 * sizeof(float)>>>(char(10), x, w, true);
}

__device__ void swap_values(int* a, int* b) {
  int t = *a;
  *a = *b;
  *b = t;
}
__global__ void quick(int* x, int l, int r) {
  int p = x[(l + r) / 2], i = l, j = r;
  while (i <= j) {
    while (x[i] < p) i++;
    while (x[j] > p) j--;
    if (i <= j) swap_values(x + i++, x + j--);
  }
  cudaStream_t s;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  if (l < j) quick<<<1, 1, 0, s>>>(x, l, j);
  if (i < r) quick<<<1, 1, 0, s>>>(x, i, r);
  cudaStreamDestroy(s);
}

__global__ void wrong() {
  say<<<1, 2048>>>('?');
  errors[0] = cudaPeekAtLastError();
  errors[1] = cudaGetLastError();
  errors[2] = cudaGetLastError();
  int device = -1;
  cudaGetDevice(&device);
  printf("device %d %s: %s\n", device, cudaGetErrorName(cudaError_t(errors[0])), cudaGetErrorString(cudaSuccess));
}
__global__ void down(int n) {
  count = n;
  if (n < 40) down<<<1, 1>>>(n + 1);
}

int main() {
  outer<<<1, 1>>>();
  say<<<1, 1>>>('!');
  char text[64] = {0};
  cudaMemcpyFromSymbol(text, seen, 64);
  printf("order %s\n", text);

  float* x;
  cudaMallocManaged(&x, 64 * sizeof(float));
  for (int i = 0; i < 64; i++) x[i] = i;
  spread<<<2, 32>>>(x, 64);
  cudaDeviceSynchronize();
  printf("spread %g %g\n", x[0], x[63]);

  const int n = 200;
  int host[n], *d, bad = 0;
  for (int i = 0; i < n; i++) host[i] = (i * 7919) % 1009;
  cudaMalloc(&d, sizeof host);
  cudaMemcpy(d, host, sizeof host, cudaMemcpyHostToDevice);
  quick<<<1, 1>>>(d, 0, n - 1);
  cudaMemcpy(host, d, sizeof host, cudaMemcpyDeviceToHost);
  for (int i = 1; i < n; i++) bad += host[i] < host[i - 1];
  printf("sorted %d\n", bad);

  wrong<<<1, 1>>>();
  int e[3];
  cudaMemcpyFromSymbol(e, errors, sizeof e);
  printf("errors %d %d %d\n", e[0], e[1], e[2]);
  down<<<1, 1>>>(0);
  cudaMemcpyFromSymbol(e, count, 4);
  printf("depth %d\n", e[0]);
}
