struct Welford {
    float mean = 0.f;
    float m2 = 0.f;
    float count = 0.f;
    __device__ void push(float v) {
        count += 1.f;
        float d = v - mean;
        mean += d / count;
        m2 += d * (v - mean);
    }
    __device__ Welford merge(const Welford& o) const {
        Welford r;
        r.count = count + o.count;
        if (r.count == 0.f) return r;
        float d = o.mean - mean;
        r.mean = mean + d * o.count / r.count;
        r.m2 = m2 + o.m2 + d * d * count * o.count / r.count;
        return r;
    }
};

// x: [N, C, HW]; a block for each (n, group).
extern "C" __global__ void group_norm(const float* x, const float* weight, const float* bias, float* y, int C, int HW,
                                      int groups, float eps) {
    extern __shared__ __align__(16) unsigned char raw[];
    Welford* parts = (Welford*)raw;
    int per = C / groups, n = blockIdx.y, g = blockIdx.x;
    size_t base = ((size_t)n * C + g * per) * HW;
    Welford acc;
    for (int i = threadIdx.x; i < per * HW; i += blockDim.x) acc.push(x[base + i]);
    parts[threadIdx.x] = acc;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) parts[threadIdx.x] = parts[threadIdx.x].merge(parts[threadIdx.x + s]);
        __syncthreads();
    }
    float mean = parts[0].mean, rstd = rsqrtf(parts[0].m2 / parts[0].count + eps);
    for (int i = threadIdx.x; i < per * HW; i += blockDim.x) {
        int c = g * per + i / HW;
        y[base + i] = (x[base + i] - mean) * rstd * weight[c] + bias[c];
    }
}
