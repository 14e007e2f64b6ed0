"""Waste of the whole call: many launches, intermediate tensors, copies, and a card that is mostly idle."""

from sets.waste.case import Waste

CASES = (
    Waste(
        "launch_for_every_row",
        "launches",
        "torch.relu(x)",
        "randn(512, 2048)",
        """
extern "C" __global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
""",
        """
r, c = x.shape
y = torch.empty_like(x)
for k in range(r):
    m.relu[((c + 255) // 256,), (256,)](x[k], y[k], c)  # WASTE
return y
""",
    ),
    Waste(
        "chain_of_five",
        "launches",
        "torch.relu(x * 2 + 1).square() * 0.5",
        "randn(4096, 4096)",
        """
extern "C" __global__ void scale(const float* x, float* y, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * by;
}
extern "C" __global__ void shift(const float* x, float* y, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + by;
}
extern "C" __global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
extern "C" __global__ void square(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
""",
        """
n = x.numel()
g, b = ((n + 255) // 256,), (256,)
a, c, d, e, y = (torch.empty_like(x) for _ in range(5))
m.scale[g, b](x, a, 2.0, n)
m.shift[g, b](a, c, 1.0, n)  # WASTE
m.relu[g, b](c, d, n)  # WASTE
m.square[g, b](d, e, n)  # WASTE
m.scale[g, b](e, y, 0.5, n)  # WASTE
return y
""",
    ),
    Waste(
        "contiguous_before_the_kernel",
        "copies",
        "torch.relu(x.t()).contiguous()",
        "randn(2048, 2048)",
        """
extern "C" __global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
""",
        """
n = x.numel()
turned = x.t().contiguous()  # WASTE
y = torch.empty_like(turned)
m.relu[((n + 255) // 256,), (256,)](turned, y, n)
return y
""",
    ),
    Waste(
        "one_thread_for_all",
        "parallelism",
        "x.cumsum(dim=0)",
        "randn(65536)",
        """
extern "C" __global__ void scan(const float* x, float* y, int n) {
    float total = 0.0f;
    for (int i = 0; i < n; ++i) {
        total += x[i];
        y[i] = total;
    }
}
""",
        """
n = x.numel()
y = torch.empty_like(x)
m.scan[(1,), (1,)](x, y, n)  # WASTE
return y
""",
    ),
    Waste(
        "one_block_for_all",
        "parallelism",
        "x.square().sum().reshape(1)",
        "randn(1024, 1024)",
        """
extern "C" __global__ void norms(const float* x, float* y, int n) {
    __shared__ float part[8];
    float total = 0.0f;
    for (int i = threadIdx.x; i < n; i += 256) total += x[i] * x[i];
    for (int s = 16; s > 0; s /= 2) total += __shfl_down_sync(0xffffffffu, total, s);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        total = 0.0f;
        for (int w = 0; w < 8; ++w) total += part[w];
        y[0] = total;
    }
}
""",
        """
n = x.numel()
y = torch.empty(1, device=x.device)
m.norms[(1,), (256,)](x, y, n)  # WASTE
return y
""",
    ),
    Waste(
        "few_blocks_for_tall_rows",
        "parallelism",
        "x.amax(dim=1)",
        "randn(4, 262144)",
        """
extern "C" __global__ void most(const float* x, float* y, int cols) {
    __shared__ float part[8];
    float best = -3.0e38f;
    for (int c = threadIdx.x; c < cols; c += 256) best = fmaxf(best, x[(size_t)blockIdx.x * cols + c]);
    for (int s = 16; s > 0; s /= 2) best = fmaxf(best, __shfl_down_sync(0xffffffffu, best, s));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) best = fmaxf(best, part[w]);
        y[blockIdx.x] = best;
    }
}
""",
        """
r, c = x.shape
y = torch.empty(r, device=x.device)
m.most[(r,), (256,)](x, y, c)  # WASTE
return y
""",
    ),
)
