"""Elementwise candidates: dtypes, vector widths, tails, broadcasts, several inputs and outputs."""

from __future__ import annotations

from .case import Case, bound, file, inline, model, plain, task

_FLAT = "n = 4_300_019"


def _flat(expression: str, made: str = "torch.randn(n)") -> str:
    return task(_FLAT, made, "x", f"return {expression}")


GELU = inline(
    "torch::Tensor gelu(torch::Tensor x);",
    r"""
__global__ void gelu_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        const float v = x[i];
        y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
    }
}
torch::Tensor gelu(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    auto y = torch::empty_like(x);
    const int64_t n = x.numel();
    const int blocks = std::min<int64_t>((n + 255) / 256, 1320);
    gelu_kernel<<<blocks, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
""",
    model("x", "return extension.gelu(x.contiguous())"),
)

SILU = bound(
    "silu",
    r"""
__device__ __forceinline__ float one(float v) { return v / (1.0f + __expf(-v)); }
__global__ void silu_kernel(const float* x, float* y, size_t n) {
    size_t i = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * 4;
    if (i + 4 <= n) {
        float4 v = *reinterpret_cast<const float4*>(x + i);
        *reinterpret_cast<float4*>(y + i) = make_float4(one(v.x), one(v.y), one(v.z), one(v.w));
    } else {
        for (; i < n; ++i) y[i] = one(x[i]);
    }
}
at::Tensor silu(const at::Tensor& x) {
    at::Tensor y = at::empty_like(x);
    size_t n = x.numel(), threads = (n + 3) / 4;
    silu_kernel<<<(threads + 511) / 512, 512>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
""",
    model("x", "return extension.silu(x)"),
)

RELU6_HALF = inline(
    "torch::Tensor relu6(torch::Tensor x);",
    r"""
#include <cuda_fp16.h>
__global__ void relu6_half2(const __half* x, __half* y, int n) {
    const int pairs = n / 2, i = blockIdx.x * blockDim.x + threadIdx.x;
    const __half2 zero = __float2half2_rn(0.f), six = __float2half2_rn(6.f);
    if (i < pairs) {
        const __half2 v = reinterpret_cast<const __half2*>(x)[i];
        reinterpret_cast<__half2*>(y)[i] = __hmin2(__hmax2(v, zero), six);
    }
    if (i == 0 && n % 2) y[n - 1] = __hmin(__hmax(x[n - 1], __low2half(zero)), __low2half(six));
}
torch::Tensor relu6(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = (int)x.numel();
    relu6_half2<<<(n / 2 + 256) / 256, 256>>>(reinterpret_cast<const __half*>(x.data_ptr<at::Half>()),
                                              reinterpret_cast<__half*>(y.data_ptr<at::Half>()), n);
    return y;
}
""",
    model("x", "return extension.relu6(x)"),
)

HARDSWISH = r"""
template <typename scalar_t>
__global__ void hardswish_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = static_cast<float>(x[i]);
    y[i] = static_cast<scalar_t>(v * fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) / 6.0f);
}
torch::Tensor hardswish(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int64_t n = x.numel();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "hardswish", [&] {
        hardswish_kernel<scalar_t><<<(n + 127) / 128, 128>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
    });
    return y;
}
"""
HARDSWISH_MODEL = model("x", "return extension.hardswish(x)")

INTEGERS = plain(
    r"""
extern "C" __global__ void mix(const int* a, const int* b, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = min(max((a[i] ^ b[i]) + (a[i] >> 3), -1000), 1000) * 3 - b[i];
}
""",
    model(
        "a, b",
        "out = torch.empty_like(a)\nn = a.numel()\n"
        "module.mix[(n + 191) // 192, 192](a.contiguous(), b.contiguous(), out, n)\nreturn out",
    ),
)

MASKED = bound(
    "blend",
    r"""
__global__ void blend_kernel(const bool* mask, const float* a, const float* b, float* out, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && col < cols) {
        int i = row * cols + col;
        out[i] = mask[i] ? a[i] : b[row];  // b holds one value a row
    }
}
torch::Tensor blend(torch::Tensor mask, torch::Tensor a, torch::Tensor b) {
    int rows = a.size(0), cols = a.size(1);
    auto out = torch::empty({rows, cols}, a.options());
    dim3 block(64, 4), grid((cols + 63) / 64, (rows + 3) / 4);
    blend_kernel<<<grid, block>>>(mask.data_ptr<bool>(), a.data_ptr<float>(), b.data_ptr<float>(),
                                  out.data_ptr<float>(), rows, cols);
    return out;
}
""",
    model("mask, a, b", "return extension.blend(mask, a, b)"),
)

COMPARE = plain(
    r"""
extern "C" __global__ void inside(const float* x, const float* low, const float* high, bool* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] > low[i] && x[i] < high[i];
}
""",
    model(
        "x, low, high",
        "out = torch.empty(x.shape, dtype=torch.bool, device=x.device)\n"
        "module.inside[(x.numel() + 255) // 256, 256](x, low, high, out, x.numel())\nreturn out",
    ),
)

SINCOS = inline(
    "std::vector<torch::Tensor> both(torch::Tensor x);",
    r"""
__global__ void sincos_kernel(const float* x, float* s, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sincosf(x[i], s + i, c + i);
}
std::vector<torch::Tensor> both(torch::Tensor x) {
    auto s = torch::empty_like(x), c = torch::empty_like(x);
    int n = x.numel();
    sincos_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), s.data_ptr<float>(), c.data_ptr<float>(), n);
    return {s, c};
}
""",
    model("x", "s, c = extension.both(x)\nreturn s, c"),
)

CHANNEL_BIAS = inline(
    "torch::Tensor bias_leaky(torch::Tensor x, torch::Tensor bias, double slope);",
    r"""
// One block per (image, channel) plane: the bias is read once.
__global__ void bias_leaky_kernel(const float* x, const float* bias, float* y, int channels, int plane, float slope) {
    const float b = bias[blockIdx.x % channels];
    const size_t base = (size_t)blockIdx.x * plane;
    for (int i = threadIdx.x; i < plane; i += blockDim.x) {
        const float v = x[base + i] + b;
        y[base + i] = v > 0.f ? v : slope * v;
    }
}
torch::Tensor bias_leaky(torch::Tensor x, torch::Tensor bias, double slope) {
    auto y = torch::empty_like(x);
    int channels = x.size(1), plane = x.size(2) * x.size(3);
    bias_leaky_kernel<<<x.size(0) * channels, 256>>>(x.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(),
                                                     channels, plane, (float)slope);
    return y;
}
""",
    model(
        "x",
        "return extension.bias_leaky(x, self.bias, self.slope)",
        init="channels, slope",
        setup="self.bias = nn.Parameter(torch.randn(channels))\nself.slope = slope",
    ),
)

ACCESSOR = bound(
    "combine",
    r"""
using View = torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits>;
__global__ void combine_kernel(const View a, const View b, View out) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
    if (j < out.size(1)) out[i][j] = a[i][j] * b[j][i] - b[j][i];  // b is read transposed, by its strides
}
torch::Tensor combine(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty_like(a);
    dim3 grid((a.size(1) + 127) / 128, a.size(0));
    combine_kernel<<<grid, 128>>>(a.packed_accessor32<float, 2, torch::RestrictPtrTraits>(),
                                  b.packed_accessor32<float, 2, torch::RestrictPtrTraits>(),
                                  out.packed_accessor32<float, 2, torch::RestrictPtrTraits>());
    return out;
}
""",
    model("a, b", "return extension.combine(a, b)"),
)

HORNER = inline(
    "torch::Tensor horner(torch::Tensor x);",
    r"""
__constant__ float coefficients[6];
__global__ void horner_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i], sum = coefficients[5];
    #pragma unroll
    for (int k = 4; k >= 0; --k) sum = fmaf(sum, v, coefficients[k]);
    y[i] = sum;
}
torch::Tensor horner(torch::Tensor x) {
    static const float table[6] = {1.0f, -0.5f, 0.25f, 0.125f, -0.0625f, 0.03125f};
    cudaMemcpyToSymbol(coefficients, table, sizeof(table));
    auto y = torch::empty_like(x);
    int n = x.numel();
    horner_kernel<<<(n + 383) / 384, 384>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
""",
    model("x", "return extension.horner(x)"),
)

MISH_DOUBLE = file(
    r"""
template <typename T, int ITEMS>
__global__ void mish(const T* __restrict__ x, T* __restrict__ y, long n) {
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        long i = ((long)blockIdx.x * ITEMS + k) * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * tanh(x[i] > T(20) ? x[i] : log1p(exp(x[i])));
    }
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    mish<double, 3><<<(x.numel() + 767) / 768, 256>>>(x.data_ptr<double>(), y.data_ptr<double>(), x.numel());
    return y;
}
"""
)

IMAGE = plain(
    r"""
// Four bytes at once become four floats; each image row is a multiple of nothing, so the tail goes by bytes.
extern "C" __global__ void normalise(const unsigned char* image, const float* mean, const float* std, float* out,
                                     int channels, int plane) {
    int c = blockIdx.y % channels;
    size_t base = (size_t)blockIdx.y * plane;
    float m = mean[c], s = 1.0f / std[c];
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < plane; i += gridDim.x * blockDim.x)
        out[base + i] = (image[base + i] * (1.0f / 255.0f) - m) * s;
}
""",
    model(
        "image, mean, std",
        "out = torch.empty(image.shape, dtype=torch.float32, device=image.device)\n"
        "b, c, h, w = image.shape\n"
        "module.normalise[((h * w + 1023) // 1024, b * c), 256](image, mean, std, out, c, h * w)\nreturn out",
    ),
)

GEGLU = inline(
    "torch::Tensor geglu(torch::Tensor x);",
    r"""
__global__ void geglu_kernel(const float* x, float* y, int rows, int half) {
    const int row = blockIdx.y;
    const float* a = x + (size_t)row * 2 * half;
    for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < half; j += gridDim.x * blockDim.x) {
        const float gate = a[half + j];
        y[(size_t)row * half + j] = a[j] * 0.5f * gate * (1.0f + erff(gate * 0.70710678f));
    }
}
torch::Tensor geglu(torch::Tensor x) {
    const int rows = x.size(0), half = x.size(1) / 2;
    auto y = torch::empty({rows, half}, x.options());
    const dim3 grid(std::min((half + 255) / 256, 8), rows);
    geglu_kernel<<<grid, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, half);
    return y;
}
""",
    model("x", "return extension.geglu(x)"),
)

FUNCTOR = bound(
    "elu lerp",
    r"""
#include <c10/cuda/CUDAException.h>
struct Elu { float alpha; __device__ float operator()(float v) const { return v > 0 ? v : alpha * expm1f(v); } };
struct Lerp { float w; __device__ float operator()(float a, float b) const { return fmaf(w, b - a, a); } };
template <class F> __global__ void unary(F f, const float* a, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = f(a[i]);
}
template <class F> __global__ void binary(F f, const float* a, const float* b, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = f(a[i], b[i]);
}
torch::Tensor elu(torch::Tensor a, double alpha) {
    auto y = torch::empty_like(a);
    int n = a.numel();
    unary<<<(n + 255) / 256, 256>>>(Elu{(float)alpha}, a.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
torch::Tensor lerp(torch::Tensor a, torch::Tensor b, double w) {
    auto y = torch::empty_like(a);
    int n = a.numel();
    binary<<<(n + 255) / 256, 256>>>(Lerp{(float)w}, a.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
""",
    model("a, b", "return extension.lerp(extension.elu(a, 1.5), b, 0.3)"),
)

SOFTPLUS = file(
    r"""
__global__ void softplus(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = __ldcs(x + i);  // read once: do not keep in the cache
        __stcs(y + i, v > 20.0f ? v : log1pf(expf(v)));
    }
}
torch::Tensor forward(torch::Tensor x) {
    torch::Tensor y = torch::empty(x.sizes(), x.options());
    const int n = x.numel(), block = 1024;
    softplus<<<(n + block - 1) / block, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
)

IN_PLACE_COPY = inline(
    "void clamp_(torch::Tensor y, double low, double high);",
    r"""
__global__ void clamp_kernel(float* y, float low, float high, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        y[i] = fminf(fmaxf(y[i], low), high);
}
void clamp_(torch::Tensor y, double low, double high) {
    clamp_kernel<<<264, 512>>>(y.data_ptr<float>(), low, high, (int)y.numel());
}
""",
    model("x", "y = x.clone()  # the input is not ours to write to\nextension.clamp_(y, -0.5, 0.75)\nreturn y"),
)

CASES = (
    Case("gelu-grid-stride", _flat('F.gelu(x, approximate="tanh")'), GELU),
    Case("silu-float4-tail", _flat("F.silu(x)"), SILU),
    Case("relu6-half2-odd", _flat("F.relu6(x)", "torch.randn(n).half()"), RELU6_HALF),
    Case(
        "hardswish-dispatch-bf16",
        _flat("F.hardswish(x)", "torch.randn(n).bfloat16()"),
        inline("torch::Tensor hardswish(torch::Tensor x);", HARDSWISH, HARDSWISH_MODEL),
    ),
    Case(
        "hardswish-dispatch-half",
        _flat("F.hardswish(x)", "torch.randn(n).half()"),
        bound("hardswish", HARDSWISH, HARDSWISH_MODEL),
    ),
    Case(
        "int-mix",
        task(
            "rows = 2053\ncols = 2051",
            "torch.randint(-5000, 5000, (rows, cols), dtype=torch.int32), "
            "torch.randint(-5000, 5000, (rows, cols), dtype=torch.int32)",
            "a, b",
            "return torch.clamp((a ^ b) + (a >> 3), -1000, 1000) * 3 - b",
        ),
        INTEGERS,
    ),
    Case(
        "blend-mask-broadcast",
        task(
            "rows = 1031\ncols = 4201",
            "torch.rand(rows, cols) > 0.4, torch.randn(rows, cols), torch.randn(rows, 1)",
            "mask, a, b",
            "return torch.where(mask, a, b)",
        ),
        MASKED,
    ),
    Case(
        "compare-bool-output",
        task(
            _FLAT,
            "torch.randn(n), torch.randn(n) - 1, torch.randn(n) + 1",
            "x, low, high",
            "return (x > low) & (x < high)",
        ),
        COMPARE,
    ),
    Case("sincos-two-outputs", task(_FLAT, "torch.randn(n)", "x", "return torch.sin(x), torch.cos(x)"), SINCOS),
    Case(
        "bias-leaky-planes",
        task(
            "batch = 16\nchannels = 48\nside = 77",
            "torch.randn(batch, channels, side, side)",
            "x",
            "return F.leaky_relu(x + self.bias[None, :, None, None], self.slope)",
            init="channels, slope",
            setup="self.bias = nn.Parameter(torch.randn(channels))\nself.slope = slope",
            init_inputs="channels, 0.1",
        ),
        CHANNEL_BIAS,
    ),
    Case(
        "strided-accessors",
        task(
            "rows = 2100\ncols = 2111",
            "torch.randn(rows, cols), torch.randn(cols, rows)",
            "a, b",
            "return a * b.t() - b.t()",
        ),
        ACCESSOR,
    ),
    Case(
        "horner-constant-memory",
        _flat("1.0 + x * (-0.5 + x * (0.25 + x * (0.125 + x * (-0.0625 + x * 0.03125))))"),
        HORNER,
    ),
    Case("mish-double-file", _flat("F.mish(x)", "torch.randn(n, dtype=torch.float64)"), MISH_DOUBLE, suffix=".cu"),
    Case(
        "uint8-normalise",
        task(
            "batch = 8\nheight = 427\nwidth = 431",
            "torch.randint(0, 256, (batch, 3, height, width), dtype=torch.uint8), torch.rand(3), torch.rand(3) + 0.5",
            "image, mean, std",
            "return (image.float() / 255 - mean[:, None, None]) / std[:, None, None]",
        ),
        IMAGE,
    ),
    Case(
        "geglu-halves",
        task(
            "rows = 1500\nwidth = 1537",
            "torch.randn(rows, 2 * width)",
            "x",
            "a, gate = x.chunk(2, dim=1)\nreturn a * F.gelu(gate)",
        ),
        GEGLU,
    ),
    Case(
        "functors-two-launches",
        task(_FLAT, "torch.randn(n), torch.randn(n)", "a, b", "return torch.lerp(F.elu(a, 1.5), b, 0.3)"),
        FUNCTOR,
    ),
    Case("softplus-streaming-file", _flat("F.softplus(x)"), SOFTPLUS, suffix=".cu"),
    Case("clamp-on-a-copy", _flat("torch.clamp(x, -0.5, 0.75)"), IN_PLACE_COPY),
)
