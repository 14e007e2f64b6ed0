#define BLOCK_SIZE 256

extern "C" __global__ void sum_kernel(const float* __restrict__ data, float* result, int n) {
    __shared__ float cache[BLOCK_SIZE];
    int tid = threadIdx.x;
    float acc = 0.0f;
    for (int i = blockIdx.x * BLOCK_SIZE + tid; i < n; i += BLOCK_SIZE * gridDim.x) acc += data[i];
    cache[tid] = acc;
    __syncthreads();
    for (int stride = BLOCK_SIZE / 2; stride > 0; stride >>= 1) {
        if (tid < stride) cache[tid] += cache[tid + stride];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(result, cache[0]);
}
