#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void casts(const float* x, __half* h, __nv_bfloat16* b, float* from_half, float* from_bf16,
                                 int* rounded, unsigned char* bytes, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        h[i] = __float2half(x[i]);
        b[i] = __float2bfloat16(x[i]);
        from_half[i] = __half2float(h[i]);
        from_bf16[i] = __bfloat162float(b[i]);
        rounded[i] = __float2int_rn(x[i]) + __float2int_rz(x[i]) * 1000;
        bytes[i] = (unsigned char)fminf(fmaxf(x[i], 0.f), 255.f);
    }
}
