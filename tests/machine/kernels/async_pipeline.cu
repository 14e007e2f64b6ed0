#include <cuda_pipeline.h>

// Two buffers: the next tile is on its way while this one is summed.
extern "C" __global__ void pipelined_sum(const float4* x, float* out, int tiles) {
    __shared__ float4 stage[2][32];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&stage[0][t], &x[t], sizeof(float4));
    __pipeline_commit();
    float sum = 0.f;
    for (int i = 0; i < tiles; ++i) {
        if (i + 1 < tiles) __pipeline_memcpy_async(&stage[(i + 1) & 1][t], &x[(i + 1) * 32 + t], sizeof(float4));
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = stage[i & 1][31 - t];
        sum += v.x + v.y + v.z + v.w;
        __syncthreads();
    }
    out[t] = sum;
}
