// Several arrays in one dynamic shared block, more than 48 KiB by opt-in, and launches by cudaLaunchKernel(Ex).
#include <cstdio>
#include <cstdlib>
#include <cstring>

struct Sizes { int n; int rows; };

__global__ void packed(const float *in, float *out, Sizes s) {
  extern __shared__ __align__(16) unsigned char raw[];
  float *tile = reinterpret_cast<float *>(raw);
  int *order = reinterpret_cast<int *>(tile + s.n);
  double *sum = reinterpret_cast<double *>(order + s.n);
  for (int i = threadIdx.x; i < s.n; i += blockDim.x) {
    tile[i] = in[i];
    order[i] = s.n - 1 - i;
  }
  if (threadIdx.x == 0) *sum = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < s.n; i += blockDim.x) {
    out[i] = tile[order[i]];
    if (i < s.rows) atomicAdd(sum, (double)tile[i]);
  }
  __syncthreads();
  if (threadIdx.x == 0) out[s.n] = (float)*sum;
}

int main() {
  Sizes s = {8000, 100};
  size_t shared = s.n * 8 + 8, bytes = (s.n + 1) * sizeof(float);
  float *h = (float *)malloc(bytes), *in, *out;
  cudaMalloc(&in, bytes);
  cudaMalloc(&out, bytes);
  for (int i = 0; i < s.n; i++) h[i] = i;
  cudaMemcpy(in, h, bytes - 4, cudaMemcpyHostToDevice);
  if (cudaFuncSetAttribute(packed, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared)) return 2;
  cudaFuncAttributes a;
  cudaFuncGetAttributes(&a, packed);
  void *arguments[] = {&in, &out, &s};
  if (cudaLaunchKernel((const void *)packed, dim3(1), dim3(128), arguments, shared, 0)) return 3;
  memset(h, 0, bytes);
  cudaMemcpy(h, out, bytes, cudaMemcpyDeviceToHost);
  int wrong = h[s.n] != 4950.0f || a.maxThreadsPerBlock < 128;
  for (int i = 0; i < s.n; i++) wrong += h[i] != s.n - 1 - i;
  cudaMemset(out, 0, bytes);
  cudaLaunchConfig_t config = {0};
  config.gridDim = 1;
  config.blockDim = 64;
  config.dynamicSmemBytes = shared;
  if (cudaLaunchKernelEx(&config, packed, (const float *)in, out, s)) return 4;
  cudaMemcpy(h, out, bytes, cudaMemcpyDeviceToHost);
  for (int i = 0; i < s.n; i++) wrong += h[i] != s.n - 1 - i;
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
