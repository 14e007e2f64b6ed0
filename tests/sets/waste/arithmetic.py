"""Idle lanes, double precision, local memory, and work that is done again."""

from sets.waste.case import Waste

_FLAT = """
n = x.numel()
y = torch.empty_like(x)
m.apply[((n + 255) // 256,), (256,)](x, y, n)
return y
"""
_SUMS = """
r, c = x.shape
y = torch.empty(r, device=x.device)
m.sums[(r,), (256,)](x, y, c)
return y
"""

CASES = (
    Waste(
        "even_lanes_odd_lanes",
        "divergence",
        "torch.where(torch.arange(x.shape[1], device=x.device) % 2 == 0, x ** 40, x ** 39)",
        "rand(4096, 1024)",
        """
extern "C" __global__ void apply(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i], p = 1.0f;
    if (i % 2 == 0) {  // WASTE
        #pragma unroll 1
        for (int k = 0; k < 40; ++k) p = p * v;  // WASTE
    } else {
        #pragma unroll 1
        for (int k = 0; k < 39; ++k) p = v * p;  // WASTE
    }
    y[i] = p;
}
""",
        _FLAT,
    ),
    Waste(
        "first_thread_alone",
        "divergence",
        "x.sum(dim=1)",
        "randn(8192, 512)",
        """
extern "C" __global__ void sums(const float* x, float* y, int cols) {
    __shared__ float row[512];
    for (int c = threadIdx.x; c < cols; c += blockDim.x) row[c] = x[(size_t)blockIdx.x * cols + c];
    __syncthreads();
    if (threadIdx.x == 0) {  // WASTE
        float total = 0.0f;
        for (int c = 0; c < cols; ++c) total += row[c];  // WASTE
        y[blockIdx.x] = total;
    }
}
""",
        _SUMS,
    ),
    Waste(
        "four_lanes_of_a_warp",
        "divergence",
        "x.exp().sum(dim=1)",
        "randn(16384, 64)",
        """
extern "C" __global__ void sums(const float* x, float* y, int cols) {
    int lane = threadIdx.x % 32;
    if (lane >= 4) return;
    int row = (blockIdx.x * 256 + threadIdx.x) / 32;
    float total = 0.0f;
    for (int c = lane; c < cols; c += 4)
        total += expf(x[(size_t)row * cols + c]);  // WASTE
    for (int s = 2; s > 0; s /= 2) total += __shfl_down_sync(0xfu, total, s);
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
    Waste(
        "blocks_of_33",
        "divergence",
        "torch.tanh(x)",
        "randn(4096, 1024)",
        """
extern "C" __global__ void apply(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = tanhf(x[i]);  // WASTE
}
""",
        """
n = x.numel()
y = torch.empty_like(x)
m.apply[((n + 32) // 33,), (33,)](x, y, n)  # WASTE
return y
""",
    ),
    Waste(
        "double_by_a_literal",
        "double",
        "0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))",
        "randn(4096, 1024)",
        """
extern "C" __global__ void apply(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = 0.5 * v * (1.0 + tanh(0.7978845608 * (v + 0.044715 * v * v * v)));  // WASTE
}
""",
        _FLAT,
    ),
    Waste(
        "local_array_by_index",
        "local",
        "torch.sort(x, dim=1).values",
        "randn(65536, 32)",
        """
extern "C" __global__ void sorted(const float* x, float* y, int rows) {
    __shared__ float tile[32][33];
    int base = blockIdx.x * 32, t = threadIdx.x;
    for (int k = 0; k < 32; ++k)
        if (base + k < rows) tile[k][t] = x[(size_t)(base + k) * 32 + t];
    __syncwarp();
    float v[32];
    for (int k = 0; k < 32; ++k) v[k] = tile[t][k];
    for (int i = 1; i < 32; ++i) {
        float key = v[i];
        int j = i - 1;
        while (j >= 0 && v[j] > key) {  // WASTE
            v[j + 1] = v[j];  // WASTE
            --j;
        }
        v[j + 1] = key;  // WASTE
    }
    __syncwarp();
    for (int k = 0; k < 32; ++k) tile[t][k] = v[k];
    __syncwarp();
    for (int k = 0; k < 32; ++k)
        if (base + k < rows) y[(size_t)(base + k) * 32 + t] = tile[k][t];
}
""",
        """
r = x.shape[0]
y = torch.empty_like(x)
m.sorted[((r + 31) // 32,), (32,)](x, y, r)
return y
""",
    ),
    Waste(
        "one_total_for_all",
        "atomics",
        "x.sum().reshape(1)",
        "randn(4096, 1024)",
        """
extern "C" __global__ void apply(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(y, x[i]);  // WASTE
}
""",
        """
n = x.numel()
y = torch.zeros(1, device=x.device)
m.apply[((n + 255) // 256,), (256,)](x, y, n)
return y
""",
    ),
    Waste(
        "powers_by_powf",
        "special",
        "x ** 2 + x ** 3 + x ** 4",
        "rand(4096, 1024)",
        """
extern "C" __global__ void apply(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i], two = 2.0f + 0.0f * n, three = two + 1.0f, four = two + 2.0f;
    y[i] = powf(v, two) + powf(v, three) + powf(v, four);  // WASTE
}
""",
        _FLAT,
    ),
)
