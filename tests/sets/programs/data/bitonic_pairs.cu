// Bitonic sort of key-value pairs in shared memory with a comparator on both sides and a typed union.
#include <cstdio>
#include <cstdlib>
#include <algorithm>
#include <vector>
union Pair { unsigned long long packed; struct { unsigned value; unsigned key; } part; };
__device__ inline void Comparator(unsigned &keyA, unsigned &valA, unsigned &keyB, unsigned &valB, unsigned dir) {
  unsigned t;
  if ((keyA > keyB) == dir) { t = keyA; keyA = keyB; keyB = t; t = valA; valA = valB; valB = t; }
}
template <unsigned LIMIT>
__global__ void bitonicSortShared(unsigned *keys, unsigned *values, unsigned length, unsigned dir) {
  __shared__ unsigned s_key[LIMIT], s_val[LIMIT];
  unsigned base = blockIdx.x * LIMIT + threadIdx.x;
  s_key[threadIdx.x] = keys[base]; s_val[threadIdx.x] = values[base];
  s_key[threadIdx.x + LIMIT / 2] = keys[base + LIMIT / 2]; s_val[threadIdx.x + LIMIT / 2] = values[base + LIMIT / 2];
  for (unsigned size = 2; size < length; size <<= 1) {
    unsigned ddd = dir ^ ((threadIdx.x & (size / 2)) != 0);
    for (unsigned stride = size / 2; stride > 0; stride >>= 1) {
      __syncthreads();
      unsigned pos = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
      Comparator(s_key[pos], s_val[pos], s_key[pos + stride], s_val[pos + stride], ddd);
    }
  }
  for (unsigned stride = length / 2; stride > 0; stride >>= 1) {
    __syncthreads();
    unsigned pos = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
    Comparator(s_key[pos], s_val[pos], s_key[pos + stride], s_val[pos + stride], dir);
  }
  __syncthreads();
  keys[base] = s_key[threadIdx.x]; values[base] = s_val[threadIdx.x];
  keys[base + LIMIT / 2] = s_key[threadIdx.x + LIMIT / 2]; values[base + LIMIT / 2] = s_val[threadIdx.x + LIMIT / 2];
}
int main() {
  const unsigned length = 128, batch = 5, n = length * batch;
  std::vector<unsigned> k(n), v(n);
  std::vector<Pair> pairs(n);
  for (unsigned i = 0; i < n; i++) { k[i] = (i * 2654435761u) >> 16; v[i] = i; pairs[i].part.key = k[i]; pairs[i].part.value = i; }
  unsigned *dk, *dv;
  cudaMalloc(&dk, n * 4); cudaMalloc(&dv, n * 4);
  cudaMemcpy(dk, &k[0], n * 4, cudaMemcpyHostToDevice); cudaMemcpy(dv, &v[0], n * 4, cudaMemcpyHostToDevice);
  bitonicSortShared<length><<<batch, length / 2>>>(dk, dv, length, 1u);
  cudaMemcpy(&k[0], dk, n * 4, cudaMemcpyDeviceToHost); cudaMemcpy(&v[0], dv, n * 4, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (unsigned b = 0; b < batch; b++) {
    std::sort(pairs.begin() + b * length, pairs.begin() + (b + 1) * length, [](const Pair &x, const Pair &y) { return x.packed < y.packed; });
    for (unsigned i = b * length; i < (b + 1) * length; i++) wrong += k[i] != pairs[i].part.key || ((v[i] * 2654435761u) >> 16) != k[i];
  }
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
