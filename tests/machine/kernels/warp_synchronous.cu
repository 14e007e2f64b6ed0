// The old style: the last warp of a reduction without barriers, through volatile shared memory.
__device__ void warp_reduce(volatile float* s, int t) {
    s[t] += s[t + 32]; __syncwarp();
    s[t] += s[t + 16]; __syncwarp();
    s[t] += s[t + 8]; __syncwarp();
    s[t] += s[t + 4]; __syncwarp();
    s[t] += s[t + 2]; __syncwarp();
    s[t] += s[t + 1];
}

extern "C" __global__ void reduce_volatile(const float* x, float* out, int n) {
    __shared__ float s[128 + 32];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t] = (i < n ? x[i] : 0.f) + (i + 128 < n ? x[i + 128] : 0.f);
    if (t < 32) s[128 + t] = 0.f;
    __syncthreads();
    if (t < 64) s[t] += s[t + 64];
    __syncthreads();
    if (t < 32) warp_reduce(s, t);
    if (t == 0) out[blockIdx.x] = s[0];
}
