"""Softmax and normalisation: shared rows, one pass, many blocks a row, warps, columns, half precision, weights."""

from __future__ import annotations

from .case import Case, bound, file, inline, model, plain, task


def _rows(expression: str, rows: int = 1531, cols: int = 3001, made: str = "torch.randn(rows, cols)") -> str:
    return task(f"rows = {rows}\ncols = {cols}", made, "x", f"return {expression}")


BLOCK_SUM = r"""
__device__ float block_reduce(float v, bool largest, float* warps) {
    for (int o = 16; o; o >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, v, o);
        v = largest ? fmaxf(v, other) : v + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    v = warps[0];
    for (int w = 1; w < blockDim.x / 32; ++w) v = largest ? fmaxf(v, warps[w]) : v + warps[w];
    return v;
}
"""

SOFTMAX_SHARED = inline(
    "torch::Tensor softmax(torch::Tensor x);",
    BLOCK_SUM
    + r"""
__global__ void softmax_kernel(const float* x, float* y, int cols) {
    extern __shared__ float row[];
    __shared__ float warps[8];
    const float* in = x + (size_t)blockIdx.x * cols;
    float m = -INFINITY, s = 0.f;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) m = fmaxf(m, row[j] = in[j]);
    m = block_reduce(m, true, warps);
    for (int j = threadIdx.x; j < cols; j += blockDim.x) s += row[j] = __expf(row[j] - m);
    s = block_reduce(s, false, warps);
    for (int j = threadIdx.x; j < cols; j += blockDim.x) y[(size_t)blockIdx.x * cols + j] = row[j] / s;
}
torch::Tensor softmax(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int rows = x.size(0), cols = x.size(1), bytes = cols * sizeof(float);
    if (bytes > 48 * 1024)
        cudaFuncSetAttribute(softmax_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    softmax_kernel<<<rows, 256, bytes>>>(x.data_ptr<float>(), y.data_ptr<float>(), cols);
    return y;
}
""",
    model("x", "return extension.softmax(x)"),
)

SOFTMAX_ONLINE = file(
    r"""
__global__ void online(const float* x, float* y, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // whole warps leave
    const float* in = x + (long)row * cols;
    float m = -INFINITY, s = 0.f;
    for (int j = threadIdx.x; j < cols; j += 32) {
        float v = in[j], top = fmaxf(m, v);
        s = s * expf(m - top) + expf(v - top);
        m = top;
    }
    for (int o = 16; o; o >>= 1) {
        float m2 = __shfl_xor_sync(~0u, m, o), s2 = __shfl_xor_sync(~0u, s, o), top = fmaxf(m, m2);
        s = (m == -INFINITY ? 0.f : s * expf(m - top)) + (m2 == -INFINITY ? 0.f : s2 * expf(m2 - top));
        m = top;
    }
    const float scale = 1.f / s;
    for (int j = threadIdx.x; j < cols; j += 32) y[(long)row * cols + j] = expf(in[j] - m) * scale;
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int rows = x.size(0);
    online<<<(rows + 3) / 4, dim3(32, 4)>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, x.size(1));
    return y;
}
"""
)

SOFTMAX_SPLIT = bound(
    "softmax",
    r"""
// Few long rows: several blocks a row find a maximum and a sum each, a second kernel joins them and writes.
__global__ void partial(const float* x, float2* part, int cols, int chunk) {
    __shared__ float2 all[256];
    const float* in = x + (size_t)blockIdx.y * cols;
    const int end = min(cols, (int)(blockIdx.x + 1) * chunk);
    float m = -INFINITY, s = 0.f;
    for (int j = blockIdx.x * chunk + threadIdx.x; j < end; j += 256) m = fmaxf(m, in[j]);
    for (int j = blockIdx.x * chunk + threadIdx.x; j < end; j += 256) s += expf(in[j] - m);
    all[threadIdx.x] = make_float2(m, s);
    for (int h = 128; h; h >>= 1) {
        __syncthreads();
        if (threadIdx.x < h) {
            float2 a = all[threadIdx.x], b = all[threadIdx.x + h];
            float top = fmaxf(a.x, b.x);
            float sum = (a.y > 0.f ? a.y * expf(a.x - top) : 0.f) + (b.y > 0.f ? b.y * expf(b.x - top) : 0.f);
            all[threadIdx.x] = make_float2(top, sum);
        }
    }
    if (threadIdx.x == 0) part[blockIdx.y * gridDim.x + blockIdx.x] = all[0];
}
__global__ void finish(const float* x, const float2* part, float* y, int cols, int chunk) {
    float m = -INFINITY, s = 0.f;
    for (int k = 0; k < gridDim.x; ++k) m = fmaxf(m, part[blockIdx.y * gridDim.x + k].x);
    for (int k = 0; k < gridDim.x; ++k) {
        float2 p = part[blockIdx.y * gridDim.x + k];
        s += p.y * expf(p.x - m);
    }
    const int end = min(cols, (int)(blockIdx.x + 1) * chunk);
    for (int j = blockIdx.x * chunk + threadIdx.x; j < end; j += 256)
        y[(size_t)blockIdx.y * cols + j] = expf(x[(size_t)blockIdx.y * cols + j] - m) / s;
}
torch::Tensor softmax(torch::Tensor x) {
    const int rows = x.size(0), cols = x.size(1), chunk = 8192, parts = (cols + chunk - 1) / chunk;
    auto part = torch::empty({rows, parts, 2}, x.options()), y = torch::empty_like(x);
    auto* p = reinterpret_cast<float2*>(part.data_ptr<float>());
    partial<<<dim3(parts, rows), 256>>>(x.data_ptr<float>(), p, cols, chunk);
    finish<<<dim3(parts, rows), 256>>>(x.data_ptr<float>(), p, y.data_ptr<float>(), cols, chunk);
    return y;
}
""",
    model("x", "return extension.softmax(x)"),
)

LOG_SOFTMAX = plain(
    BLOCK_SUM
    + r"""
extern "C" __global__ void log_softmax(const float* x, float* y, int cols) {
    __shared__ float warps[32];
    const float* in = x + (size_t)blockIdx.x * cols;
    float m = -INFINITY, s = 0.f;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) m = fmaxf(m, in[j]);
    m = block_reduce(m, true, warps);
    for (int j = threadIdx.x; j < cols; j += blockDim.x) s += expf(in[j] - m);
    m += logf(block_reduce(s, false, warps));
    for (int j = threadIdx.x; j < cols; j += blockDim.x) y[(size_t)blockIdx.x * cols + j] = in[j] - m;
}
""",
    model("x", "y = torch.empty_like(x)\nmodule.log_softmax[x.shape[0], 512](x, y, x.shape[1])\nreturn y"),
)

COLUMN_SOFTMAX = inline(
    "torch::Tensor channel_softmax(torch::Tensor x);",
    r"""
// Softmax over dim 1 of (batch, channels, plane): a thread owns one position, neighbours read neighbours.
template <int MAX> __global__ void channel_softmax_kernel(const float* x, float* y, int channels, int plane, int total) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    const size_t base = (size_t)(i / plane) * channels * plane + i % plane;
    float values[MAX], m = -INFINITY, s = 0.f;
    #pragma unroll
    for (int c = 0; c < MAX; ++c) if (c < channels) m = fmaxf(m, values[c] = x[base + (size_t)c * plane]);
    #pragma unroll
    for (int c = 0; c < MAX; ++c) if (c < channels) s += values[c] = expf(values[c] - m);
    #pragma unroll
    for (int c = 0; c < MAX; ++c) if (c < channels) y[base + (size_t)c * plane] = values[c] / s;
}
torch::Tensor channel_softmax(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int channels = x.size(1), plane = x.size(2) * x.size(3), total = x.size(0) * plane;
    TORCH_CHECK(channels <= 32, "at most 32 channels");
    channel_softmax_kernel<32><<<(total + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), channels, plane,
                                                             total);
    return y;
}
""",
    model("x", "return extension.channel_softmax(x.contiguous())"),
)

MASKED_SOFTMAX = bound(
    "masked_softmax",
    BLOCK_SUM
    + r"""
// Row r of each matrix sees columns 0..r: what lies above the diagonal is zero.
__global__ void causal(const float* x, float* y, int n, float scale) {
    __shared__ float warps[4];
    const int row = blockIdx.x, seen = row + 1;
    const size_t base = ((size_t)blockIdx.y * n + row) * n;
    float m = -INFINITY, s = 0.f;
    for (int j = threadIdx.x; j < seen; j += blockDim.x) m = fmaxf(m, x[base + j] * scale);
    m = block_reduce(m, true, warps);
    for (int j = threadIdx.x; j < seen; j += blockDim.x) s += expf(x[base + j] * scale - m);
    s = block_reduce(s, false, warps);
    for (int j = threadIdx.x; j < n; j += blockDim.x) y[base + j] = j < seen ? expf(x[base + j] * scale - m) / s : 0.f;
}
torch::Tensor masked_softmax(torch::Tensor x, double scale) {
    auto y = torch::empty_like(x);
    const int n = x.size(1);
    causal<<<dim3(n, x.size(0)), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)scale);
    return y;
}
""",
    model("x", "return extension.masked_softmax(x, 0.125)"),
)

LAYER_NORM = inline(
    "torch::Tensor layer_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps);",
    BLOCK_SUM
    + r"""
// The row stays in registers between the passes.
template <int ITEMS>
__global__ void layer_norm_kernel(const float* x, const float* w, const float* b, float* y, int cols, float eps) {
    __shared__ float warps[8];
    float v[ITEMS], sum = 0.f, squares = 0.f;
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        int j = k * 256 + threadIdx.x;
        v[k] = j < cols ? x[(size_t)blockIdx.x * cols + j] : 0.f;
        sum += v[k];
    }
    const float mean = block_reduce(sum, false, warps) / cols;
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        float d = k * 256 + threadIdx.x < cols ? v[k] - mean : 0.f;
        squares += d * d;
    }
    const float scale = rsqrtf(block_reduce(squares, false, warps) / cols + eps);
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        int j = k * 256 + threadIdx.x;
        if (j < cols) y[(size_t)blockIdx.x * cols + j] = (v[k] - mean) * scale * w[j] + b[j];
    }
}
torch::Tensor layer_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
    auto y = torch::empty_like(x);
    const int cols = x.size(-1), rows = x.numel() / cols;
    TORCH_CHECK(cols <= 2048, "at most 2048 columns");
    const float *xp = x.data_ptr<float>(), *wp = w.data_ptr<float>(), *bp = b.data_ptr<float>();
    if (cols <= 256) layer_norm_kernel<1><<<rows, 256>>>(xp, wp, bp, y.data_ptr<float>(), cols, eps);
    else if (cols <= 1024) layer_norm_kernel<4><<<rows, 256>>>(xp, wp, bp, y.data_ptr<float>(), cols, eps);
    else layer_norm_kernel<8><<<rows, 256>>>(xp, wp, bp, y.data_ptr<float>(), cols, eps);
    return y;
}
""",
    model(
        "x",
        "return extension.layer_norm(x, self.norm.weight, self.norm.bias, self.norm.eps)",
        init="width",
        setup="self.norm = nn.LayerNorm(width)",
    ),
)

ADD_LAYER_NORM = bound(
    "add_norm",
    r"""
// One warp a row, Welford, both the sum and its normalised form are returned.
__global__ void add_norm_kernel(const float* x, const float* r, const float* w, float* sum, float* y, int rows, int cols) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float mean = 0.f, m2 = 0.f;
    int count = 0;
    for (int j = lane; j < cols; j += 32) {
        const size_t i = (size_t)row * cols + j;
        const float v = x[i] + r[i], delta = v - mean;
        sum[i] = v;
        mean += delta / ++count;
        m2 += delta * (v - mean);
    }
    for (int o = 1; o < 32; o <<= 1) {
        const float mean2 = __shfl_xor_sync(~0u, mean, o), m22 = __shfl_xor_sync(~0u, m2, o);
        const int count2 = __shfl_xor_sync(~0u, count, o), both = count + count2;
        const float delta = mean2 - mean;
        if (both) {
            m2 += m22 + delta * delta * count * count2 / both;
            mean = (mean * count + mean2 * count2) / both;
        }
        count = both;
    }
    const float scale = rsqrtf(m2 / cols + 1e-5f);
    for (int j = lane; j < cols; j += 32) {
        const size_t i = (size_t)row * cols + j;
        y[i] = (sum[i] - mean) * scale * w[j];
    }
}
std::vector<torch::Tensor> add_norm(torch::Tensor x, torch::Tensor r, torch::Tensor w) {
    auto sum = torch::empty_like(x), y = torch::empty_like(x);
    const int rows = x.size(0), cols = x.size(1);
    add_norm_kernel<<<(rows + 7) / 8, 256>>>(x.data_ptr<float>(), r.data_ptr<float>(), w.data_ptr<float>(),
                                             sum.data_ptr<float>(), y.data_ptr<float>(), rows, cols);
    return {sum, y};
}
""",
    model(
        "x, residual",
        "total, y = extension.add_norm(x, residual, self.weight)\nreturn total, y",
        init="width",
        setup="self.weight = nn.Parameter(torch.ones(width))",
    ),
)

RMS_HALF = inline(
    "torch::Tensor rms(torch::Tensor x, torch::Tensor w);",
    r"""
#include <cuda_fp16.h>
__global__ void rms_kernel(const __half* x, const __half* w, __half* y, int cols) {
    __shared__ float warps[4];
    const __half2* in = reinterpret_cast<const __half2*>(x + (size_t)blockIdx.x * cols);
    float s = 0.f;
    for (int j = threadIdx.x; j < cols / 2; j += 128) { float2 v = __half22float2(in[j]); s += v.x * v.x + v.y * v.y; }
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = s;
    __syncthreads();
    const float scale = rsqrtf((warps[0] + warps[1] + warps[2] + warps[3]) / cols + 1e-6f);
    __half2* out = reinterpret_cast<__half2*>(y + (size_t)blockIdx.x * cols);
    for (int j = threadIdx.x; j < cols / 2; j += 128) {
        float2 v = __half22float2(in[j]), k = __half22float2(reinterpret_cast<const __half2*>(w)[j]);
        out[j] = __floats2half2_rn(v.x * scale * k.x, v.y * scale * k.y);
    }
}
torch::Tensor rms(torch::Tensor x, torch::Tensor w) {
    TORCH_CHECK(x.size(1) % 2 == 0, "an even width is needed");
    auto y = torch::empty_like(x);
    rms_kernel<<<x.size(0), 128>>>((const __half*)x.data_ptr<at::Half>(), (const __half*)w.data_ptr<at::Half>(),
                                   (__half*)y.data_ptr<at::Half>(), x.size(1));
    return y;
}
""",
    model("x, w", "return extension.rms(x, w)"),
)

BATCH_NORM = bound(
    "batch_norm",
    r"""
__global__ void fold(const float* w, const float* b, const float* mean, const float* var, float* scale, float* shift,
                     int channels) {
    int c = threadIdx.x;
    if (c < channels) {
        scale[c] = w[c] * rsqrtf(var[c] + 1e-5f);
        shift[c] = b[c] - mean[c] * scale[c];
    }
}
__global__ void apply(const float* x, const float* scale, const float* shift, float* y, int channels, int plane, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int c = i / plane % channels;
        y[i] = fmaf(x[i], scale[c], shift[c]);
    }
}
torch::Tensor batch_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor mean, torch::Tensor var) {
    const int channels = x.size(1), plane = x.size(2) * x.size(3), n = x.numel();
    auto scale = torch::empty({channels}, x.options()), shift = torch::empty({channels}, x.options());
    auto y = torch::empty_like(x);
    fold<<<1, 1024>>>(w.data_ptr<float>(), b.data_ptr<float>(), mean.data_ptr<float>(), var.data_ptr<float>(),
                      scale.data_ptr<float>(), shift.data_ptr<float>(), channels);
    apply<<<1056, 256>>>(x.data_ptr<float>(), scale.data_ptr<float>(), shift.data_ptr<float>(), y.data_ptr<float>(),
                         channels, plane, n);
    return y;
}
""",
    model("x, w, b, mean, var", "return extension.batch_norm(x, w, b, mean, var)"),
)

GROUP_NORM = plain(
    BLOCK_SUM
    + r"""
extern "C" __global__ void group_norm(const float* x, const float* w, const float* b, float* y, int channels,
                                      int groups, int plane) {
    __shared__ float warps[32];
    const int per = channels / groups, n = per * plane, first = blockIdx.x % groups * per;
    const float* in = x + (size_t)blockIdx.x * n;
    float s = 0.f, q = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += in[i];
    const float mean = block_reduce(s, false, warps) / n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) q += (in[i] - mean) * (in[i] - mean);
    const float scale = rsqrtf(block_reduce(q, false, warps) / n + 1e-5f);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int c = first + i / plane;
        y[(size_t)blockIdx.x * n + i] = (in[i] - mean) * scale * w[c] + b[c];
    }
}
""",
    model(
        "x",
        "y = torch.empty_like(x)\nb, c, h, w = x.shape\n"
        "module.group_norm[b * self.groups, 512](x, self.norm.weight, self.norm.bias, y, c, self.groups, h * w)\nreturn y",
        init="groups, channels",
        setup="self.groups = groups\nself.norm = nn.GroupNorm(groups, channels)",
    ),
)

INSTANCE_NORM = file(
    r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void instance_norm(const float* x, float* y, int plane) {
    __shared__ double sums[2];
    cg::thread_block block = cg::this_thread_block();
    if (block.thread_rank() < 2) sums[block.thread_rank()] = 0;
    block.sync();
    auto warp = cg::tiled_partition<32>(block);
    const float* in = x + (size_t)blockIdx.x * plane;
    float s = 0.f, q = 0.f;
    for (int i = block.thread_rank(); i < plane; i += block.size()) { s += in[i]; q += in[i] * in[i]; }
    for (int o = 16; o; o >>= 1) { s += warp.shfl_down(s, o); q += warp.shfl_down(q, o); }
    if (warp.thread_rank() == 0) { atomicAdd(&sums[0], (double)s); atomicAdd(&sums[1], (double)q); }
    block.sync();
    const double mean = sums[0] / plane, var = sums[1] / plane - mean * mean;
    const float m = mean, scale = rsqrt(var + 1e-5);
    for (int i = block.thread_rank(); i < plane; i += block.size())
        y[(size_t)blockIdx.x * plane + i] = (in[i] - m) * scale;
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    instance_norm<<<x.size(0) * x.size(1), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(2) * x.size(3));
    return y;
}
"""
)

UNIT_ROWS = inline(
    "torch::Tensor unit(torch::Tensor x);",
    r"""
__global__ void unit_kernel(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    // Two rows a warp: sixteen lanes each.
    const int lane = threadIdx.x % 16, row = (blockIdx.x * blockDim.x + threadIdx.x) / 16;
    float s = 0.f;
    if (row < rows) for (int j = lane; j < cols; j += 16) { float v = x[(size_t)row * cols + j]; s = fmaf(v, v, s); }
    for (int o = 8; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o, 16);
    const float scale = 1.f / fmaxf(sqrtf(s), 1e-12f);
    if (row < rows) for (int j = lane; j < cols; j += 16) y[(size_t)row * cols + j] = x[(size_t)row * cols + j] * scale;
}
torch::Tensor unit(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int rows = x.size(0);
    unit_kernel<<<(rows + 15) / 16, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, x.size(1));
    return y;
}
""",
    model("x", "return extension.unit(x)"),
)

_NCHW = "batch = {batch}\nchannels = {channels}\nside = {side}"
CASES = (
    Case("softmax-shared-row", _rows("torch.softmax(x, dim=1)"), SOFTMAX_SHARED),
    Case("softmax-online-warp", _rows("torch.softmax(x, dim=-1)", 6007, 733), SOFTMAX_ONLINE, suffix=".cu"),
    Case("softmax-split-rows", _rows("torch.softmax(x, dim=1)", 33, 130_003), SOFTMAX_SPLIT),
    Case("log-softmax-plain", _rows("F.log_softmax(x, dim=1)", 2003, 2203), LOG_SOFTMAX),
    Case(
        "softmax-over-channels",
        task(
            _NCHW.format(batch=8, channels=21, side=161),
            "torch.randn(batch, channels, side, side)",
            "x",
            "return torch.softmax(x, dim=1)",
        ),
        COLUMN_SOFTMAX,
    ),
    Case(
        "softmax-causal",
        task(
            "batch = 12\nn = 601",
            "torch.randn(batch, n, n)",
            "x",
            "mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device), 1)\n"
            "return torch.softmax((x * 0.125).masked_fill(mask, float('-inf')), dim=-1)",
        ),
        MASKED_SOFTMAX,
    ),
    Case(
        "layer-norm-registers",
        task(
            "batch = 9\nlength = 301\nwidth = 1600",
            "torch.randn(batch, length, width)",
            "x",
            "return self.norm(x)",
            init="width",
            setup="self.norm = nn.LayerNorm(width)",
            init_inputs="width",
        ),
        LAYER_NORM,
    ),
    Case(
        "add-layer-norm-welford",
        task(
            "rows = 4099\nwidth = 519",
            "torch.randn(rows, width), torch.randn(rows, width)",
            "x, residual",
            "total = x + residual\nreturn total, F.layer_norm(total, total.shape[1:], self.weight)",
            init="width",
            setup="self.weight = nn.Parameter(torch.ones(width))",
            init_inputs="width",
        ),
        ADD_LAYER_NORM,
    ),
    Case(
        "rms-norm-half2",
        task(
            "rows = 2047\nhalves = 1024",
            "torch.randn(rows, 2 * halves).half(), torch.rand(2 * halves).half()",
            "x, w",
            "scale = torch.rsqrt(x.float().pow(2).mean(1, keepdim=True) + 1e-6)\n"
            "return (x.float() * scale * w.float()).half()",
        ),
        RMS_HALF,
    ),
    Case(
        "batch-norm-folded",
        task(
            _NCHW.format(batch=16, channels=64, side=67),
            "torch.randn(batch, channels, side, side), torch.rand(channels), torch.randn(channels), "
            "torch.randn(channels), torch.rand(channels) + 0.5",
            "x, w, b, mean, var",
            "return F.batch_norm(x, mean, var, w, b, training=False)",
        ),
        BATCH_NORM,
    ),
    Case(
        "group-norm-plain",
        task(
            _NCHW.format(batch=10, channels=48, side=97),
            "torch.randn(batch, channels, side, side)",
            "x",
            "return self.norm(x)",
            init="groups, channels",
            setup="self.norm = nn.GroupNorm(groups, channels)",
            init_inputs="6, channels",
        ),
        GROUP_NORM,
    ),
    Case(
        "instance-norm-double-atomics",
        task(
            _NCHW.format(batch=11, channels=32, side=113),
            "torch.randn(batch, channels, side, side)",
            "x",
            "return F.instance_norm(x)",
        ),
        INSTANCE_NORM,
        suffix=".cu",
    ),
    Case("unit-rows-half-warps", _rows("F.normalize(x, dim=1)", 20011, 211), UNIT_ROWS),
)
