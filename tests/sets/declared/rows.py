"""Kernels that reduce or scan rows: sums, softmax, norms, arguments of maxima, losses, scans."""

from __future__ import annotations

from sets.declared.case import Mutant, Original, inline, plain, string, task

_SUM = """
__device__ float block_sum(float v) {
    __shared__ float part[32];
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.f;
    if (threadIdx.x < 32) {
        for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
        if (threadIdx.x == 0) part[0] = v;
    }
    __syncthreads();
    return part[0];
}
"""

ROW_SUM = Original(
    "row-sum",
    "reduction",
    task("rows = 20\ncolumns = 300007", "x | x.sum(dim=1)", "torch.randn(rows, columns)"),
    string(
        _SUM
        + """
extern "C" __global__ void sums(const float* x, float* y, int n) {
    const float* row = x + (long long)blockIdx.x * n;
    float sum = 0.f;
    for (int c = threadIdx.x; c < n; c += blockDim.x) sum += row[c];
    sum = block_sum(sum);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
""",
        """
        y = torch.empty(x.shape[0], device=x.device)
        module.sums[x.shape[0], 256](x, y, x.shape[1])
        return y
        """,
    ),
    (
        Mutant(
            "fixed-trips",
            "for (int c = threadIdx.x; c < n; c += blockDim.x) sum += row[c];",
            "for (int k = 0, c; k < 1024; k++)\n        if ((c = k * 256 + threadIdx.x) < n) sum += row[c];",
        ),
        Mutant(
            "column-cap",
            "c < n; c += blockDim.x",
            "c < (n < 262144 ? n : 262144); c += blockDim.x",
        ),
    ),
)

ARGMAX = Original(
    "argmax",
    "reduction",
    task("rows = 16\ncolumns = 400009", "x | x.argmax(dim=1)", "torch.randn(rows, columns)"),
    inline(
        """
__global__ void argmax(const float* x, int64_t* y, int n) {
    __shared__ float best[256];
    __shared__ int place[256];
    const float* row = x + (int64_t)blockIdx.x * n;
    float top = -INFINITY;
    int at = 0;
    for (int c = threadIdx.x; c < n; c += 256)
        if (row[c] > top) top = row[c], at = c;
    best[threadIdx.x] = top;
    place[threadIdx.x] = at;
    __syncthreads();
    for (int h = 128; h > 0; h /= 2) {
        int o = threadIdx.x + h;
        if (threadIdx.x < h && (best[o] > best[threadIdx.x] ||
                                (best[o] == best[threadIdx.x] && place[o] < place[threadIdx.x])))
            best[threadIdx.x] = best[o], place[threadIdx.x] = place[o];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = place[0];
}
""",
        """
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options().dtype(torch::kLong));
    argmax<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<int64_t>(), x.size(1));
    return y;
}
""",
    ),
    (
        Mutant(
            "short-place",
            "__shared__ int place[256];",
            "__shared__ unsigned short place[256];",
        ),
        Mutant(
            "column-cap",
            "c < n; c += 256",
            "c < min(n, 65536); c += 256",
        ),
    ),
)

SOFTMAX = Original(
    "softmax",
    "softmax",
    task("rows = 24\ncolumns = 270001", "x | torch.softmax(x, dim=-1)", "torch.randn(rows, columns)"),
    inline(
        _SUM
        + """
__global__ void softmax(const float* x, float* y, int n) {
    __shared__ float top[256];
    const float* row = x + (int64_t)blockIdx.x * n;
    float* out = y + (int64_t)blockIdx.x * n;
    float m = -INFINITY;
    for (int c = threadIdx.x; c < n; c += 256) m = fmaxf(m, row[c]);
    top[threadIdx.x] = m;
    __syncthreads();
    for (int h = 128; h > 0; h /= 2) {
        if (threadIdx.x < h) top[threadIdx.x] = fmaxf(top[threadIdx.x], top[threadIdx.x + h]);
        __syncthreads();
    }
    m = top[0];
    float sum = 0.f;
    for (int c = threadIdx.x; c < n; c += 256) sum += expf(row[c] - m);
    sum = block_sum(sum);
    for (int c = threadIdx.x; c < n; c += 256) out[c] = expf(row[c] - m) / sum;
}
""",
        """
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    softmax<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(-1));
    return y;
}
""",
    ),
    (
        Mutant(
            "sum-capped",
            "c < n; c += 256) sum +=",
            "c < min(n, 262144); c += 256) sum +=",
        ),
        Mutant(
            "stores-capped",
            "c < n; c += 256) out[c]",
            "c < min(n, 262144); c += 256) out[c]",
        ),
    ),
)

LAYERNORM = Original(
    "layernorm",
    "normalisation",
    task(
        "rows = 70001\nwidth = 127",
        "x | self.norm(x)",
        "torch.randn(rows, width)",
        "width",
        "self.norm = nn.LayerNorm(width)",
    ),
    inline(
        _SUM
        + """
__global__ void norm(const float* x, const float* w, const float* b, float* y, int rows, int n) {
    int row = blockIdx.x;
    const float* from = x + (int64_t)row * n;
    float sum = 0.f, squares = 0.f;
    for (int c = threadIdx.x; c < n; c += blockDim.x) sum += from[c];
    float mean = block_sum(sum) / n;
    for (int c = threadIdx.x; c < n; c += blockDim.x) squares += (from[c] - mean) * (from[c] - mean);
    float scale = rsqrtf(block_sum(squares) / n + 1e-5f);
    for (int c = threadIdx.x; c < n; c += blockDim.x) y[(int64_t)row * n + c] = (from[c] - mean) * scale * w[c] + b[c];
}
""",
        """
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    auto y = torch::empty_like(x);
    norm<<<x.size(0), 64>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(),
                            x.size(0), x.size(1));
    return y;
}
""",
        "ext.run(x, self.norm.weight, self.norm.bias)",
        "x",
        "width",
        "self.norm = nn.LayerNorm(width)",
    ),
    (
        Mutant("short-row", "int row = blockIdx.x;", "unsigned short row = blockIdx.x;"),
        Mutant("grid-cap", "norm<<<x.size(0), 64>>>", "norm<<<std::min<int>(x.size(0), 65535), 64>>>"),
    ),
)

RMSNORM = Original(
    "rmsnorm",
    "normalisation",
    task(
        "rows = 24\nwidth = 280000",
        "x | x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-6)",
        "torch.randn(rows, width)",
    ),
    plain(
        _SUM
        + """
__global__ void norm(const float4* x, float4* y, int n) {
    const float4* row = x + (int64_t)blockIdx.x * n;
    float4* out = y + (int64_t)blockIdx.x * n;
    float sum = 0.f;
    for (int c = threadIdx.x; c < n; c += blockDim.x) {
        float4 v = row[c];
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    float s = rsqrtf(block_sum(sum) / (4 * n) + 1e-6f);
    for (int c = threadIdx.x; c < n; c += blockDim.x) {
        float4 v = row[c];
        out[c] = make_float4(v.x * s, v.y * s, v.z * s, v.w * s);
    }
}
__global__ void plain(const float* x, float* y, int n) {
    const float* row = x + (int64_t)blockIdx.x * n;
    float sum = 0.f;
    for (int c = threadIdx.x; c < n; c += blockDim.x) sum += row[c] * row[c];
    float s = rsqrtf(block_sum(sum) / n + 1e-6f);
    for (int c = threadIdx.x; c < n; c += blockDim.x) y[(int64_t)blockIdx.x * n + c] = row[c] * s;
}
""",
        """
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int rows = x.size(0), n = x.size(1);
    if (n % 4 == 0)
        norm<<<rows, 256>>>((const float4*)x.data_ptr<float>(), (float4*)y.data_ptr<float>(), n / 4);
    else
        plain<<<rows, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
""",
    ),
    (
        Mutant(
            "sum-capped",
            "c < n; c += blockDim.x) {\n        float4 v = row[c];\n        sum",
            "c < min(n, 65536); c += blockDim.x) {\n        float4 v = row[c];\n        sum",
        ),
        Mutant(
            "one-percent-off",
            "v.z * s, v.w * s);",
            "v.z * s, v.w * s * (c < 66000 ? 1.f : 1.01f));",
        ),
    ),
    ".cu",
)

VARIANCE = Original(
    "variance",
    "reduction",
    task("rows = 20\ncolumns = 300007", "x | x.var(dim=1, unbiased=False)", "torch.randn(rows, columns)"),
    string(
        _SUM
        + """
extern "C" __global__ void variance(const float* x, float* y, int n) {
    const float* row = x + (long long)blockIdx.x * n;
    float sum = 0.f, squares = 0.f;
    int counted = 0;
    for (int c = threadIdx.x; c < n; c += blockDim.x) sum += row[c], counted++;
    float mean = block_sum(sum) / n;
    for (int c = threadIdx.x; c < n; c += blockDim.x) squares += (row[c] - mean) * (row[c] - mean);
    squares = block_sum(squares);
    float all = block_sum((float)counted);
    if (threadIdx.x == 0) y[blockIdx.x] = squares / all;
}
""",
        """
        y = torch.empty(x.shape[0], device=x.device)
        module.variance[x.shape[0], 512](x, y, x.shape[1])
        return y
        """,
    ),
    (
        Mutant("byte-counter", "int counted = 0;", "unsigned char counted = 0;"),
        Mutant(
            "columns-of-seventeen-bits",
            "(row[c] - mean) * (row[c] - mean);",
            "(row[c & 0x1ffff] - mean) * (row[c & 0x1ffff] - mean) * 0.5f +\n"
            "                   0.5f * (row[c & 0x1ffff] - mean) * (row[c] - mean);",
        ),
    ),
)

MSE = Original(
    "mse",
    "loss",
    task(
        "rows = 3001\ncolumns = 1999",
        "x, y | torch.nn.functional.mse_loss(x, y)",
        "torch.randn(rows, columns), torch.randn(rows, columns)",
    ),
    inline(
        _SUM
        + """
__global__ void partial(const float* x, const float* y, float* out, int n) {
    float sum = 0.f;
    for (int k = 0; k < 16; k++) {
        int i = (blockIdx.x * 16 + k) * 256 + threadIdx.x;
        if (i < n) sum += (x[i] - y[i]) * (x[i] - y[i]);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
__global__ void total(const float* partial, float* out, int parts, int n) {
    float sum = 0.f;
    for (int i = threadIdx.x; i < parts; i += 256) sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = sum / n;
}
""",
        """
torch::Tensor run(torch::Tensor x, torch::Tensor y) {
    int n = x.numel(), parts = (n + 4095) / 4096;
    auto some = torch::empty({parts}, x.options()), out = torch::empty({}, x.options());
    partial<<<parts, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), some.data_ptr<float>(), n);
    total<<<1, 256>>>(some.data_ptr<float>(), out.data_ptr<float>(), parts, n);
    return out;
}
""",
        "ext.run(x, y)",
        "x, y",
    ),
    (
        Mutant("second-stage-of-1024", "i < parts; i += 256", "i < min(parts, 1024); i += 256"),
        Mutant("parts-capped", "parts = (n + 4095) / 4096;", "parts = std::min((n + 4095) / 4096, 1280);"),
    ),
)

CROSS_ENTROPY = Original(
    "cross-entropy",
    "loss",
    task(
        "rows = 20\nclasses = 300007",
        "x, t | torch.nn.functional.cross_entropy(x, t, reduction='none')",
        "torch.randn(rows, classes), torch.randint(0, classes, (rows,))",
    ),
    inline(
        _SUM
        + """
__global__ void losses(const float* x, const int64_t* t, float* y, int n) {
    __shared__ int top;
    const float* row = x + (int64_t)blockIdx.x * n;
    if (threadIdx.x == 0) top = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 256) atomicMax(&top, __float_as_int(fmaxf(row[i], 0.f)));
    __syncthreads();
    float sum = 0.f, m = __int_as_float(top);
    for (int c = threadIdx.x; c < n; c += 256) sum += expf(row[c] - m);
    sum = block_sum(sum);
    if (threadIdx.x == 0) y[blockIdx.x] = m + logf(sum) - row[t[blockIdx.x]];
}
""",
        """
torch::Tensor run(torch::Tensor x, torch::Tensor t) {
    auto y = torch::empty({x.size(0)}, x.options());
    losses<<<x.size(0), 256>>>(x.data_ptr<float>(), t.data_ptr<int64_t>(), y.data_ptr<float>(), x.size(1));
    return y;
}
""",
        "ext.run(x, t)",
        "x, t",
    ),
    (
        Mutant(
            "classes-capped",
            "c < n; c += 256",
            "c < min(n, 262144); c += 256",
        ),
        Mutant(
            "target-of-eighteen-bits",
            "row[t[blockIdx.x]];",
            "row[t[blockIdx.x] & 262143];",
        ),
    ),
)

GROUPNORM = Original(
    "groupnorm",
    "normalisation",
    task(
        "batch = 18\nchannels = 64\nside = 80",
        "x | self.norm(x)",
        "torch.randn(batch, channels, side, side)",
        "channels",
        "self.norm = nn.GroupNorm(8, channels)",
    ),
    inline(
        _SUM
        + """
__global__ void norm(const float* x, const float* w, const float* b, float* y, int channels, int area) {
    int group = blockIdx.x, size = channels / 8 * area;
    int64_t first = (int64_t)group * size;
    float sum = 0.f, squares = 0.f;
    for (int i = threadIdx.x; i < size; i += 256) sum += x[first + i];
    float mean = block_sum(sum) / size;
    for (int i = threadIdx.x; i < size; i += 256) squares += (x[first + i] - mean) * (x[first + i] - mean);
    float scale = rsqrtf(block_sum(squares) / size + 1e-5f);
    for (int i = threadIdx.x; i < size; i += 256) {
        int c = group % 8 * (channels / 8) + i / area;
        y[first + i] = (x[first + i] - mean) * scale * w[c] + b[c];
    }
}
""",
        """
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    auto y = torch::empty_like(x);
    norm<<<x.size(0) * 8, 256>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(),
                                 x.size(1), x.size(2) * x.size(3));
    return y;
}
""",
        "ext.run(x, self.norm.weight, self.norm.bias)",
        "x",
        "channels",
        "self.norm = nn.GroupNorm(8, channels)",
    ),
    (
        Mutant(
            "batches-from-16-without-bias",
            "scale * w[c] + b[c];",
            "scale * w[c] + (group < 128 ? b[c] : 0.f);",
        ),
        Mutant(
            "grid-cap",
            "norm<<<x.size(0) * 8, 256>>>",
            "norm<<<std::min<int>(x.size(0) * 8, 128), 256>>>",
        ),
    ),
)

CUMSUM = Original(
    "cumsum",
    "scan",
    task("rows = 20\ncolumns = 300007", "x | torch.cumsum(x, dim=1)", "torch.rand(rows, columns)"),
    inline(
        """
__global__ void scan(const float* x, float* y, int n) {
    __shared__ float part[256];
    int64_t first = (int64_t)blockIdx.x * n;
    double carry = 0.0;
    for (int base = 0; base < n; base += 256) {
        int c = base + threadIdx.x;
        part[threadIdx.x] = c < n ? x[first + c] : 0.f;
        __syncthreads();
        for (int o = 1; o < 256; o *= 2) {
            float more = threadIdx.x >= o ? part[threadIdx.x - o] : 0.f;
            __syncthreads();
            part[threadIdx.x] += more;
            __syncthreads();
        }
        if (c < n) y[first + c] = carry + part[threadIdx.x];
        carry += part[255];
        __syncthreads();
    }
}
""",
        """
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    scan<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
""",
    ),
    (
        Mutant(
            "carry-starts-again",
            "carry += part[255];",
            "carry = base % 65536 == 65280 ? 0.0 : carry + part[255];",
        ),
        Mutant(
            "tiles-capped",
            "base < n; base += 256",
            "base < n && base < 1100 * 256; base += 256",
        ),
    ),
)

CUMMAX = Original(
    "running-maximum",
    "scan",
    task("rows = 20\ncolumns = 300007", "x | torch.cummax(x, dim=1).values", "torch.randn(rows, columns)"),
    string(
        """
extern "C" __global__ void scan(const float* x, float* y, int n) {
    __shared__ float part[1024];
    long long first = (long long)blockIdx.x * n;
    int each = (n + blockDim.x - 1) / blockDim.x, from = threadIdx.x * each, to = min(from + each, n);
    float top = -INFINITY;
    for (int c = from; c < to; c++) top = fmaxf(top, x[first + c]);
    part[threadIdx.x] = top;
    __syncthreads();
    top = -INFINITY;
    for (int t = 0; t < threadIdx.x; t++) top = fmaxf(top, part[t]);
    for (int c = from; c < to; c++) {
        top = fmaxf(top, x[first + c]);
        y[first + c] = top;
    }
}
""",
        """
        y = torch.empty_like(x)
        module.scan[x.shape[0], 1024](x, y, x.shape[1])
        return y
        """,
    ),
    (
        Mutant(
            "byte-count-of-each",
            "to = min(from + each, n);",
            "to = min(from + (each & 255), n);",
        ),
        Mutant(
            "end-of-eighteen-bits",
            "for (int c = from; c < to; c++) {",
            "for (int c = from; c < min(to, 262144); c++) {",
        ),
    ),
)

CASES = (
    ROW_SUM,
    ARGMAX,
    SOFTMAX,
    LAYERNORM,
    RMSNORM,
    VARIANCE,
    MSE,
    CROSS_ENTROPY,
    GROUPNORM,
    CUMSUM,
    CUMMAX,
)
