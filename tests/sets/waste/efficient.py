"""Kernels without a large waste: a profile must not claim any."""

from sets.waste.case import Waste

CASES = (
    Waste(
        "add_by_fours",
        "",
        "x + x1",
        "randn(4096, 1024); randn(4096, 1024)",
        """
extern "C" __global__ void add(const float4* a, const float4* b, float4* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 u = a[i], v = b[i];
    c[i] = make_float4(u.x + v.x, u.y + v.y, u.z + v.z, u.w + v.w);
}
""",
        """
n = x.numel() // 4
y = torch.empty_like(x)
m.add[((n + 255) // 256,), (256,)](x, x1, y, n)
return y
""",
    ),
    Waste(
        "transpose_padded",
        "",
        "x.t().contiguous()",
        "randn(2048, 2048)",
        """
extern "C" __global__ void turn(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r0 = blockIdx.y * 32;
    for (int k = threadIdx.y; k < 32; k += 8)
        if (c < cols && r0 + k < rows) tile[k][threadIdx.x] = x[(size_t)(r0 + k) * cols + c];
    __syncthreads();
    int r = r0 + threadIdx.x, c0 = blockIdx.x * 32;
    for (int k = threadIdx.y; k < 32; k += 8)
        if (r < rows && c0 + k < cols) y[(size_t)(c0 + k) * rows + r] = tile[threadIdx.x][k];
}
""",
        """
r, c = x.shape
y = torch.empty(c, r, device=x.device)
m.turn[((c + 31) // 32, (r + 31) // 32), (32, 8)](x, y, r, c)
return y
""",
    ),
    Waste(
        "softmax_in_registers",
        "",
        "torch.softmax(x, dim=1)",
        "randn(8192, 1024)",
        """
extern "C" __global__ void softmax(const float4* x, float4* y) {
    __shared__ float part[8];
    int t = threadIdx.x;
    float4 v = x[(size_t)blockIdx.x * 256 + t];
    float best = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
    for (int s = 16; s > 0; s /= 2) best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, s));
    if (t % 32 == 0) part[t / 32] = best;
    __syncthreads();
    for (int w = 0; w < 8; ++w) best = fmaxf(best, part[w]);
    __syncthreads();
    v.x = expf(v.x - best); v.y = expf(v.y - best); v.z = expf(v.z - best); v.w = expf(v.w - best);
    float total = v.x + v.y + v.z + v.w;
    for (int s = 16; s > 0; s /= 2) total += __shfl_xor_sync(0xffffffffu, total, s);
    if (t % 32 == 0) part[t / 32] = total;
    __syncthreads();
    total = 0.0f;
    for (int w = 0; w < 8; ++w) total += part[w];
    y[(size_t)blockIdx.x * 256 + t] = make_float4(v.x / total, v.y / total, v.z / total, v.w / total);
}
""",
        """
y = torch.empty_like(x)
m.softmax[(x.shape[0],), (256,)](x, y)
return y
""",
    ),
    Waste(
        "sums_by_warps",
        "",
        "x.sum(dim=1)",
        "randn(16384, 1024)",
        """
extern "C" __global__ void sums(const float4* x, float* y, int cols) {
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float total = 0.0f;
    for (int c = lane; c < cols / 4; c += 32) {
        float4 v = x[(size_t)row * (cols / 4) + c];
        total += v.x + v.y + v.z + v.w;
    }
    for (int s = 16; s > 0; s /= 2) total += __shfl_down_sync(0xffffffffu, total, s);
    if (lane == 0) y[row] = total;
}
""",
        """
r, c = x.shape
y = torch.empty(r, device=x.device)
m.sums[(r // 8,), (256,)](x, y, c)
return y
""",
    ),
)
