// Inclusive scan of rows of any length: chunks of a block, warp scans by shuffles, a running carry.
extern "C" __global__ void cumsum(const float* x, float* y, int cols) {
    __shared__ float warp_totals[8];
    __shared__ float carry;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (threadIdx.x == 0) carry = 0.0f;
    __syncthreads();
    for (int start = 0; start < cols; start += blockDim.x) {
        int c = start + threadIdx.x;
        float v = c < cols ? x[blockIdx.x * cols + c] : 0.0f;
        for (int d = 1; d < 32; d <<= 1) {
            float up = __shfl_up_sync(0xffffffff, v, d);
            if (lane >= d) v += up;
        }
        if (lane == 31) warp_totals[warp] = v;
        __syncthreads();
        float before = carry;
        for (int w = 0; w < warp; ++w) before += warp_totals[w];
        if (c < cols) y[blockIdx.x * cols + c] = v + before;
        __syncthreads();
        if (threadIdx.x == blockDim.x - 1) carry = v + before;
        __syncthreads();
    }
}
