"""Elementwise families: activations, several inputs, broadcasts, vectors, short types."""

from __future__ import annotations

from .family import Edit, small

MAP = small(
    "map", "n = 5003", "torch.randn(n)", "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { float v = x[i]; y[i] = @cuda@; }
}""",
    "y = torch.empty_like(x)\nn = x.numel()\nmodule.k[(n + 127) // 128, 128](x, y, n)\nreturn y",
    {
        "relu": {"torch": "torch.relu(x)", "cuda": "fmaxf(v, 0.f)"},
        "silu": {"torch": "F.silu(x)", "cuda": "v / (1.f + expf(-v))"},
        "gelu": {"torch": "F.gelu(x)", "cuda": "0.5f * v * (1.f + erff(v * 0.70710678f))"},
        "tanh": {"torch": "torch.tanh(x)", "cuda": "tanhf(v)"},
        "softplus": {"torch": "F.softplus(x)", "cuda": "v > 20.f ? v : log1pf(expf(v))"},
        "elu": {"torch": "F.elu(x)", "cuda": "v > 0.f ? v : expm1f(v)"},
        "hardswish": {"torch": "F.hardswish(x)", "cuda": "v * fminf(fmaxf(v + 3.f, 0.f), 6.f) / 6.f"},
        "leaky": {"torch": "F.leaky_relu(x, 0.2)", "cuda": "v > 0.f ? v : 0.2f * v"},
        "square": {"torch": "x * x + 1.0", "cuda": "fmaf(v, v, 1.f)"},
        "rsqrt": {"torch": "torch.rsqrt(x.abs() + 1.0)", "cuda": "rsqrtf(fabsf(v) + 1.f)"},
        "sinusoid": {"torch": "torch.sin(3.0 * x) * torch.cos(x)", "cuda": "sinf(3.f * v) * cosf(v)"},
        "mish": {"torch": "F.mish(x)", "cuda": "v * tanhf(log1pf(expf(v)))"},
    },
    (
        Edit("off-by-one", "i < n)", "i < n - 1)", ("relu", "tanh")),
        Edit("guard", "i < n)", "i <= n)", ("silu",)),
        Edit("index", "blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x * 131 + threadIdx.x", ("elu",)),
        Edit("operation", "fmaxf(v, 0.f)", "fminf(v, 0.f)"),
        Edit("operation", "expf(-v)", "expf(v)", ("silu",)),
        Edit("operation", "0.70710678f", "0.5f", ("gelu",)),
        Edit("operation", "log1pf(expf(v))", "logf(expf(v))", ("softplus",)),
        Edit("operation", "expm1f(v)", "expf(v)", ("elu",)),
        Edit("operation", "0.2f", "0.02f", ("leaky",)),
        Edit("tail", "(n + 127) // 128", "n // 128", ("hardswish",)),
        Edit("operation", "fmaf(v, v, 1.f)", "fmaf(v, 1.f, 1.f)", ("square",)),
    ),
)  # fmt: skip

PAIR = small(
    "pair", "n = 4099", "torch.randn(n), torch.randn(n)", "a, b", "return @torch@",
    r"""
extern "C" __global__ void k(const float* a, const float* b, float* y, int n) {
    int quads = n / 4;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += gridDim.x * blockDim.x) {
        float4 p = ((const float4*)a)[i], q = ((const float4*)b)[i], r;
        r.x = @f@(p.x, q.x); r.y = @f@(p.y, q.y); r.z = @f@(p.z, q.z); r.w = @f@(p.w, q.w);
        ((float4*)y)[i] = r;
    }
    int i = quads * 4 + threadIdx.x;
    if (blockIdx.x == 0 && i < n) y[i] = @f@(a[i], b[i]);
}""".replace("\nextern", "\n__device__ float add(float p, float q) { return p + q; }\n"
             "__device__ float blend(float p, float q) { return 0.3f * p + 0.7f * q; }\nextern"),
    "y = torch.empty_like(a)\nn = a.numel()\nmodule.k[4, 64](a, b, y, n)\nreturn y",
    {
        "add": {"torch": "a + b", "f": "add"},
        "max": {"torch": "torch.maximum(a, b)", "f": "fmaxf"},
        "blend": {"torch": "0.3 * a + 0.7 * b", "f": "blend"},
        "hypot": {"torch": "torch.hypot(a, b)", "f": "hypotf"},
    },
    (
        Edit("tail", "quads * 4 + threadIdx.x", "n + threadIdx.x"),
        Edit("index", "(p.z, q.z)", "(p.z, q.y)", ("max",)),
        Edit("stride", "i += gridDim.x * blockDim.x", "i += 2 * gridDim.x * blockDim.x", ("blend",)),
        Edit("off-by-one", "i < quads", "i < quads - 1", ("hypot",)),
        Edit("guard", "blockIdx.x == 0 && i < n", "blockIdx.x == 0 && i <= n", ("add",)),
        Edit("operation", "0.3f * p + 0.7f * q", "0.3f * q + 0.7f * p", ("blend",)),
    ),
)  # fmt: skip

HALVES = small(
    "halves", "n = 3001", "torch.randn(n).to(torch.@dtype@)", "x", "return @torch@",
    r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k(const @type@* x, @type@* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = @load@(x[i]);
    y[i] = @store@(@cuda@);
}""",
    "y = torch.empty_like(x)\nn = x.numel()\nmodule.k[(n + 255) // 256, 256](x, y, n)\nreturn y",
    {
        "half-relu": {"dtype": "float16", "type": "__half", "load": "__half2float", "store": "__float2half",
                      "torch": "torch.relu(x) * 2", "cuda": "fmaxf(v, 0.f) * 2.f"},
        "half-sigmoid": {"dtype": "float16", "type": "__half", "load": "__half2float", "store": "__float2half",
                         "torch": "torch.sigmoid(x)", "cuda": "1.f / (1.f + expf(-v))"},
        "bf16-relu": {"dtype": "bfloat16", "type": "__nv_bfloat16", "load": "__bfloat162float",
                      "store": "__float2bfloat16", "torch": "torch.relu(x) * 2", "cuda": "fmaxf(v, 0.f) * 2.f"},
        "bf16-gelu": {"dtype": "bfloat16", "type": "__nv_bfloat16", "load": "__bfloat162float",
                      "store": "__float2bfloat16", "torch": "F.gelu(x)",
                      "cuda": "0.5f * v * (1.f + erff(v * 0.70710678f))"},
    },
    (
        Edit("conversion", "float v = __half2float(x[i])", "float v = ((const unsigned short*)x)[i]"),
        Edit("conversion", "float v = __bfloat162float(x[i])", "float v = __half2float(((const __half*)x)[i])", ("bf16-relu",)),
        Edit("conversion", "y[i] = __float2bfloat16(", "((__half*)y)[i] = __float2half(", ("bf16-gelu",)),
        Edit("conversion", "__float2half(1.f", "__int2half_rn((int)1.f", ("half-sigmoid",)),
        Edit("guard", "if (i >= n) return;", "if (i > n) return;", ("half-relu",)),
        Edit("off-by-one", "int i = blockIdx", "int i = 1 + blockIdx", ("bf16-relu",)),
    ),
)  # fmt: skip

BROADCAST = small(
    "broadcast", "rows, cols = 37, 65", "torch.randn(rows, cols), torch.randn(@size@)", "x, b", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, const float* b, float* y, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) return;
    int i = row * cols + col;
    y[i] = x[i] @op@ b[@place@];
}""",
    "y = torch.empty_like(x)\nrows, cols = x.shape\n"
    "module.k[((cols + 31) // 32, (rows + 7) // 8), (32, 8)](x, b, y, rows, cols)\nreturn y",
    {
        "by-column": {"size": "cols", "torch": "x + b", "op": "+", "place": "col"},
        "by-row": {"size": "rows, 1", "torch": "x * b", "op": "*", "place": "row"},
        "scalar": {"size": "1", "torch": "x - b", "op": "-", "place": "0"},
    },
    (
        Edit("index", "b[col]", "b[row]"),
        Edit("index", "b[row]", "b[col]", ("by-row",)),
        Edit("stride", "row * cols + col", "row * rows + col", ("scalar",)),
        Edit("stride", "row * cols + col", "col * rows + row", ("by-row",)),
        Edit("operation", "x[i] - b", "b[0] - x[i] + 0 * b", ("scalar",)),
        Edit("guard", "row >= rows || col >= cols", "row >= rows && col >= cols"),
        Edit("tail", "(rows + 7) // 8", "rows // 8", ("by-column",)),
    ),
)  # fmt: skip

SELECT = small(
    "select", "n = 3000", "torch.randn(n), torch.randn(n), torch.rand(n) > 0.4", "a, b, mask", "return @torch@",
    r"""
extern "C" __global__ void k(const float* a, const float* b, const bool* mask, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = @cuda@;
}""",
    "y = torch.empty_like(a)\nn = a.numel()\nmodule.k[(n + 95) // 96, 96](a, b, mask, y, n)\nreturn y",
    {
        "where": {"torch": "torch.where(mask, a, b)", "cuda": "mask[i] ? a[i] : b[i]"},
        "fill": {"torch": "a.masked_fill(mask, -1.0) + b", "cuda": "(mask[i] ? -1.f : a[i]) + b[i]"},
        "clamp": {"torch": "torch.where(mask, a.clamp(-1, 1), b)", "cuda": "mask[i] ? fminf(fmaxf(a[i], -1.f), 1.f) : b[i]"},
    },
    (
        Edit("operation", "mask[i] ? a[i] : b[i]", "mask[i] ? b[i] : a[i]"),
        Edit("conversion", "const bool* mask", "const int* mask", ("where",)),
        Edit("operation", "-1.f : a[i]", "1.f : a[i]", ("fill",)),
        Edit("operation", "fmaxf(a[i], -1.f)", "fmaxf(a[i], 0.f)", ("clamp",)),
    ),
)  # fmt: skip

INTEGERS = small(
    "integers", "n = 2500", "torch.randint(-1000, 1000, (n,), dtype=torch.@dtype@)", "x", "return @torch@",
    r"""
extern "C" __global__ void k(const @type@* x, @type@* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = @cuda@;
}""",
    "y = torch.empty_like(x)\nmodule.k[1, 1024](x, y, x.numel())\nreturn y",
    {
        "int32-mix": {"dtype": "int32", "type": "int", "torch": "(x ^ 0x55) + (x >> 2)", "cuda": "(x[i] ^ 0x55) + (x[i] >> 2)"},
        "int64-scale": {"dtype": "int64", "type": "long long", "torch": "x * 3000000000 + 7", "cuda": "x[i] * 3000000000ll + 7"},
        "int16-abs": {"dtype": "int16", "type": "short", "torch": "x.abs() * 3", "cuda": "(short)(abs(x[i]) * 3)"},
        "int32-mod": {"dtype": "int32", "type": "int", "torch": "torch.remainder(x, 7)", "cuda": "((x[i] % 7) + 7) % 7"},
    },
    (
        Edit("operation", "(x[i] >> 2)", "((unsigned)x[i] >> 2)"),
        Edit("conversion", "x[i] * 3000000000ll", "(int)(x[i] * 3000000000ll)", ("int64-scale",)),
        Edit("operation", "((x[i] % 7) + 7) % 7", "x[i] % 7", ("int32-mod",)),
        Edit("stride", "i += blockDim.x", "i += blockDim.x + 1", ("int16-abs",)),
        Edit("conversion", "const short* x", "const unsigned short* x", ("int16-abs",)),
    ),
)  # fmt: skip

PARTS = small(
    "parts", "rows, width = 19, 48", "torch.randn(rows, 2 * width)", "x", "a, b = x.chunk(2, dim=1)\nreturn @torch@",
    r"""
extern "C" __global__ void k(const float* x, float* y, int width) {
    const float* a = x + blockIdx.x * 2 * width;
    const float* b = a + width;
    for (int j = threadIdx.x; j < width; j += blockDim.x) y[blockIdx.x * width + j] = @cuda@;
}""",
    "rows, width = x.shape[0], x.shape[1] // 2\ny = torch.empty(rows, width, device=x.device)\n"
    "module.k[rows, 32](x, y, width)\nreturn y",
    {
        "glu": {"torch": "a * torch.sigmoid(b)", "cuda": "a[j] / (1.f + expf(-b[j]))"},
        "swiglu": {"torch": "F.silu(a) * b", "cuda": "a[j] / (1.f + expf(-a[j])) * b[j]"},
        "reglu": {"torch": "torch.relu(a) * b", "cuda": "fmaxf(a[j], 0.f) * b[j]"},
    },
    (
        Edit("index", "b = a + width", "b = a + width - 1"),
        Edit("stride", "x + blockIdx.x * 2 * width", "x + blockIdx.x * width", ("swiglu",)),
        Edit("operation", "fmaxf(a[j], 0.f) * b[j]", "fmaxf(b[j], 0.f) * a[j]", ("reglu",)),
        Edit("tail", "j < width; j += blockDim.x", "j < blockDim.x; j += blockDim.x", ("glu",)),
    ),
)  # fmt: skip

FAMILIES = (MAP, PAIR, HALVES, BROADCAST, SELECT, INTEGERS, PARTS)
