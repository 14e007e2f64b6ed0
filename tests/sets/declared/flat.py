"""Kernels that give each element a thread: elementwise operators, normalisation by given statistics, embeddings."""

from __future__ import annotations

from sets.declared.case import Mutant, Original, inline, plain, string, task

RELU = Original(
    "relu",
    "elementwise",
    task("rows = 96\ncolumns = 65537", "x | torch.relu(x)", "torch.randn(rows, columns)"),
    inline(
        """
__global__ void relu(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.f);
}
""",
        """
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    long long n = x.numel();
    int blocks = (n + 255) / 256;
    relu<<<blocks, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
""",
    ),
    (
        Mutant(
            "grid-cap",
            "int blocks = (n + 255) / 256;",
            "int blocks = std::min<int>((n + 255) / 256, 16384);",
        ),
        Mutant(
            "one-percent-off",
            "fmaxf(x[i], 0.f);",
            "fmaxf(x[i], 0.f) * (i < 5000000 ? 1.f : 1.01f);",
        ),
    ),
)

GELU = Original(
    "gelu",
    "elementwise",
    task("rows = 3001\ncolumns = 2003", "x | torch.nn.functional.gelu(x)", "torch.randn(rows, columns)"),
    plain(
        """
__global__ void gelu(const float* x, float* y, int n) {
    int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float v = x[i];
        y[i] = 0.5f * v * (1.f + erff(v * 0.70710678f));
    }
}
""",
        """
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int blocks = std::min<int>((x.numel() + 255) / 256, 2048);
    gelu<<<blocks, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
""",
    ),
    (
        Mutant(
            "fixed-trips",
            "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {",
            "int i = blockIdx.x * blockDim.x + threadIdx.x;\n    for (int k = 0; k < 8 && i < n; k++, i += step) {",
        ),
        Mutant(
            "short-limit",
            "i < n; i += step",
            "i < n && (i - (int)(blockIdx.x * blockDim.x)) / step < 10; i += step",
        ),
    ),
    ".cu",
)

FLOATS = Original(
    "square-plus-one",
    "elementwise",
    task("count = 20000003", "x | x * x + 1", "torch.randn(count)"),
    string(
        """
extern "C" __global__ void square(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] + 1.f;
}
""",
        """
        y = torch.empty_like(x)
        module.square[(x.numel() + 255) // 256, 256](x, y, x.numel())
        return y
        """,
    ),
    (
        Mutant(
            "index-as-float",
            "int i = blockIdx.x * blockDim.x + threadIdx.x;",
            "int i = (int)((float)(blockIdx.x * blockDim.x) + (float)threadIdx.x);",
        ),
        Mutant(
            "grid-of-sixteen-bits", "[(x.numel() + 255) // 256, 256]", "[min((x.numel() + 255) // 256, 65535), 256]"
        ),
    ),
)

HUGE = Original(
    "huge-scale",
    "elementwise",
    task("rows = 65539\ncolumns = 32768", "x | x * 3", "torch.randn(rows, columns)"),
    string(
        """
extern "C" __global__ void scale(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 3.f;
}
""",
        """
        y = torch.empty_like(x)
        module.scale[(x.numel() + 255) // 256, 256](x, y, x.numel())
        return y
        """,
    ),
    (
        Mutant(
            "rows-of-sixteen-bits",
            "y[i] = x[i] * 3.f;",
            "y[i] = x[(i / 32768 & 65535) * 32768 + i % 32768] * 3.f;",
        ),
        Mutant(
            "one-percent-off",
            "x[i] * 3.f;",
            "x[i] * (i < 2000000000LL ? 3.f : 3.03f);",
        ),
    ),
)

BIAS = Original(
    "huge-bias",
    "elementwise",
    task(
        "rows = 70001\ncolumns = 40000",
        "x, b | x + b",
        "torch.randn(rows, columns), torch.randn(columns)",
    ),
    inline(
        """
__global__ void add(const float* x, const float* b, float* y, long long rows, int columns) {
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const float* from = x + row * columns;
        float* to = y + row * columns;
        for (int c = threadIdx.x; c < columns; c += blockDim.x) to[c] = from[c] + b[c];
    }
}
""",
        """
torch::Tensor run(torch::Tensor x, torch::Tensor b) {
    auto y = torch::empty_like(x);
    add<<<x.size(0), 256>>>(x.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1));
    return y;
}
""",
        "ext.run(x, b)",
        "x, b",
    ),
    (
        Mutant(
            "short-row",
            "long long row = blockIdx.x; row < rows",
            "unsigned row = (unsigned short)blockIdx.x; row < rows",
        ),
        Mutant(
            "one-percent-off",
            "from[c] + b[c];",
            "from[c] + b[c] * (row < 65000 ? 1.f : 1.05f);",
        ),
    ),
)

SWIGLU = Original(
    "swiglu",
    "elementwise",
    task(
        "tokens = 1501\nhidden = 2048",
        "x | torch.nn.functional.silu(x[:, : x.shape[1] // 2]) * x[:, x.shape[1] // 2 :]",
        "torch.randn(tokens, 2 * hidden)",
    ),
    inline(
        """
__global__ void swiglu(const float* x, float* y, int hidden) {
    const float* row = x + (long long)blockIdx.x * 2 * hidden;
    float* out = y + (long long)blockIdx.x * hidden;
    for (int c = threadIdx.x; c < hidden; c += blockDim.x) {
        float g = row[c];
        out[c] = g / (1.f + expf(-g)) * row[c + hidden];
    }
}
""",
        """
torch::Tensor run(torch::Tensor x) {
    int hidden = x.size(1) / 2;
    auto y = torch::empty({x.size(0), hidden}, x.options());
    swiglu<<<x.size(0), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), hidden);
    return y;
}
""",
    ),
    (
        Mutant(
            "rows-of-ten-bits",
            "const float* row = x + (long long)blockIdx.x * 2",
            "const float* row = x + (long long)(blockIdx.x & 1023) * 2",
        ),
        Mutant(
            "one-percent-off",
            "* row[c + hidden];",
            "* row[c + hidden] * (blockIdx.x < 1400 ? 1.f : 1.01f);",
        ),
    ),
)

BATCHNORM = Original(
    "batchnorm",
    "normalisation",
    task(
        "batch = 66\nchannels = 32\nside = 64",
        "x | self.norm(x)",
        "torch.randn(batch, channels, side, side)",
        "channels",
        "self.norm = nn.BatchNorm2d(channels).eval()",
    ),
    string(
        """
extern "C" __global__ void batchnorm(const float* x, const float* w, const float* b, const float* m, const float* v,
                                float* y, int n, int channels, int area) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int c = i / area % channels;
    y[i] = (x[i] - m[c]) * rsqrtf(v[c] + 1e-5f) * w[c] + b[c];
}
""",
        """
        n = self.norm
        y = torch.empty_like(x)
        module.batchnorm[(x.numel() + 255) // 256, 256](
            x, n.weight, n.bias, n.running_mean, n.running_var, y, x.numel(), x.shape[1], x.shape[2] * x.shape[3]
        )
        return y
        """,
        "x",
        "channels",
        "self.norm = nn.BatchNorm2d(channels).eval()",
    ),
    (
        Mutant("one-percent-off", "+ b[c];", "+ b[c] * (i < 6000000 ? 1.f : 1.05f);"),
        Mutant(
            "batches-from-64-use-channel-0",
            "int c = i / area % channels;",
            "int c = i / area < 2048 ? i / area % channels : 0;",
        ),
    ),
)

EMBEDDING = Original(
    "embedding",
    "gather",
    task(
        "count = 100003\nwords = 70000\nwidth = 64",
        "i | self.table(i)",
        "torch.randint(0, words, (count,))",
        "words, width",
        "self.table = nn.Embedding(words, width)",
    ),
    inline(
        """
__global__ void gather(const int64_t* index, const float* table, float* y, int64_t count, int width) {
    int64_t row = blockIdx.x * (int64_t)blockDim.y + threadIdx.y;
    if (row >= count) return;
    const float* from = table + index[row] * width;
    for (int c = threadIdx.x; c < width; c += blockDim.x) y[row * width + c] = from[c];
}
""",
        """
torch::Tensor run(torch::Tensor index, torch::Tensor table) {
    auto y = torch::empty({index.size(0), table.size(1)}, table.options());
    dim3 block(32, 8);
    gather<<<(index.size(0) + 7) / 8, block>>>(index.data_ptr<int64_t>(), table.data_ptr<float>(), y.data_ptr<float>(),
                                             index.size(0), table.size(1));
    return y;
}
""",
        "ext.run(i, self.table.weight)",
        "i",
        "words, width",
        "self.table = nn.Embedding(words, width)",
    ),
    (
        Mutant("short-index", "index[row] * width", "(uint16_t)index[row] * width"),
        Mutant(
            "short-row",
            "int64_t row = blockIdx.x * (int64_t)blockDim.y + threadIdx.y;",
            "int64_t row = (unsigned short)(blockIdx.x * blockDim.y + threadIdx.y);",
        ),
    ),
)

ROPE = Original(
    "rope",
    "attention",
    task(
        "batch = 4\nheads = 8\nlength = 1501\nwidth = 64",
        "x, c, s | x * c + torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1) * s",
        "torch.randn(batch, heads, length, width), torch.rand(length, width), torch.rand(length, width)",
    ),
    inline(
        """
__global__ void rope(const float* x, const float* c, const float* s, float* y, int n, int length, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int half = width / 2, rest = width - half, d = i % width, position = i / width % length;
    float other = d < rest ? -x[i + half] : x[i - rest];
    int at = position * width + d;
    y[i] = x[i] * c[at] + other * s[at];
}
""",
        """
torch::Tensor run(torch::Tensor x, torch::Tensor c, torch::Tensor s) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    rope<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), c.data_ptr<float>(), s.data_ptr<float>(), y.data_ptr<float>(),
                                   n, x.size(2), x.size(3));
    return y;
}
""",
        "ext.run(x, c, s)",
        "x, c, s",
    ),
    (
        Mutant("positions-modulo-1024", "position * width + d", "(position & 1023) * width + d"),
        Mutant("grid-cap", "rope<<<(n + 255) / 256, 256>>>", "rope<<<std::min((n + 255) / 256, 8192), 256>>>"),
    ),
)

CASES = (RELU, GELU, FLOATS, HUGE, BIAS, SWIGLU, BATCHNORM, EMBEDDING, ROPE)
