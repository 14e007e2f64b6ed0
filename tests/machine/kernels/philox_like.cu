// A counter based generator in integer arithmetic, and a dropout mask from it.
__device__ __forceinline__ unsigned int hash(unsigned int x) {
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    x ^= x >> 16;
    return x;
}

extern "C" __global__ void dropout(const float* x, float* y, unsigned int* words, unsigned long long seed, float p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long state = seed + i * 6364136223846793005ULL;
    unsigned int w = hash((unsigned int)(state >> 32) ^ (unsigned int)state);
    float u = (w >> 8) * (1.0f / 16777216.0f);
    words[i] = __brev(w) ^ __byte_perm(w, i, 0x5410) ^ __funnelshift_l(w, i, 7);
    y[i] = u < p ? 0.0f : x[i] / (1.0f - p);
}
