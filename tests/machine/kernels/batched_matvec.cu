#include <cuda_runtime.h>
constexpr unsigned kWarp = 32;

// y[b, m] = sum_k A[b, m, k] x[b, k]; a warp for each output, 8 warps in a block.
__global__ void matvec(const float* A, const float* x, float* y, int M, int K, int total) {
    const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp, lane = threadIdx.x % kWarp;
    if (warp >= total) return;
    const int b = warp / M;
    const float* a = A + (size_t)warp * K;
    float sum = 0.0f;
    for (int k = lane; k < K; k += kWarp) sum += a[k] * x[b * K + k];
    for (int delta = 1; delta < 32; delta *= 2) sum += __shfl_xor_sync(__activemask(), sum, delta);
    if (lane == 0) y[warp] = sum;
}
