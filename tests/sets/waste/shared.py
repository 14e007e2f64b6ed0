"""Bank conflicts, barriers, and shared memory that limits occupancy."""

from sets.waste.case import Waste

_ROWS = """
r, c = x.shape
y = torch.empty(r, device=x.device)
m.sums[(r,), (256,)](x, y, c)
return y
"""

CASES = (
    Waste(
        "transpose_tile_unpadded",
        "bank_conflicts",
        "x.t().contiguous()",
        "randn(2048, 2048)",
        """
extern "C" __global__ void turn(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[32][32];
    int c = blockIdx.x * 32 + threadIdx.x, r0 = blockIdx.y * 32;
    for (int k = threadIdx.y; k < 32; k += 8)
        if (c < cols && r0 + k < rows) tile[k][threadIdx.x] = x[(size_t)(r0 + k) * cols + c];
    __syncthreads();
    int r = r0 + threadIdx.x, c0 = blockIdx.x * 32;
    for (int k = threadIdx.y; k < 32; k += 8)
        if (r < rows && c0 + k < cols)
            y[(size_t)(c0 + k) * rows + r] = tile[threadIdx.x][k];  // WASTE
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
        "tile_written_by_columns",
        "bank_conflicts",
        "x.t().contiguous()",
        "randn(2048, 2048)",
        """
extern "C" __global__ void turn(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[32 * 32];
    int c = blockIdx.x * 32 + threadIdx.x, r0 = blockIdx.y * 32;
    for (int k = threadIdx.y; k < 32; k += 8)
        if (c < cols && r0 + k < rows)
            tile[threadIdx.x * 32 + k] = x[(size_t)(r0 + k) * cols + c];  // WASTE
    __syncthreads();
    int r = r0 + threadIdx.x, c0 = blockIdx.x * 32;
    for (int k = threadIdx.y; k < 32; k += 8)
        if (r < rows && c0 + k < cols) y[(size_t)(c0 + k) * rows + r] = tile[k * 32 + threadIdx.x];
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
        "table_in_one_bank",
        "bank_conflicts",
        "x.square().cumsum(dim=1)[:, -1]",
        "randn(4096, 2048)",
        """
extern "C" __global__ void sums(const float* x, float* y, int cols) {
    __shared__ float part[32 * 33 * 8];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    float* mine = part + warp * 1024 + lane * 32;
    float total = 0.0f;
    for (int c = t; c < cols; c += 256) {
        float v = x[(size_t)blockIdx.x * cols + c];
        mine[c / 256 % 32] = v;  // WASTE
        total += v * mine[c / 256 % 32];  // WASTE
    }
    for (int s = 16; s > 0; s /= 2) total += __shfl_down_sync(0xffffffffu, total, s);
    __syncthreads();
    if (lane == 0) part[warp] = total;
    __syncthreads();
    if (t == 0) {
        float all = 0.0f;
        for (int w = 0; w < 8; ++w) all += part[w];
        y[blockIdx.x] = all;
    }
}
""",
        _ROWS,
    ),
    Waste(
        "reduce_by_strided_index",
        "bank_conflicts",
        "x.sum(dim=1)",
        "randn(32768, 256)",
        """
extern "C" __global__ void sums(const float* x, float* y, int cols) {
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = t < cols ? x[(size_t)blockIdx.x * cols + t] : 0.0f;
    __syncthreads();
    for (int s = 1; s < 256; s *= 2) {
        int i = 2 * s * t;
        if (i < 256) part[i] += part[i + s];  // WASTE
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}
""",
        _ROWS,
    ),
    Waste(
        "barrier_for_every_element",
        "barriers",
        "x.sum(dim=1)",
        "randn(2048, 4096)",
        """
extern "C" __global__ void sums(const float* x, float* y, int cols) {
    __shared__ float part[256];
    int t = threadIdx.x;
    float total = 0.0f;
    for (int c = 0; c < cols; c += 256) {
        part[t] = c + t < cols ? x[(size_t)blockIdx.x * cols + c + t] : 0.0f;
        for (int s = 128; s > 0; s >>= 1) {
            __syncthreads();  // WASTE
            if (t < s) part[t] += part[t + s];
        }
        if (t == 0) total += part[0];
        __syncthreads();  // WASTE
    }
    if (t == 0) y[blockIdx.x] = total;
}
""",
        _ROWS,
    ),
    Waste(
        "hundred_kilobytes_a_block",
        "occupancy",
        "x * 2 + 1",
        "randn(8192, 1024)",
        """
extern "C" __global__ void scaled(const float* x, float* y, int cols) {  // WASTE
    extern __shared__ float row[];
    for (int c = threadIdx.x; c < cols; c += blockDim.x) row[c] = x[(size_t)blockIdx.x * cols + c];
    for (int c = threadIdx.x; c < cols; c += blockDim.x) y[(size_t)blockIdx.x * cols + c] = row[c] * 2.0f + 1.0f;
}
""",
        """
r, c = x.shape
y = torch.empty_like(x)
m.scaled[(r,), (64,), 100 * 1024](x, y, c)  # WASTE
return y
""",
    ),
)
