#include <cuda_runtime.h>
#include <device_launch_parameters.h>

extern "C" __global__ void vector_add(const float* a, const float* b, float* out, int n)
{
    int vec = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (vec + 3 < n) {
        const float4 va = *reinterpret_cast<const float4*>(a + vec);
        const float4 vb = *reinterpret_cast<const float4*>(b + vec);
        float4 r;
        r.x = va.x + vb.x;
        r.y = va.y + vb.y;
        r.z = va.z + vb.z;
        r.w = va.w + vb.w;
        *reinterpret_cast<float4*>(out + vec) = r;
    } else {
        for (int i = vec; i < n; ++i) out[i] = a[i] + b[i];
    }
}
