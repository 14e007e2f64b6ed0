// A radix sort of unsigned keys with histograms in shared memory, an exclusive scan, and a stable scatter.
#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <vector>
#define RADIX 16
#define BITS 4
typedef unsigned int uint;
__global__ void histogram(const uint *keys, uint *counts, int n, int shift) {
  __shared__ uint local[RADIX];
  if (threadIdx.x < RADIX) local[threadIdx.x] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&local[(keys[i] >> shift) & (RADIX - 1)], 1u);
  __syncthreads();
  if (threadIdx.x < RADIX) counts[threadIdx.x * gridDim.x + blockIdx.x] = local[threadIdx.x];
}
__global__ void scan(uint *counts, int n) {
  __shared__ uint s[2][512];
  int t = threadIdx.x, now = 0;
  s[0][t] = t > 0 && t - 1 < n ? counts[t - 1] : 0;
  __syncthreads();
  for (int o = 1; o < blockDim.x; o *= 2) {
    s[1 - now][t] = s[now][t] + (t >= o ? s[now][t - o] : 0);
    now = 1 - now;
    __syncthreads();
  }
  if (t < n) counts[t] = s[now][t];
}
__global__ void scatter(const uint *in, uint *out, const uint *starts, int n, int shift) {
  __shared__ uint digits[128];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  uint key = i < n ? in[i] : ~0u, digit = (key >> shift) & (RADIX - 1);
  digits[threadIdx.x] = i < n ? digit : RADIX;
  __syncthreads();
  if (i >= n) return;
  uint rank = 0;
  for (int k = 0; k < threadIdx.x; k++) rank += digits[k] == digit;
  out[starts[digit * gridDim.x + blockIdx.x] + rank] = key;
}
int compare(const void *a, const void *b) { return *(uint *)a < *(uint *)b ? -1 : *(uint *)a > *(uint *)b; }
int main() {
  const int n = 1500, blocks = (n + 127) / 128;
  assert(blocks * RADIX <= 512);
  std::vector<uint> h(n), out(n);
  srand(11);
  for (auto &k : h) k = rand() & 0xffff;
  uint *a, *b, *counts;
  cudaMalloc(&a, n * 4); cudaMalloc(&b, n * 4); cudaMalloc(&counts, blocks * RADIX * 4);
  cudaMemcpy(a, h.data(), n * 4, cudaMemcpyHostToDevice);
  for (int shift = 0; shift < 16; shift += BITS) {
    histogram<<<blocks, 128>>>(a, counts, n, shift);
    scan<<<1, 512>>>(counts, blocks * RADIX);
    scatter<<<blocks, 128>>>(a, b, counts, n, shift);
    std::swap(a, b);
  }
  cudaMemcpy(out.data(), a, n * 4, cudaMemcpyDeviceToHost);
  qsort(h.data(), n, sizeof(uint), compare);
  puts(out == h ? "PASS" : "FAIL");
  return out != h;
}
