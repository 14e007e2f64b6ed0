"""Reductions: trees, shuffles, atomics, two passes, the last block, Welford, indices, counts, histograms."""

from __future__ import annotations

from .case import Case, bound, file, inline, model, plain, task


def _rows(expression: str, rows: int = 1537, cols: int = 2801, made: str = "torch.randn(rows, cols)") -> str:
    return task(f"rows = {rows}\ncols = {cols}", made, "x", f"return {expression}")


TREE = inline(
    "torch::Tensor row_sum(torch::Tensor x);",
    r"""
template <int BLOCK>
__global__ void tree(const float* x, float* y, int cols) {
    __shared__ float part[BLOCK];
    float sum = 0.f;
    for (int j = threadIdx.x; j < cols; j += BLOCK) sum += x[(size_t)blockIdx.x * cols + j];
    part[threadIdx.x] = sum;
    __syncthreads();
    #pragma unroll
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
torch::Tensor row_sum(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    if (x.size(1) >= 512) tree<256><<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    else tree<64><<<x.size(0), 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
""",
    model("x", "return extension.row_sum(x)"),
)

WARP_ROWS = plain(
    r"""
extern "C" __global__ void row_mean(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.f;
    for (int j = lane; j < cols; j += 32) sum += x[(size_t)row * cols + j];
    #pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) y[row] = sum / cols;
}
""",
    model(
        "x",
        "rows, cols = x.shape\ny = torch.empty(rows, 1, device=x.device)\n"
        "module.row_mean[(rows + 7) // 8, 256](x, y, rows, cols)\nreturn y",
    ),
)

TWO_PASS = bound(
    "total",
    r"""
__device__ float block_sum(float v) {
    __shared__ float warps[32];
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0.f;
    if (threadIdx.x < 32) for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
__global__ void first(const float4* x, float* part, int64_t quads, const float* tail, int rest) {
    float sum = 0.f;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < quads; i += (int64_t)gridDim.x * blockDim.x) {
        float4 v = x[i];
        sum += fabsf(v.x) + fabsf(v.y) + fabsf(v.z) + fabsf(v.w);
    }
    if (blockIdx.x == 0 && threadIdx.x < rest) sum += fabsf(tail[threadIdx.x]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}
__global__ void second(const float* part, float* out, int n) {
    float sum = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += part[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = sum;
}
torch::Tensor total(torch::Tensor x) {
    const int64_t n = x.numel(), quads = n / 4;
    const int blocks = 396;
    auto part = torch::empty({blocks}, x.options()), out = torch::empty({}, x.options());
    const float* data = x.data_ptr<float>();
    first<<<blocks, 512>>>((const float4*)data, part.data_ptr<float>(), quads, data + 4 * quads, (int)(n % 4));
    second<<<1, 1024>>>(part.data_ptr<float>(), out.data_ptr<float>(), blocks);
    return out;
}
""",
    model("x", "return extension.total(x)"),
)

ATOMIC_DOUBLE = inline(
    "torch::Tensor norm(torch::Tensor x);",
    r"""
__global__ void squares(const float* x, double* sum, int n) {
    double own = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) own += (double)x[i] * x[i];
    for (int o = 16; o; o /= 2) own += __shfl_down_sync(0xffffffffu, own, o);
    if ((threadIdx.x & 31) == 0) atomicAdd(sum, own);
}
__global__ void root(const double* sum, float* out) { *out = (float)sqrt(*sum); }
torch::Tensor norm(torch::Tensor x) {
    auto sum = torch::zeros({1}, x.options().dtype(torch::kFloat64));
    auto out = torch::empty({}, x.options());
    squares<<<256, 256>>>(x.data_ptr<float>(), sum.data_ptr<double>(), (int)x.numel());
    root<<<1, 1>>>(sum.data_ptr<double>(), out.data_ptr<float>());
    return out;
}
""",
    model("x", "return extension.norm(x.reshape(-1))"),
)

LAST_BLOCK = bound(
    "largest",
    r"""
__global__ void largest_kernel(const float* x, float* part, unsigned* ticket, float* out, int64_t n) {
    __shared__ float best[256];
    __shared__ bool last;
    float m = -INFINITY;
    for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) m = fmaxf(m, x[i]);
    best[threadIdx.x] = m;
    __syncthreads();
    for (int h = 128; h; h >>= 1) {
        if (threadIdx.x < h) best[threadIdx.x] = fmaxf(best[threadIdx.x], best[threadIdx.x + h]);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        part[blockIdx.x] = best[0];
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    m = -INFINITY;
    for (int i = threadIdx.x; i < gridDim.x; i += 256) m = fmaxf(m, ((volatile float*)part)[i]);
    best[threadIdx.x] = m;
    __syncthreads();
    for (int h = 128; h; h >>= 1) {
        if (threadIdx.x < h) best[threadIdx.x] = fmaxf(best[threadIdx.x], best[threadIdx.x + h]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[0] = best[0];
}
torch::Tensor largest(torch::Tensor x) {
    const int blocks = 264;
    auto part = torch::empty({blocks}, x.options());
    auto ticket = torch::zeros({1}, x.options().dtype(torch::kInt32));
    auto out = torch::empty({}, x.options());
    largest_kernel<<<blocks, 256>>>(x.data_ptr<float>(), part.data_ptr<float>(), (unsigned*)ticket.data_ptr<int>(),
                                    out.data_ptr<float>(), x.numel());
    return out;
}
""",
    model("x", "return extension.largest(x)"),
)

COLUMNS = file(
    r"""
// A block of 32 x 8 threads adds up 32 columns; rows of threads read consecutive addresses.
__global__ void column_sum(const float* x, float* y, int rows, int cols) {
    __shared__ float part[8][33];
    int col = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.f;
    if (col < cols)
        for (int row = threadIdx.y; row < rows; row += 8) sum += x[(long long)row * cols + col];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        for (int k = 1; k < 8; ++k) sum += part[k][threadIdx.x];
        y[col] = sum;
    }
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(1)}, x.options());
    column_sum<<<(x.size(1) + 31) / 32, dim3(32, 8)>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1));
    return y;
}
"""
)

ARGMAX = inline(
    "torch::Tensor argmax(torch::Tensor x);",
    r"""
__global__ void argmax_kernel(const float* x, int64_t* out, int cols) {
    __shared__ float values[4];
    __shared__ int places[4];
    const float* row = x + (size_t)blockIdx.x * cols;
    float best = -INFINITY;
    int place = 0x7fffffff;
    for (int j = threadIdx.x; j < cols; j += 128)
        if (row[j] > best) { best = row[j]; place = j; }
    for (int o = 16; o; o >>= 1) {
        float other = __shfl_down_sync(~0u, best, o);
        int there = __shfl_down_sync(~0u, place, o);
        if (other > best || (other == best && there < place)) { best = other; place = there; }  // the first one wins
    }
    if (threadIdx.x % 32 == 0) { values[threadIdx.x / 32] = best; places[threadIdx.x / 32] = place; }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < 4; ++w)
        if (values[w] > best || (values[w] == best && places[w] < place)) { best = values[w]; place = places[w]; }
    out[blockIdx.x] = place;
}
torch::Tensor argmax(torch::Tensor x) {
    auto out = torch::empty({x.size(0)}, x.options().dtype(torch::kLong));
    argmax_kernel<<<x.size(0), 128>>>(x.data_ptr<float>(), out.data_ptr<int64_t>(), x.size(1));
    return out;
}
""",
    model("x", "return extension.argmax(x)"),
)

WELFORD = bound(
    "moments",
    r"""
struct Moments { float mean, m2, count; };
__device__ Moments merged(Moments a, Moments b) {
    float count = a.count + b.count;
    if (count == 0.f) return a;
    float delta = b.mean - a.mean;
    return {a.mean + delta * b.count / count, a.m2 + b.m2 + delta * delta * a.count * b.count / count, count};
}
__global__ void moments_kernel(const float* x, float* mean, float* var, int cols) {
    __shared__ Moments warps[8];
    Moments own = {0.f, 0.f, 0.f};
    for (int j = threadIdx.x; j < cols; j += blockDim.x) {
        float v = x[(size_t)blockIdx.x * cols + j];
        own.count += 1.f;
        float delta = v - own.mean;
        own.mean += delta / own.count;
        own.m2 += delta * (v - own.mean);
    }
    for (int o = 16; o; o >>= 1)
        own = merged(own, {__shfl_down_sync(~0u, own.mean, o), __shfl_down_sync(~0u, own.m2, o),
                           __shfl_down_sync(~0u, own.count, o)});
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) own = merged(own, warps[w]);
        mean[blockIdx.x] = own.mean;
        var[blockIdx.x] = own.m2 / (own.count - 1.f);
    }
}
std::vector<torch::Tensor> moments(torch::Tensor x) {
    auto mean = torch::empty({x.size(0)}, x.options()), var = torch::empty_like(mean);
    moments_kernel<<<x.size(0), 256>>>(x.data_ptr<float>(), mean.data_ptr<float>(), var.data_ptr<float>(), x.size(1));
    return {mean, var};
}
""",
    model("x", "mean, var = extension.moments(x)\nreturn mean, var"),
)

ANY_ALL = plain(
    r"""
extern "C" __global__ void any_all(const bool* x, bool* any, bool* all, int cols) {
    int some = 0, every = 1;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) {
        bool v = x[(size_t)blockIdx.x * cols + j];
        some |= v;
        every &= v;
    }
    some = __syncthreads_or(some);
    every = __syncthreads_and(every);
    if (threadIdx.x == 0) { any[blockIdx.x] = some; all[blockIdx.x] = every; }
}
""",
    model(
        "x",
        "some = torch.empty(x.shape[0], dtype=torch.bool, device=x.device)\nevery = torch.empty_like(some)\n"
        "module.any_all[x.shape[0], 128](x, some, every, x.shape[1])\nreturn some, every",
    ),
)

MIN_MAX = inline(
    "std::vector<torch::Tensor> extremes(torch::Tensor x);",
    r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void extremes_kernel(const float* x, float* low, float* high, int rows, int cols) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    int row = blockIdx.x * tile.meta_group_size() + tile.meta_group_rank();
    if (row >= rows) return;
    float a = INFINITY, b = -INFINITY;
    for (int j = tile.thread_rank(); j < cols; j += 32) {
        float v = x[(size_t)row * cols + j];
        a = fminf(a, v);
        b = fmaxf(b, v);
    }
    a = cg::reduce(tile, a, cg::less<float>());
    b = cg::reduce(tile, b, cg::greater<float>());
    if (tile.thread_rank() == 0) { low[row] = a; high[row] = b; }
}
std::vector<torch::Tensor> extremes(torch::Tensor x) {
    auto low = torch::empty({x.size(0)}, x.options()), high = torch::empty({x.size(0)}, x.options());
    int rows = x.size(0);
    extremes_kernel<<<(rows + 3) / 4, 128>>>(x.data_ptr<float>(), low.data_ptr<float>(), high.data_ptr<float>(), rows,
                                             x.size(1));
    return {low, high};
}
""",
    model("x", "return tuple(extension.extremes(x))"),
)

COUNT = plain(
    r"""
extern "C" __global__ void count(const long long* x, unsigned long long* total, long long n) {
    unsigned own = 0;
    for (long long start = (long long)blockIdx.x * blockDim.x; start < n; start += (long long)gridDim.x * blockDim.x) {
        long long i = start + threadIdx.x;
        own += __popc(__ballot_sync(0xffffffffu, i < n && x[i] % 3 == 0));  // one count a warp
    }
    if (threadIdx.x % 32 == 0) atomicAdd(total, (unsigned long long)own);
}
""",
    model(
        "x",
        "total = torch.zeros((), dtype=torch.int64, device=x.device)\n"
        "module.count[(512,), (256,)](x, total, x.numel())\nreturn total",
    ),
)

LOG_SUM_EXP = inline(
    "torch::Tensor lse(torch::Tensor x);",
    r"""
__device__ void join(float& m, float& s, float m2, float s2) {
    const float top = fmaxf(m, m2);
    s = (m == -INFINITY ? 0.f : s * __expf(m - top)) + (m2 == -INFINITY ? 0.f : s2 * __expf(m2 - top));
    m = top;
}
__global__ void lse_kernel(const float* x, float* y, int cols) {
    extern __shared__ float shared[];
    float *ms = shared, *ss = shared + blockDim.x, m = -INFINITY, s = 0.f;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) join(m, s, x[(size_t)blockIdx.x * cols + j], 1.f);
    ms[threadIdx.x] = m;
    ss[threadIdx.x] = s;
    __syncthreads();
    for (int h = blockDim.x / 2; h; h /= 2) {
        if (threadIdx.x < h) {
            join(m, s, ms[threadIdx.x + h], ss[threadIdx.x + h]);
            ms[threadIdx.x] = m;
            ss[threadIdx.x] = s;
        }
        __syncthreads();
    }
    if (!threadIdx.x) y[blockIdx.x] = m + logf(s);
}
torch::Tensor lse(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    lse_kernel<<<x.size(0), 128, 2 * 128 * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
""",
    model("x", "return extension.lse(x)"),
)

MIDDLE = inline(
    "torch::Tensor middle(torch::Tensor x);",
    r"""
__global__ void middle_kernel(const float* __restrict__ x, float* __restrict__ y, int outer, int k, int inner) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= outer * inner) return;
    const float* from = x + (size_t)(i / inner) * k * inner + i % inner;
    float sums[4] = {0.f, 0.f, 0.f, 0.f};  // four chains, so that loads overlap
    int j = 0;
    for (; j + 4 <= k; j += 4)
        for (int u = 0; u < 4; ++u) sums[u] += from[(size_t)(j + u) * inner];
    for (; j < k; ++j) sums[0] += from[(size_t)j * inner];
    y[i] = (sums[0] + sums[1] + sums[2] + sums[3]) / k;
}
torch::Tensor middle(torch::Tensor x) {
    int outer = x.size(0), k = x.size(1), inner = x.size(2);
    auto y = torch::empty({outer, inner}, x.options());
    middle_kernel<<<(outer * inner + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), outer, k, inner);
    return y;
}
""",
    model("x", "return extension.middle(x)"),
)

HISTOGRAM = bound(
    "histogram",
    r"""
constexpr int BINS = 96;
__global__ void histogram_kernel(const int* x, unsigned long long* bins, int n) {
    __shared__ unsigned own[BINS];
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) own[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(own + x[i], 1u);
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += blockDim.x)
        if (own[b]) atomicAdd(bins + b, (unsigned long long)own[b]);
}
torch::Tensor histogram(torch::Tensor x) {
    auto bins = torch::zeros({BINS}, x.options().dtype(torch::kInt64));
    histogram_kernel<<<264, 256>>>(x.data_ptr<int>(), (unsigned long long*)bins.data_ptr<int64_t>(), x.numel());
    return bins;
}
""",
    model("x", "return extension.histogram(x)"),
)

CUB_BLOCK = inline(
    "torch::Tensor mean_square(torch::Tensor x);",
    r"""
#include <cub/block/block_reduce.cuh>
__global__ void mean_square_kernel(const float* x, float* y, int cols) {
    using Reduce = cub::BlockReduce<float, 192>;
    __shared__ typename Reduce::TempStorage storage;
    float sum = 0.f;
    for (int j = threadIdx.x; j < cols; j += 192) { float v = x[(size_t)blockIdx.x * cols + j]; sum += v * v; }
    sum = Reduce(storage).Sum(sum);
    if (threadIdx.x == 0) y[blockIdx.x] = sum / cols;
}
torch::Tensor mean_square(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    mean_square_kernel<<<x.size(0), 192>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
""",
    model("x", "return extension.mean_square(x)"),
)

PRODUCT = file(
    r"""
// A row is split over the blocks of grid.y, whose parts meet in an atomic multiplication by compare-and-swap.
__device__ void atomic_multiply(float* at, float v) {
    int* bits = reinterpret_cast<int*>(at);
    int old = *reinterpret_cast<volatile int*>(bits), seen;
    do {
        seen = old;
        old = atomicCAS(bits, seen, __float_as_int(__int_as_float(seen) * v));
    } while (old != seen);
}
__global__ void product(const float* x, float* y, int cols, int part) {
    float p = 1.f;
    int end = min(cols, (int)(blockIdx.y + 1) * part);
    for (int j = blockIdx.y * part + threadIdx.x; j < end; j += 64)
        p *= 1.0f + 0.01f * x[(size_t)blockIdx.x * cols + j];
    for (int o = 16; o; o >>= 1) p *= __shfl_xor_sync(0xffffffffu, p, o);
    if (threadIdx.x % 32 == 0) atomic_multiply(y + blockIdx.x, p);
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::ones({x.size(0)}, x.options());
    int cols = x.size(1), part = 512;
    dim3 grid(x.size(0), (cols + part - 1) / part);
    product<<<grid, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), cols, part);
    return y;
}
"""
)

CASES = (
    Case("row-sum-tree", _rows("x.sum(dim=1)"), TREE),
    Case("row-mean-warps", _rows("x.mean(dim=1, keepdim=True)", 8191, 521), WARP_ROWS),
    Case("abs-sum-two-pass", _rows("x.abs().sum()", 2049, 2049), TWO_PASS),
    Case("norm-atomic-double", _rows("torch.linalg.vector_norm(x)"), ATOMIC_DOUBLE),
    Case("max-last-block", _rows("x.max()"), LAST_BLOCK),
    Case("column-sum-file", _rows("x.sum(dim=0)", 2803, 1543), COLUMNS, suffix=".cu"),
    Case("argmax-first-of-equals", _rows("x.argmax(dim=1)", 3001, 1501), ARGMAX),
    Case("mean-var-welford", _rows("x.mean(dim=1), x.var(dim=1)"), WELFORD),
    Case(
        "any-all-barrier-votes",
        _rows("x.any(dim=1), x.all(dim=1)", 40961, 127, "torch.rand(rows, cols) > 0.98"),
        ANY_ALL,
    ),
    Case("min-max-cooperative-groups", _rows("x.amin(dim=1), x.amax(dim=1)", 6007, 701), MIN_MAX),
    Case(
        "count-ballot",
        _rows("(x % 3 == 0).sum()", made="torch.randint(0, 1000, (rows, cols))"),
        COUNT,
    ),
    Case("logsumexp-online", _rows("torch.logsumexp(x, dim=1)", 1009, 4201), LOG_SUM_EXP),
    Case(
        "mean-of-middle",
        task("outer = 37\nk = 211\ninner = 577", "torch.randn(outer, k, inner)", "x", "return x.mean(dim=1)"),
        MIDDLE,
    ),
    Case(
        "histogram-shared-atomics",
        task(
            "n = 5_000_011",
            "torch.randint(0, 96, (n,), dtype=torch.int32)",
            "x",
            "return torch.bincount(x, minlength=96)",
        ),
        HISTOGRAM,
    ),
    Case("mean-square-cub", _rows("(x * x).mean(dim=1)"), CUB_BLOCK),
    Case("product-compare-and-swap", _rows("(1 + 0.01 * x).prod(dim=1)"), PRODUCT, suffix=".cu"),
)
