template <int BLOCK>
__global__ void layer_norm(const float* x, const float* gamma, const float* beta, float* y, int cols, float eps) {
    __shared__ float s_mean, s_rstd;
    __shared__ float partial[BLOCK / 32];
    const float* row = x + blockIdx.x * cols;
    auto reduce = [&](float v) {
        for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
        if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = v;
        __syncthreads();
        float total = 0.f;
        for (int w = 0; w < BLOCK / 32; ++w) total += partial[w];
        __syncthreads();
        return total;
    };
    float sum = 0.f;
    for (int c = threadIdx.x; c < cols; c += BLOCK) sum += row[c];
    sum = reduce(sum);
    if (threadIdx.x == 0) s_mean = sum / cols;
    __syncthreads();
    float var = 0.f;
    for (int c = threadIdx.x; c < cols; c += BLOCK) {
        float d = row[c] - s_mean;
        var += d * d;
    }
    var = reduce(var);
    if (threadIdx.x == 0) s_rstd = rsqrtf(var / cols + eps);
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += BLOCK)
        y[blockIdx.x * cols + c] = (row[c] - s_mean) * s_rstd * gamma[c] + (beta ? beta[c] : 0.f);
}
