#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <vector>

#define CUDA_CHECK(x) x
#define THREADS 128

extern "C" __global__ void huber(const float* __restrict__ pred, const float* __restrict__ target, double* __restrict__ sum, int n, float delta) {
    __shared__ double warp_sums[THREADS / 32];
    double acc = 0.0;
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    while (idx < n) {
        float diff = fabsf(pred[idx] - target[idx]);
        acc += diff < delta ? 0.5 * diff * diff / delta : diff - 0.5 * delta;
        idx += blockDim.x * gridDim.x;
    }
    for (int offset = 16; offset > 0; offset /= 2) acc += __shfl_down_sync(0xffffffff, acc, offset);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = acc;
    __syncthreads();
    if (threadIdx.x == 0) {
        double block_sum = 0.0;
        for (int w = 0; w < THREADS / 32; ++w) block_sum += warp_sums[w];
        atomicAdd(sum, block_sum);
    }
}
