"""Families as C++ extensions, and families of newer hardware features: warp tiles, asynchronous copies, votes."""

from __future__ import annotations

from .family import Edit, Family, bound, inline, model, small, task

DISPATCH = Family(
    "dispatch",
    task("n = 2003", "torch.randn(n).to(torch.@dtype@)", "x", "return @torch@"),
    inline(
        "torch::Tensor run(torch::Tensor x, double slope);",
        r"""
template <typename scalar_t>
__global__ void run_kernel(const scalar_t* x, scalar_t* y, int64_t n, float slope) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = static_cast<float>(x[i]);
    y[i] = static_cast<scalar_t>(@cuda@);
}
torch::Tensor run(torch::Tensor x, double slope) {
    auto y = torch::empty_like(x);
    const int64_t n = x.numel();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "run", [&] {
        run_kernel<scalar_t><<<(n + 127) / 128, 128>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n, (float)slope);
    });
    return y;
}
""",
        model("x", "return extension.run(x, 0.25)"),
    ),
    {
        "leaky-float": {"dtype": "float32", "torch": "F.leaky_relu(x, 0.25)", "cuda": "v > 0.f ? v : slope * v"},
        "leaky-half": {"dtype": "float16", "torch": "F.leaky_relu(x, 0.25)", "cuda": "fmaxf(v, 0.f) + slope * fminf(v, 0.f)"},
        "scale-bf16": {"dtype": "bfloat16", "torch": "x * 0.25 + 1", "cuda": "slope * v + 1.f"},
        "tanh-double": {"dtype": "float64", "torch": "torch.tanh(x.float() * 0.25).double()", "cuda": "tanhf(slope * v)"},
    },
    (
        Edit("operation", "slope * v)", "slope)", ("leaky-float",)),
        Edit("conversion", "static_cast<float>(x[i])", "static_cast<float>(static_cast<int>(static_cast<float>(x[i])))", ("leaky-half",)),
        Edit("guard", "if (i >= n) return;", "", ("scale-bf16", "leaky-float")),
        Edit("tail", "(n + 127) / 128, 128", "n / 128, 128", ("tanh-double",)),
        Edit("operation", "run(x, 0.25)", "run(x, 0.5)", ("leaky-half",)),
        Edit("index", "threadIdx.x;", "threadIdx.x * 2;", ("scale-bf16",)),
    ),
)  # fmt: skip

TWO_STEPS = Family(
    "two-steps",
    task("n = 9001", "torch.randn(n)", "x", "return @torch@"),
    bound(
        "total",
        r"""
__global__ void parts(const float* x, float* part, int n) {
    __shared__ float s[128];
    float v = 0.f;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) v += @cuda@;
    s[threadIdx.x] = v;
    __syncthreads();  // filled
    for (int h = 64; h; h >>= 1) {
        if (threadIdx.x < h) s[threadIdx.x] += s[threadIdx.x + h];
        __syncthreads();  // halved
    }
    if (threadIdx.x == 0) part[blockIdx.x] = s[0];
}
__global__ void join(const float* part, float* out, int blocks) {
    float v = 0.f;
    for (int i = threadIdx.x; i < blocks; i += 32) v += part[i];
    for (int o = 16; o; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
    if (threadIdx.x == 0) *out = @last@;
}
torch::Tensor total(torch::Tensor x) {
    const int n = x.numel(), blocks = 40;
    auto part = torch::empty({blocks}, x.options()), out = torch::empty({1}, x.options());
    parts<<<blocks, 128>>>(x.data_ptr<float>(), part.data_ptr<float>(), n);
    join<<<1, 32>>>(part.data_ptr<float>(), out.data_ptr<float>(), blocks);
    return out;
}
""",
        model("x", "return extension.total(x)"),
    ),
    {
        "norm": {"torch": "x.norm().reshape(1)", "cuda": "x[i] * x[i]", "last": "sqrtf(v)"},
        "mean-abs": {"torch": "x.abs().sum().reshape(1)", "cuda": "fabsf(x[i])", "last": "v"},
    },
    (
        Edit("barrier", "__syncthreads();  // filled", ""),
        Edit("barrier", "__syncthreads();  // halved", "", ("mean-abs",)),
        Edit("tail", "i < blocks; i += 32", "i < 32; i += 32", ("norm", "mean-abs")),
        Edit("width", "join<<<1, 32>>>", "join<<<1, 16>>>", ("norm",)),
        Edit("index", "part[blockIdx.x] = s[0]", "part[0] = s[0]", ("mean-abs",)),
        Edit("width", "o = 16", "o = 2", ("norm",)),
        Edit("stride", "i += gridDim.x * 128", "i += gridDim.x * 64", ("mean-abs",)),
    ),
)  # fmt: skip

LAST_BLOCK = small(
    "last-block", "n = 8000", "torch.randn(n)", "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, volatile float* part, unsigned* ticket, float* y, int n) {
    __shared__ float s[64];
    __shared__ bool last;
    float v = @init@;
    for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64) { float e = x[i]; v = @join@; }
    s[threadIdx.x] = v;
    __syncthreads();  // filled
    if (threadIdx.x == 0) {
        for (int i = 1; i < 64; ++i) { float e = s[i]; v = @join@; }
        part[blockIdx.x] = v;
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();  // told
    if (!last || threadIdx.x) return;
    v = @init@;
    for (int i = 0; i < gridDim.x; ++i) { float e = part[i]; v = @join@; }
    *y = v;
}""",
    "part = torch.empty(12, device=x.device)\nticket = torch.zeros(1, dtype=torch.int32, device=x.device)\n"
    "y = torch.empty(1, device=x.device)\nmodule.k[12, 64](x, part, ticket, y, x.numel())\nreturn y",
    {
        "sum": {"torch": "x.sum().reshape(1)", "init": "0.f", "join": "v + e"},
        "max": {"torch": "x.amax().reshape(1)", "init": "-INFINITY", "join": "fmaxf(v, e)"},
    },
    (
        Edit("zeroing", "torch.zeros(1, dtype=torch.int32", "torch.ones(1, dtype=torch.int32"),
        Edit("barrier", "__syncthreads();  // filled", "", ("sum", "max")),
        Edit("barrier", "__syncthreads();  // told", "", ("sum",)),
        Edit("operation", "== gridDim.x - 1", "== 0", ("sum", "max")),
        Edit("off-by-one", "for (int i = 0; i < gridDim.x; ++i)", "for (int i = 1; i < gridDim.x; ++i)", ("sum",)),
        Edit("race", "last = atomicAdd(ticket, 1u) == gridDim.x - 1", "last = (*ticket)++ == gridDim.x - 1", ("max",)),
    ),
)  # fmt: skip

GROUPS = small(
    "groups", "rows, cols = 30, 90", "torch.randn(rows, cols)", "x", "return @torch@",
    r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const float* x, float* y, int rows, int cols) {
    auto tile = cg::tiled_partition<@width@>(cg::this_thread_block());
    int row = blockIdx.x * (blockDim.x / @width@) + threadIdx.x / @width@;
    if (row >= rows) return;
    float v = 0.f;
    for (int j = tile.thread_rank(); j < cols; j += tile.size()) v += @cuda@;
    for (int o = tile.size() / 2; o; o /= 2) v += tile.shfl_xor(v, o);
    if (tile.thread_rank() == 0) y[row] = v;
}""",
    "rows, cols = x.shape\ny = torch.empty(rows, device=x.device)\nper = 64 // @width@\n"
    "module.k[(rows + per - 1) // per, 64](x, y, rows, cols)\nreturn y",
    {
        "32": {"width": "32", "torch": "x.sum(1)", "cuda": "x[row * cols + j]"},
        "8": {"width": "8", "torch": "x.abs().sum(1)", "cuda": "fabsf(x[row * cols + j])"},
        "16": {"width": "16", "torch": "(x * x).sum(1)", "cuda": "x[row * cols + j] * x[row * cols + j]"},
    },
    (
        Edit("width", "o = tile.size() / 2", "o = tile.size() / 4", ("8", "32")),
        Edit("index", "threadIdx.x / 16", "threadIdx.x % 4", ("16",)),
        Edit("stride", "j += tile.size()", "j += blockDim.x", ("16", "8")),
        Edit("guard", "if (tile.thread_rank() == 0)", "if (threadIdx.x == 0)", ("8",)),
    ),
)  # fmt: skip

ASYNC = small(
    "async-copy", "n = 4096", "torch.randn(n)", "x", "return @torch@",
    r"""
#include <cuda_pipeline.h>
extern "C" __global__ void k(const float* x, float* y, int n) {
    __shared__ alignas(16) float s[256];
    int t = threadIdx.x, at = blockIdx.x * 256 + t * 4;
    if (at + 4 <= n) __pipeline_memcpy_async(&s[t * 4], x + at, 16);
    else for (int k = 0; k < 4; ++k) s[t * 4 + k] = at + k < n ? x[at + k] : 0.f;
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    int last = min(256, n - (int)blockIdx.x * 256);
    for (int j = t; j < last; j += 64) y[blockIdx.x * 256 + j] = @cuda@;
}""",
    "n = x.numel()\ny = torch.empty_like(x)\nmodule.k[(n + 255) // 256, 64](x, y, n)\nreturn y",
    {
        "double": {"torch": "2 * x", "cuda": "2.f * s[j]"},
        "square": {"torch": "x * x", "cuda": "s[j] * s[j]"},
    },
    (
        Edit("barrier", "__pipeline_wait_prior(0);\n    __syncthreads();", "", ("double", "square")),
        Edit("barrier", "__syncthreads();\n    int last", "int last", ("square",)),
        Edit("width", "x + at, 16)", "x + at, 8)", ("double",)),
        Edit("index", "&s[t * 4], x", "&s[t], x", ("square",)),
        Edit("guard", "at + 4 <= n", "at <= n", ("double",)),
    ),
)  # fmt: skip

VOTES = small(
    "votes", "n = 2000", "torch.randn(n)", "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned bits = __ballot_sync(0xffffffffu, i < n && x[i] > 0.3f);
    if (i < n) y[i] = @cuda@;
}""",
    "n = x.numel()\ny = torch.empty(n, dtype=torch.int32, device=x.device)\nmodule.k[(n + 63) // 64, 64](x, y, n)\nreturn y",
    {
        "rank": {"torch": "torch.cat([(c > 0.3).int().cumsum(0) - (c > 0.3).int() for c in x.split(32)]).int()",
                 "cuda": "__popc(bits & ((1u << lane) - 1))"},
        "total": {"torch": "torch.cat([(c > 0.3).int().sum().expand(len(c)) for c in x.split(32)]).int()", "cuda": "__popc(bits)"},
        "bit": {"torch": "(x > 0.3).int()", "cuda": "bits >> lane & 1"},
    },
    (
        Edit("off-by-one", "(1u << lane) - 1", "(2u << lane) - 1"),
        Edit("operation", "__popc(bits)", "__ffs(bits)", ("total",)),
        Edit("index", "threadIdx.x % 32", "threadIdx.x", ("rank",)),
        Edit("operation", "bits >> lane & 1", "bits >> (31 - lane) & 1", ("bit",)),
        Edit("operation", "__ballot_sync(0xffffffffu, i < n && x[i] > 0.3f)", "__activemask()", ("bit",)),
    ),
)  # fmt: skip

ATTENTION = small(
    "attention", "heads, length, size = 3, 40, 24",
    "torch.randn(heads, length, size), torch.randn(heads, length, size), torch.randn(heads, length, size)", "q, k, v",
    "s = q @ k.transpose(1, 2) / q.shape[2] ** 0.5\nreturn @torch@",
    r"""
// One warp a query: each lane holds one element of it and of the output, and the sum is corrected as it goes.
extern "C" __global__ void attend(const float* q, const float* k, const float* v, float* y, int length, int size) {
    int lane = threadIdx.x, head = blockIdx.y, row = blockIdx.x;
    bool here = lane < size;
    int at = (head * length + row) * size + lane;
    float mine = here ? q[at] * rsqrtf(size) : 0.f, m = -INFINITY, sum = 0.f, out = 0.f;
    for (int j = 0; j < @end@; ++j) {
        int from = (head * length + j) * size + lane;
        float s = here ? mine * k[from] : 0.f;
        for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
        float top = fmaxf(m, s), old = expf(m - top), now = expf(s - top);
        sum = sum * old + now;
        out = out * old + now * (here ? v[from] : 0.f);
        m = top;
    }
    if (here) y[at] = out / sum;
}""",
    "H, L, S = q.shape\nassert S <= 32\ny = torch.empty_like(q)\nmodule.attend[(L, H), 32](q, k, v, y, L, S)\nreturn y",
    {
        "full": {"torch": "torch.softmax(s, 2) @ v", "end": "length"},
        "causal": {"torch": "torch.softmax(s.masked_fill(torch.triu(torch.ones_like(s), 1) > 0, -torch.inf), 2) @ v", "end": "row + 1"},
    },
    (
        Edit("off-by-one", "j < row + 1", "j < row", ("causal",)),
        Edit("operation", "sum * old + now", "sum + now", ("full", "causal")),
        Edit("width", "o = 16", "o = 8", ("full",)),
        Edit("operation", "rsqrtf(size)", "1.f", ("causal",)),
        Edit("stride", "(head * length + row) * size", "(row * gridDim.y + head) * size", ("full",)),
        Edit("index", "now * (here ? v[from]", "now * (here ? v[at]", ("causal",)),
        Edit("guard", "bool here = lane < size", "bool here = true", ("full",)),
    ),
)  # fmt: skip

BYTES = small(
    "bytes", "rows, cols = 20, 24",
    "torch.randint(-100, 100, (rows, 64), dtype=torch.int8), torch.randint(-100, 100, (cols, 64), dtype=torch.int8)",
    "a, b", "return (a.int()[:, None, :] * b.int()[None, :, :]).sum(2).to(torch.int32)",
    r"""
__device__ int four(const signed char* f) {
    return (f[0] & 255) | (f[1] & 255) << 8 | (f[2] & 255) << 16 | (f[3] & 255) << 24;
}
extern "C" __global__ void k(const signed char* a, const signed char* b, int* y, int rows, int cols, int inner) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * cols) return;
    const signed char* p = a + i / cols * inner;
    const signed char* q = b + i % cols * inner;
    int sum = 0, j = 0;
    @fast@
    for (; j < inner; ++j) sum += p[j] * q[j];
    y[i] = sum;
}""",
    "rows, inner = a.shape\ncols = b.shape[0]\ny = torch.empty(rows, cols, dtype=torch.int32, device=a.device)\n"
    "module.k[(rows * cols + 63) // 64, 64](a, b, y, rows, cols, inner)\nreturn y",
    {
        "plain": {"fast": ""},
        "dp4a": {"fast": "for (; j + 4 <= inner; j += 4) sum = __dp4a(four(p + j), four(q + j), sum);"},
    },
    (
        Edit("conversion", "const signed char* p = a +", "const unsigned char* p = (const unsigned char*)a +"),
        Edit("conversion", "four(p + j), four(q + j), sum)", "(unsigned)four(p + j), (unsigned)four(q + j), (unsigned)sum)", ("dp4a",)),
        Edit("conversion", "int sum = 0", "short sum = 0", ("plain",)),
        Edit("stride", "i % cols * inner", "i % cols * cols", ("dp4a",)),
        Edit("tail", "j + 4 <= inner", "j < inner", ("dp4a",)),
    ),
)  # fmt: skip

FAMILIES = (DISPATCH, TWO_STEPS, LAST_BLOCK, GROUPS, ASYNC, VOTES, ATTENTION, BYTES)
