#include <stdint.h>
#define BINS 64

extern "C" __global__ void histogram(const uint8_t* values, unsigned int* bins, int n) {
    __shared__ unsigned int local_bins[BINS];
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) local_bins[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        atomicAdd(&local_bins[values[i] % BINS], 1u);
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += blockDim.x)
        if (local_bins[b] > 0) atomicAdd(&bins[b], local_bins[b]);
}
