// Index of the first maximum of each row, as torch.argmax gives it on ties of equal values.
struct Best {
    float value;
    int index;
};

__device__ Best better(Best a, Best b) {
    if (b.value > a.value || (b.value == a.value && b.index < a.index)) return b;
    return a;
}

extern "C" __global__ void argmax_kernel(const float* x, long long* out, int cols) {
    extern __shared__ char smem[];
    Best* table = reinterpret_cast<Best*>(smem);
    int tid = threadIdx.x;
    Best best = {-__int_as_float(0x7f800000), 0x7fffffff};
    for (int c = tid; c < cols; c += blockDim.x) best = better(best, Best{x[blockIdx.x * cols + c], c});
    table[tid] = best;
    __syncthreads();
    for (int s = blockDim.x >> 1; s; s >>= 1) {
        if (tid < s) table[tid] = better(table[tid], table[tid + s]);
        __syncthreads();
    }
    if (!tid) out[blockIdx.x] = table[0].index;
}
