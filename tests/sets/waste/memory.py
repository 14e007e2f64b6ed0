"""Wasted sectors and bytes read again and again from global memory."""

from sets.waste.case import Waste

CASES = (
    Waste(
        "transpose_column_stores",
        "global_store",
        "x.t().contiguous()",
        "randn(2048, 2048)",
        """
extern "C" __global__ void turn(const float* x, float* y, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c < cols && r < rows)
        y[(size_t)c * rows + r] = x[(size_t)r * cols + c];  // WASTE
}
""",
        """
r, c = x.shape
y = torch.empty(c, r, device=x.device)
m.turn[((c + 31) // 32, (r + 7) // 8), (32, 8)](x, y, r, c)
return y
""",
    ),
    Waste(
        "transpose_column_loads",
        "global_load",
        "x.t().contiguous()",
        "randn(2048, 2048)",
        """
extern "C" __global__ void turn(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    int c = blockIdx.y * blockDim.y + threadIdx.y;
    if (c < cols && r < rows) {
        float v = x[(size_t)r * cols + c];  // WASTE
        y[(size_t)c * rows + r] = v;
    }
}
""",
        """
r, c = x.shape
y = torch.empty(c, r, device=x.device)
m.turn[((r + 31) // 32, (c + 7) // 8), (32, 8)](x, y, r, c)
return y
""",
    ),
    Waste(
        "row_per_thread_sum",
        "global_load",
        "x.sum(dim=1)",
        "randn(65536, 256)",
        """
extern "C" __global__ void sums(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float total = 0.0f;
    for (int c = 0; c < cols; ++c)
        total += x[(size_t)r * cols + c];  // WASTE
    y[r] = total;
}
""",
        """
r, c = x.shape
y = torch.empty(r, device=x.device)
m.sums[((r + 255) // 256,), (256,)](x, y, r, c)
return y
""",
    ),
    Waste(
        "structs_of_eight",
        "global_load",
        "x.square().sum(dim=1).sqrt()",
        "randn(1048576, 8)",
        """
struct Item { float v[8]; };
extern "C" __global__ void lengths(const Item* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float total = 0.0f;
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
        float a = x[i].v[k];  // WASTE
        total += a * a;
    }
    y[i] = sqrtf(total);
}
""",
        """
n = x.shape[0]
y = torch.empty(n, device=x.device)
m.lengths[((n + 255) // 256,), (256,)](x, y, n)
return y
""",
    ),
    Waste(
        "softmax_down_columns",
        "global_load",
        "torch.softmax(x, dim=0)",
        "randn(1024, 2048)",
        """
extern "C" __global__ void down(const float* x, float* y, int rows, int cols) {
    __shared__ float part[256];
    int c = blockIdx.x, t = threadIdx.x;
    float best = -3.0e38f;
    for (int r = t; r < rows; r += 256) best = fmaxf(best, x[(size_t)r * cols + c]);  // WASTE
    part[t] = best;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (t < s) part[t] = fmaxf(part[t], part[t + s]);
        __syncthreads();
    }
    best = part[0];
    __syncthreads();
    float total = 0.0f;
    for (int r = t; r < rows; r += 256) total += expf(x[(size_t)r * cols + c] - best);  // WASTE
    part[t] = total;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    total = part[0];
    for (int r = t; r < rows; r += 256)
        y[(size_t)r * cols + c] = expf(x[(size_t)r * cols + c] - best) / total;  // WASTE
}
""",
        """
r, c = x.shape
y = torch.empty_like(x)
m.down[(c,), (256,)](x, y, r, c)
return y
""",
    ),
    Waste(
        "gather_row_per_thread",
        "global",
        "x[x1]",
        "randn(5000, 128); randint(0, 5000, (65536,))",
        """
extern "C" __global__ void take(const float* table, const long long* which, float* y, int n, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float* row = table + which[i] * width;
    for (int k = 0; k < width; ++k)
        y[(size_t)i * width + k] = row[k];  // WASTE
}
""",
        """
n, w = x1.numel(), x.shape[1]
y = torch.empty(n, w, device=x.device)
m.take[((n + 127) // 128,), (128,)](x, x1, y, n, w)
return y
""",
    ),
    Waste(
        "plain_matmul",
        "rereads",
        "x @ x1",
        "randn(1024, 1024); randn(1024, 1024)",
        """
extern "C" __global__ void product(const float* a, const float* b, float* c, int n, int k, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || col >= cols) return;
    float total = 0.0f;
    for (int i = 0; i < k; ++i)
        total += a[(size_t)row * k + i] * b[(size_t)i * cols + col];  // WASTE
    c[(size_t)row * cols + col] = total;
}
""",
        """
n, k = x.shape
cols = x1.shape[1]
c = torch.empty(n, cols, device=x.device)
m.product[((cols + 31) // 32, (n + 7) // 8), (32, 8)](x, x1, c, n, k, cols)
return c
""",
    ),
    Waste(
        "mean_by_every_thread",
        "rereads",
        "x - x.mean(dim=1, keepdim=True)",
        "randn(2048, 1024)",
        """
extern "C" __global__ void centre(const float* x, float* y, int cols) {
    int r = blockIdx.x;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float total = 0.0f;
        for (int k = 0; k < cols; ++k)
            total += x[(size_t)r * cols + k];  // WASTE
        y[(size_t)r * cols + c] = x[(size_t)r * cols + c] - total / cols;
    }
}
""",
        """
r, c = x.shape
y = torch.empty_like(x)
m.centre[(r,), (256,)](x, y, c)
return y
""",
    ),
    Waste(
        "prefix_sum_from_the_start",
        "rereads",
        "x.cumsum(dim=1)",
        "randn(512, 1024)",
        """
extern "C" __global__ void prefix(const float* x, float* y, int cols) {
    const float* row = x + (size_t)blockIdx.x * cols;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float total = 0.0f;
        for (int k = 0; k <= c; ++k)
            total += row[k];  // WASTE
        y[(size_t)blockIdx.x * cols + c] = total;
    }
}
""",
        """
r, c = x.shape
y = torch.empty_like(x)
m.prefix[(r,), (256,)](x, y, c)
return y
""",
    ),
    Waste(
        "window_of_31",
        "rereads",
        "torch.nn.functional.avg_pool1d(x, 31, stride=1)",
        "randn(64, 16, 8192)",
        """
extern "C" __global__ void window(const float* x, float* y, int n, int out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= out) return;
    const float* row = x + (size_t)blockIdx.y * n;
    float total = 0.0f;
    for (int k = 0; k < 31; ++k)
        total += row[i + k];  // WASTE
    y[(size_t)blockIdx.y * out + i] = total / 31.0f;
}
""",
        """
a, b, n = x.shape
out = n - 30
y = torch.empty(a, b, out, device=x.device)
m.window[((out + 255) // 256, a * b), (256,)](x, y, n, out)
return y
""",
    ),
)
