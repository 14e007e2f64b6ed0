"""Scans, recurrences and small sorts: Hillis-Steele, Blelloch, warps, three kernels, decoupled look-back, bitonic."""

from __future__ import annotations

from .case import Case, bound, file, inline, model, plain, task


def _rows(expression: str, rows: int, cols: int, made: str = "torch.randn(rows, cols)") -> str:
    return task(f"rows = {rows}\ncols = {cols}", made, "x", f"return {expression}")


HILLIS_STEELE = plain(
    r"""
// Chunks of 256 columns, each scanned in log steps between two buffers; the carry goes on to the next chunk.
extern "C" __global__ void hillis_steele(const float* x, float* y, int cols) {
    __shared__ float buffer[2][256];
    const size_t base = (size_t)blockIdx.x * cols;
    float carry = 0.f;
    for (int start = 0; start < cols; start += 256) {
        const int j = start + threadIdx.x;
        int now = 0;
        buffer[0][threadIdx.x] = j < cols ? x[base + j] : 0.f;
        __syncthreads();
        for (int step = 1; step < 256; step *= 2) {
            float v = buffer[now][threadIdx.x];
            if (threadIdx.x >= step) v += buffer[now][threadIdx.x - step];
            buffer[now ^ 1][threadIdx.x] = v;
            now ^= 1;
            __syncthreads();
        }
        if (j < cols) y[base + j] = carry + buffer[now][threadIdx.x];
        carry += buffer[now][255];
        __syncthreads();
    }
}
""",
    model("x", "y = torch.empty_like(x)\nmodule.hillis_steele[x.shape[0], 256](x, y, x.shape[1])\nreturn y"),
)

BLELLOCH = inline(
    "torch::Tensor exclusive(torch::Tensor x);",
    r"""
// Exclusive prefix sums of integers, up-sweep and down-sweep over a power of two.
template <int N> __global__ void blelloch(const int* x, int* y, int cols) {
    __shared__ int tree[N];
    const int a = threadIdx.x, b = threadIdx.x + N / 2;
    int carry = 0;
    for (int start = 0; start < cols; start += N) {
        const int* in = x + (size_t)blockIdx.x * cols + start;
        const int left = cols - start;
        tree[a] = a < left ? in[a] : 0;
        tree[b] = b < left ? in[b] : 0;
        int offset = 1;
        for (int d = N / 2; d > 0; d /= 2, offset *= 2) {
            __syncthreads();
            if (threadIdx.x < d) tree[offset * (2 * threadIdx.x + 2) - 1] += tree[offset * (2 * threadIdx.x + 1) - 1];
        }
        __syncthreads();
        const int total = tree[N - 1];
        __syncthreads();
        if (threadIdx.x == 0) tree[N - 1] = 0;
        for (int d = 1; d < N; d *= 2) {
            offset /= 2;
            __syncthreads();
            if (threadIdx.x < d) {
                const int i = offset * (2 * threadIdx.x + 1) - 1, j = offset * (2 * threadIdx.x + 2) - 1, t = tree[i];
                tree[i] = tree[j];
                tree[j] += t;
            }
        }
        __syncthreads();
        if (a < left) y[(size_t)blockIdx.x * cols + start + a] = carry + tree[a];
        if (b < left) y[(size_t)blockIdx.x * cols + start + b] = carry + tree[b];
        carry += total;
        __syncthreads();
    }
}
torch::Tensor exclusive(torch::Tensor x) {
    auto y = torch::empty_like(x);
    blelloch<512><<<x.size(0), 256>>>(x.data_ptr<int>(), y.data_ptr<int>(), x.size(1));
    return y;
}
""",
    model("x", "return extension.exclusive(x)"),
)

WARP_SCAN = file(
    r"""
__device__ float inclusive(float v) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        float before = __shfl_up_sync(0xffffffffu, v, o);
        if (lane >= o) v += before;
    }
    return v;
}
__global__ void reverse_cumsum(const float* x, float* y, int rows, int cols) {
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float carry = 0.f;
    for (int start = 0; start < cols; start += 32) {
        const int j = cols - 1 - start - lane;
        const float v = inclusive(j >= 0 ? x[(size_t)row * cols + j] : 0.f) + carry;
        if (j >= 0) y[(size_t)row * cols + j] = v;
        carry = __shfl_sync(0xffffffffu, v, 31);
    }
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int rows = x.size(0);
    reverse_cumsum<<<(rows + 3) / 4, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, x.size(1));
    return y;
}
"""
)

THREE_KERNELS = bound(
    "cumsum",
    r"""
constexpr int BLOCK = 256, ITEMS = 4, CHUNK = BLOCK * ITEMS;
__device__ double scan_block(double v, double* warps, double& total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int o = 1; o < 32; o <<= 1) { double u = __shfl_up_sync(~0u, v, o); if (lane >= o) v += u; }
    if (lane == 31) warps[warp] = v;
    __syncthreads();
    double before = 0, all = 0;
    for (int w = 0; w < BLOCK / 32; ++w) { if (w < warp) before += warps[w]; all += warps[w]; }
    __syncthreads();
    total = all;
    return v + before;
}
__global__ void chunk_sums(const float* x, double* sums, int n) {
    __shared__ double warps[BLOCK / 32];
    double own = 0, total;
    for (int k = 0; k < ITEMS; ++k) { int i = blockIdx.x * CHUNK + k * BLOCK + threadIdx.x; if (i < n) own += x[i]; }
    scan_block(own, warps, total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}
__global__ void scan_sums(double* sums, int n) {
    __shared__ double warps[BLOCK / 32];
    double carry = 0, total;
    for (int start = 0; start < n; start += BLOCK) {
        const int i = start + threadIdx.x;
        const double v = i < n ? sums[i] : 0, done = scan_block(v, warps, total);
        if (i < n) sums[i] = carry + done - v;
        carry += total;
    }
}
__global__ void scan_chunks(const float* x, const double* sums, float* y, int n) {
    __shared__ double warps[BLOCK / 32];
    const int first = blockIdx.x * CHUNK + threadIdx.x * ITEMS;
    double v[ITEMS], run = 0, total;
    for (int k = 0; k < ITEMS; ++k) { run += first + k < n ? x[first + k] : 0.f; v[k] = run; }
    const double before = scan_block(run, warps, total) - run + sums[blockIdx.x];
    for (int k = 0; k < ITEMS; ++k) if (first + k < n) y[first + k] = (float)(before + v[k]);
}
torch::Tensor cumsum(torch::Tensor x) {
    const int n = x.numel(), chunks = (n + CHUNK - 1) / CHUNK;
    auto y = torch::empty_like(x), sums = torch::empty({chunks}, x.options().dtype(torch::kDouble));
    chunk_sums<<<chunks, BLOCK>>>(x.data_ptr<float>(), sums.data_ptr<double>(), n);
    scan_sums<<<1, BLOCK>>>(sums.data_ptr<double>(), chunks);
    scan_chunks<<<chunks, BLOCK>>>(x.data_ptr<float>(), sums.data_ptr<double>(), y.data_ptr<float>(), n);
    return y;
}
""",
    model("x", "return extension.cumsum(x)"),
)

LOOK_BACK = inline(
    "torch::Tensor positions(torch::Tensor mask);",
    r"""
// One pass: chunks take tickets, publish their count, then look back until a chunk knows its whole prefix.
constexpr int BLOCK = 256, ITEMS = 8;
constexpr unsigned long long PARTIAL = 1ull << 32, WHOLE = 2ull << 32;
__global__ void look_back(const bool* mask, int* y, unsigned long long* states, unsigned* ticket, int n) {
    __shared__ int chunk, before, warps[BLOCK / 32];
    if (threadIdx.x == 0) chunk = atomicAdd(ticket, 1u);
    __syncthreads();
    const int first = (chunk * BLOCK + threadIdx.x) * ITEMS, lane = threadIdx.x % 32;
    int own = 0;
    for (int k = 0; k < ITEMS; ++k) own += first + k < n && mask[first + k];
    int v = own;
    for (int o = 1; o < 32; o <<= 1) { int u = __shfl_up_sync(~0u, v, o); if (lane >= o) v += u; }
    if (lane == 31) warps[threadIdx.x / 32] = v;
    __syncthreads();
    int total = 0;
    for (int w = 0; w < BLOCK / 32; ++w) { if (w < threadIdx.x / 32) v += warps[w]; total += warps[w]; }
    if (threadIdx.x == 0) {
        atomicExch(states + chunk, (chunk == 0 ? WHOLE : PARTIAL) | (unsigned)total);
        int sum = 0;
        for (int back = chunk - 1; back >= 0;) {
            const unsigned long long state = atomicAdd(states + back, 0ull);
            if (state == 0) continue;  // not there yet; chunks before this one run already, so it will come
            sum += (int)(state & 0xffffffffu);
            if (state & WHOLE) break;
            --back;
        }
        if (chunk > 0) atomicExch(states + chunk, WHOLE | (unsigned)(sum + total));
        before = sum;
    }
    __syncthreads();
    int run = before + v - own;
    for (int k = 0; k < ITEMS; ++k)
        if (first + k < n) { run += mask[first + k]; y[first + k] = run; }
}
torch::Tensor positions(torch::Tensor mask) {
    const int n = mask.numel(), chunks = (n + BLOCK * ITEMS - 1) / (BLOCK * ITEMS);
    auto y = torch::empty(mask.sizes(), mask.options().dtype(torch::kInt32));
    auto states = torch::zeros({chunks + 1}, mask.options().dtype(torch::kInt64));
    auto* s = reinterpret_cast<unsigned long long*>(states.data_ptr<int64_t>());
    look_back<<<chunks, BLOCK>>>(mask.data_ptr<bool>(), y.data_ptr<int>(), s, reinterpret_cast<unsigned*>(s + chunks), n);
    return y;
}
""",
    model("mask", "return extension.positions(mask)"),
)

CUMPROD = inline(
    "torch::Tensor cumprod(torch::Tensor x);",
    r"""
#include <cub/block/block_scan.cuh>
struct Times { __device__ float operator()(float a, float b) const { return a * b; } };
__global__ void cumprod_kernel(const float* x, float* y, int cols) {
    using Scan = cub::BlockScan<float, 128>;
    __shared__ typename Scan::TempStorage storage;
    float carry = 1.f;
    for (int start = 0; start < cols; start += 128) {
        const int j = start + threadIdx.x;
        float v = j < cols ? x[(size_t)blockIdx.x * cols + j] : 1.f, total;
        Scan(storage).InclusiveScan(v, v, Times(), total);
        if (j < cols) y[(size_t)blockIdx.x * cols + j] = v * carry;
        carry *= total;
        __syncthreads();
    }
}
torch::Tensor cumprod(torch::Tensor x) {
    auto y = torch::empty_like(x);
    cumprod_kernel<<<x.size(0), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
""",
    model("x", "return extension.cumprod(x)"),
)

CUMMAX = plain(
    r"""
// Columns are independent: one thread walks down each.
extern "C" __global__ void cummax(const float* x, float* y, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    float best = x[col];
    y[col] = best;
    for (int row = 1; row < rows; ++row) {
        best = fmaxf(best, x[(size_t)row * cols + col]);
        y[(size_t)row * cols + col] = best;
    }
}
""",
    model(
        "x",
        "y = torch.empty_like(x)\nmodule.cummax[(x.shape[1] + 63) // 64, 64](x, y, x.shape[0], x.shape[1])\nreturn y",
    ),
)

RECURRENCE = bound(
    "ema",
    r"""
// h[t] = a h[t-1] + (1 - a) x[t]: pairs (factor, value) compose, so a warp scans 32 steps at once.
__global__ void ema_kernel(const float* x, float* y, int rows, int cols, float a) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;
    if (row >= rows) return;
    float carry = 0.f;
    for (int start = 0; start < cols; start += 32) {
        const int j = start + lane;
        float factor = a, value = j < cols ? (1.f - a) * x[(size_t)row * cols + j] : 0.f;
        for (int o = 1; o < 32; o <<= 1) {
            const float f = __shfl_up_sync(~0u, factor, o), v = __shfl_up_sync(~0u, value, o);
            if (lane >= o) { value = fmaf(factor, v, value); factor *= f; }
        }
        value = fmaf(factor, carry, value);
        if (j < cols) y[(size_t)row * cols + j] = value;
        carry = __shfl_sync(~0u, value, 31);
    }
}
torch::Tensor ema(torch::Tensor x, double a) {
    auto y = torch::empty_like(x);
    const int rows = x.size(0);
    ema_kernel<<<(rows + 7) / 8, dim3(32, 8)>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, x.size(1), (float)a);
    return y;
}
""",
    model("x", "return extension.ema(x, 0.75)"),
)

BITONIC = inline(
    "torch::Tensor sort_rows(torch::Tensor x);",
    r"""
__global__ void bitonic(const float* x, float* y, int cols, int padded) {
    extern __shared__ float row[];
    for (int j = threadIdx.x; j < padded; j += blockDim.x)
        row[j] = j < cols ? x[(size_t)blockIdx.x * cols + j] : INFINITY;
    for (int size = 2; size <= padded; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < padded / 2; i += blockDim.x) {
                const int a = 2 * i - (i & (stride - 1)), b = a + stride;
                const float u = row[a], v = row[b];
                if ((u > v) == ((a & size) == 0)) { row[a] = v; row[b] = u; }
            }
        }
    __syncthreads();
    for (int j = threadIdx.x; j < cols; j += blockDim.x) y[(size_t)blockIdx.x * cols + j] = row[j];
}
torch::Tensor sort_rows(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int padded = 1;
    while (padded < x.size(1)) padded *= 2;
    TORCH_CHECK(padded <= 8192, "rows are too long");
    bitonic<<<x.size(0), 256, padded * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1), padded);
    return y;
}
""",
    model("x", "return extension.sort_rows(x)"),
)

RANK_SORT = plain(
    r"""
// Short rows: an element's place is the number of those that come before it.
extern "C" __global__ void rank_sort(const int* x, int* y, long long* order, int rows, int cols) {
    extern __shared__ int line[];
    int* own = line + threadIdx.y * cols;
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row < rows) for (int j = threadIdx.x; j < cols; j += blockDim.x) own[j] = x[(size_t)row * cols + j];
    __syncthreads();
    if (row >= rows) return;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) {
        int rank = 0;
        for (int k = 0; k < cols; ++k) rank += own[k] < own[j] || (own[k] == own[j] && k < j);
        y[(size_t)row * cols + rank] = own[j];
        order[(size_t)row * cols + rank] = j;
    }
}
""",
    model(
        "x",
        "rows, cols = x.shape\ny = torch.empty_like(x)\norder = torch.empty(rows, cols, dtype=torch.int64, device=x.device)\n"
        "module.rank_sort[(rows + 3) // 4, (32, 4), 4 * 4 * cols](x, y, order, rows, cols)\nreturn y, order",
    ),
)

CASES = (
    Case("cumsum-hillis-steele", _rows("torch.cumsum(x, dim=1)", 1021, 4099), HILLIS_STEELE),
    Case(
        "exclusive-sum-blelloch",
        _rows(
            "(torch.cumsum(x, dim=1) - x).to(torch.int32)",
            1013,
            4201,
            "torch.randint(-50, 50, (rows, cols), dtype=torch.int32)",
        ),
        BLELLOCH,
    ),
    Case("reverse-cumsum-warps-file", _rows("x.flip(1).cumsum(1).flip(1)", 4003, 1051), WARP_SCAN, suffix=".cu"),
    Case(
        "cumsum-three-kernels",
        task("n = 4_400_003", "torch.rand(n)", "x", "return torch.cumsum(x, dim=0)"),
        THREE_KERNELS,
    ),
    Case(
        "positions-look-back",
        task("n = 6_000_011", "torch.rand(n) > 0.7", "mask", "return torch.cumsum(mask, dim=0).to(torch.int32)"),
        LOOK_BACK,
    ),
    Case("cumprod-cub", _rows("torch.cumprod(x, dim=1)", 2003, 2099, "1 + 0.01 * torch.randn(rows, cols)"), CUMPROD),
    Case("cummax-columns", _rows("torch.cummax(x, dim=0).values", 523, 8209), CUMMAX),
    Case(
        "linear-recurrence-warps",
        task(
            "rows = 8009\ncols = 533",
            "torch.randn(rows, cols)",
            "x",
            "h, out = torch.zeros_like(x[:, 0]), []\nfor t in range(x.shape[1]):\n"
            "    h = 0.75 * h + 0.25 * x[:, t]\n    out.append(h)\nreturn torch.stack(out, dim=1)",
        ),
        RECURRENCE,
    ),
    Case("sort-rows-bitonic", _rows("torch.sort(x, dim=1).values", 3001, 1501), BITONIC),
    Case(
        "sort-rows-by-rank",
        _rows(
            "torch.sort(x, dim=1, stable=True)",
            40_009,
            109,
            "torch.randint(0, 60, (rows, cols), dtype=torch.int32)",
        ).replace(
            "return torch.sort(x, dim=1, stable=True)",
            "y, order = torch.sort(x, dim=1, stable=True)\n        return y, order",
        ),
        RANK_SORT,
    ),
)
