// half, half2 and bfloat16 with intrinsics and operators.
#include <cstdio>
#include <cmath>
#include <cuda_fp16.h>
#include <cuda_bf16.h>

__global__ void axpy(const half2 *x, half2 *y, half2 a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma2(a, x[i], y[i]);
}
__global__ void narrow(const float *x, __nv_bfloat16 *b, half *h, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  b[i] = __float2bfloat16(x[i]);
  h[i] = __hadd(__float2half(x[i]), hsqrt(__float2half(4.0f)));
  if (__hgt(h[i], __float2half(100.0f))) h[i] = (half)0.0f;
}

int main() {
  const int n = 256;
  half2 *x, *y;
  float *f;
  __nv_bfloat16 *b;
  half *h;
  cudaMallocManaged(&x, n * sizeof(half2));
  cudaMallocManaged(&y, n * sizeof(half2));
  cudaMallocManaged(&f, n * sizeof(float));
  cudaMallocManaged(&b, n * sizeof(__nv_bfloat16));
  cudaMallocManaged(&h, n * sizeof(half));
  for (int i = 0; i < n; i++) {
    x[i] = __floats2half2_rn(i * 0.25f, -i * 0.5f);
    y[i] = __float2half2_rn(1.0f);
    f[i] = 1.0f + i / 128.0f;
  }
  axpy<<<2, 128>>>(x, y, __float2half2_rn(2.0f), n);
  narrow<<<2, 128>>>(f, b, h, n);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < n; i++) {
    wrong += __low2float(y[i]) != 1.0f + 0.5f * i || __high2float(y[i]) != 1.0f - i;
    wrong += fabsf(__bfloat162float(b[i]) - f[i]) > f[i] / 256 || fabsf(__half2float(h[i]) - f[i] - 2) > 4e-3f;
  }
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
