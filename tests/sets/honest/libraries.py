"""Library calls where the policy allows them: torch from Python and C++, beside own kernels or alone, and torch.compile."""

from __future__ import annotations

from .case import HEAD, Case, bound, inline, model, plain, task

MM_THEN_KERNEL = plain(
    r"""
extern "C" __global__ void bias_gelu(float* y, const float* bias, int cols, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = y[i] + bias[i % cols];
        y[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
    }
}
""",
    model(
        "x",
        "y = torch.mm(x, self.fc.weight.t())\n"
        "module.bias_gelu[(y.numel() + 255) // 256, 256](y, self.fc.bias, y.shape[1], y.numel())\nreturn y",
        init="features, outputs",
        setup="self.fc = nn.Linear(features, outputs)",
    ),
)

CPP_MM = inline(
    "torch::Tensor affine_relu(torch::Tensor x, torch::Tensor w, torch::Tensor b);",
    r"""
__global__ void relu_in_place(float* y, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        y[i] = fmaxf(y[i], 0.f);
}
torch::Tensor affine_relu(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    auto y = at::addmm(b, x, w.t());
    relu_in_place<<<528, 256>>>(y.data_ptr<float>(), y.numel());
    return y;
}
""",
    model(
        "x",
        "return extension.affine_relu(x, self.fc.weight, self.fc.bias)",
        init="features, outputs",
        setup="self.fc = nn.Linear(features, outputs)",
    ),
)

CPP_ONLY = bound(
    "attention",
    r"""
torch::Tensor attention(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(-1)));
    auto scores = torch::bmm(q, k.transpose(1, 2)).mul(scale);
    return torch::bmm(torch::softmax(scores, -1), v);
}
""",
    model("q, k, v", "return extension.attention(q, k, v)"),
)

CONV_THEN_KERNEL = plain(
    r"""
extern "C" __global__ void add_clamp(const float* x, const float* add, float* y, float low, float high, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fminf(fmaxf(x[i] + add[i], low), high);
}
""",
    model(
        "x",
        "y = torch.nn.functional.conv2d(x, self.conv.weight, self.conv.bias, padding=1)\nout = torch.empty_like(y)\n"
        "n = y.numel()\nmodule.add_clamp[(n + 127) // 128, 128](y, x.contiguous(), out, -1.0, 1.0, n)\nreturn out",
        init="channels",
        setup="self.conv = nn.Conv2d(channels, channels, 3, padding=1)",
    ),
)

COMPILED = (
    HEAD
    + """

@torch.compile
def normalised(x, w):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return torch.nn.functional.silu(y * w)
"""
    + model(
        "x",
        "return normalised(x, self.weight)",
        init="width",
        setup="self.weight = nn.Parameter(torch.ones(width))",
    )
)

FUSED_ATTENTION = HEAD + model(
    "q, k, v", "return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)"
)

PREALLOCATED = HEAD + model(
    "a, b, c",
    "out = torch.empty(a.shape[0], b.shape[1], device=a.device)\ntorch.mm(a, b, out=out)\nreturn out.add_(c).relu_()",
)

OTHER_ALGEBRA = HEAD + model(
    "x",
    "half = x.shape[1] // 2\nu, s = x[:, :half], x[:, half:]\nreturn torch.addcmul(u, u, s), torch.einsum('ij,ij->i', u, s)",
)

FOURIER = HEAD + model(
    "x, taps",
    "n = x.shape[1] + taps.shape[0] - 1\n"
    "spectrum = torch.fft.rfft(x.double(), n) * torch.fft.rfft(taps.double(), n)\n"
    "return torch.fft.irfft(spectrum, n)[:, : x.shape[1]].to(x.dtype)",
)


def _case(name: str, task_source: str, candidate: str) -> Case:
    return Case(f"library-{name}", task_source, candidate, policy="libraries")


_LINEAR = {"init": "features, outputs", "setup": "self.fc = nn.Linear(features, outputs)"}
_SIZES = "rows = 1021\nfeatures = 512\noutputs = 769"
CASES = (
    _case(
        "mm-and-epilogue",
        task(
            _SIZES,
            "torch.randn(rows, features)",
            "x",
            "return F.gelu(self.fc(x))",
            init_inputs="features, outputs",
            **_LINEAR,
        ),
        MM_THEN_KERNEL,
    ),
    _case(
        "addmm-in-cpp",
        task(
            _SIZES,
            "torch.randn(rows, features)",
            "x",
            "return F.relu(self.fc(x))",
            init_inputs="features, outputs",
            **_LINEAR,
        ),
        CPP_MM,
    ),
    _case(
        "attention-in-cpp",
        task(
            "batch = 12\nlength = 255\nwidth = 96",
            ", ".join(["torch.randn(batch, length, width)"] * 3),
            "q, k, v",
            "return torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, dim=-1) @ v",
        ),
        CPP_ONLY,
    ),
    _case(
        "conv-and-epilogue",
        task(
            "batch = 8\nchannels = 32\nside = 97",
            "torch.randn(batch, channels, side, side)",
            "x",
            "return torch.clamp(self.conv(x) + x, -1, 1)",
            init="channels",
            setup="self.conv = nn.Conv2d(channels, channels, 3, padding=1)",
            init_inputs="channels",
        ),
        CONV_THEN_KERNEL,
    ),
    _case(
        "compiled",
        task(
            "rows = 2003\nwidth = 1031",
            "torch.randn(rows, width)",
            "x",
            "y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)\nreturn F.silu(y * self.weight)",
            init="width",
            setup="self.weight = nn.Parameter(torch.ones(width))",
            init_inputs="width",
        ),
        COMPILED,
    ),
    _case(
        "fused-attention",
        task(
            "batch = 4\nheads = 8\nlength = 511\nwidth = 64",
            ", ".join(["torch.randn(batch, heads, length, width)"] * 3),
            "q, k, v",
            "n = q.shape[2]\nmask = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()\n"
            "scores = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).masked_fill(~mask, float('-inf'))\n"
            "return torch.softmax(scores, dim=-1) @ v",
        ),
        FUSED_ATTENTION,
    ),
    _case(
        "mm-out-in-place",
        task(
            "m = 1001\nk = 400\nn = 1111",
            "torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)",
            "a, b, c",
            "return torch.relu(a @ b + c)",
        ),
        PREALLOCATED,
    ),
    _case(
        "other-algebra",
        task(
            "rows = 2011\nhalf = 1009",
            "torch.randn(rows, 2 * half)",
            "x",
            "u, s = x.chunk(2, dim=1)\nreturn u * (1 + s), (u * s).sum(1)",
        ),
        OTHER_ALGEBRA,
    ),
    _case(
        "convolution-by-fft",
        task(
            "rows = 500\nlength = 4001\ntaps = 65",
            "torch.randn(rows, length), torch.randn(taps)",
            "x, h",
            "k = h.shape[0]\nreturn F.conv1d(F.pad(x[:, None], (k - 1, 0)), h.flip(0)[None, None])[:, 0]",
        ),
        FOURIER,
    ),
)
