#include <cuda_fp16.h>

extern "C" __global__ void scatter_add(const float* src, const long long* index, float* dst, double* dst64, int n, int D) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * D) return;
    long long row = index[i / D];
    atomicAdd(&dst[row * D + i % D], src[i]);
    atomicAdd(&dst64[row], (double)src[i]);
}

extern "C" __global__ void count_up(int* counts, unsigned long long* big, unsigned int* bits, int* swapped) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicSub(&counts[0], 2);
    atomicMax(&counts[1], i);
    atomicInc((unsigned int*)&counts[2], 9u);
    atomicAdd(big, 1ull << 33);
    atomicOr(&bits[0], 1u << (i & 31));
    atomicXor(&bits[1], 1u << (i & 31));
    atomicAnd(&bits[2], ~(1u << (i & 7)));
    if (i == 5) atomicExch(swapped, 77);
}
