#include <cuda_runtime.h>
#include <cmath>

// Running maximum and running sum in one pass; partial results of threads are merged through shared memory.
__global__ void __launch_bounds__(128) softmax_online(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float maxima[128], sums[128];
    const int row = blockIdx.x;
    float m = -INFINITY, s = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 128) {
        float v = x[row * cols + c];
        float bigger = fmaxf(m, v);
        s = s * expf(m - bigger) + expf(v - bigger);
        m = bigger;
    }
    maxima[threadIdx.x] = m;
    sums[threadIdx.x] = s;
    __syncthreads();
    for (int half = 64; half >= 1; half /= 2) {
        if (threadIdx.x < half) {
            float m1 = maxima[threadIdx.x], m2 = maxima[threadIdx.x + half];
            float both = fmaxf(m1, m2);
            float left = m1 == -INFINITY ? 0.0f : sums[threadIdx.x] * expf(m1 - both);
            float right = m2 == -INFINITY ? 0.0f : sums[threadIdx.x + half] * expf(m2 - both);
            maxima[threadIdx.x] = both;
            sums[threadIdx.x] = left + right;
        }
        __syncthreads();
    }
    m = maxima[0];
    s = sums[0];
    for (int c = threadIdx.x; c < cols; c += 128) y[row * cols + c] = expf(x[row * cols + c] - m) / s;
}
