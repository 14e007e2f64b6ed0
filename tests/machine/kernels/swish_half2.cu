#include <cuda_fp16.h>

extern "C" __global__ void swish_half2(const __half2* x, __half2* y, int pairs) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs) return;
    __half2 v = x[i];
    float2 f = __half22float2(v);
    __half2 gate = __floats2half2_rn(1.0f / (1.0f + __expf(-f.x)), 1.0f / (1.0f + __expf(-f.y)));
    y[i] = __hmul2(v, gate);
}

extern "C" __global__ void half_arithmetic(const half* a, const half* b, half* out, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    half s = __hadd(a[i], b[i]);
    half p = __hmul(a[i], b[i]);
    out[i] = __hfma(s, p, __float2half(0.5f));
    out[n + i] = __hgt(a[i], b[i]) ? a[i] : b[i];
    out[2 * n + i] = hsqrt(__habs(a[i]));
    out[3 * n + i] = __hsub(a[i], __hneg(b[i]));
}
