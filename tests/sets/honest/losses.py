"""Losses: elementwise terms with a reduction, rows that need a normaliser, pairs and triples of inputs, labels."""

from __future__ import annotations

from .case import Case, bound, file, inline, model, plain, task


def _pair(expression: str, made: str = "torch.randn(rows, cols), torch.randn(rows, cols)", rows: int = 2051) -> str:
    return task(f"rows = {rows}\ncols = 2053", made, "x, y", f"return {expression}")


MEAN_SQUARE = inline(
    "torch::Tensor mse(torch::Tensor x, torch::Tensor y);",
    r"""
__global__ void mse_kernel(const float* x, const float* y, double* sum, int64_t n) {
    __shared__ double part[256];
    double own = 0;
    for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
        const float d = x[i] - y[i];
        own += d * d;
    }
    part[threadIdx.x] = own;
    __syncthreads();
    for (int h = 128; h; h >>= 1) {
        if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(sum, part[0] / n);
}
torch::Tensor mse(torch::Tensor x, torch::Tensor y) {
    TORCH_CHECK(x.sizes() == y.sizes(), "shapes differ");
    auto sum = torch::zeros({}, x.options().dtype(torch::kFloat64));
    mse_kernel<<<264, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), sum.data_ptr<double>(), x.numel());
    return sum.to(torch::kFloat32);
}
""",
    model("x, y", "return extension.mse(x, y)"),
)

HUBER = bound(
    "huber",
    r"""
// Partial sums of every block, added up by a single block; no atomics, so every run gives the same bits.
template <int BLOCK> __device__ float summed(float v) {
    __shared__ float part[BLOCK];
    part[threadIdx.x] = v;
    __syncthreads();
    #pragma unroll
    for (int h = BLOCK / 2; h >= 32; h /= 2) {
        if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];
        __syncthreads();
    }
    v = threadIdx.x < 32 ? part[threadIdx.x] : 0.f;
    if (threadIdx.x < 32) for (int o = 16; o; o /= 2) v += __shfl_down_sync(~0u, v, o);
    return v;
}
__global__ void terms(const float* x, const float* y, float* part, int n, float delta) {
    float own = 0.f;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) {
        const float d = fabsf(x[i] - y[i]);
        own += d < delta ? 0.5f * d * d : delta * (d - 0.5f * delta);
    }
    own = summed<128>(own);
    if (threadIdx.x == 0) part[blockIdx.x] = own;
}
__global__ void finish(const float* part, float* out, int parts, int n) {
    float own = 0.f;
    for (int i = threadIdx.x; i < parts; i += 512) own += part[i];
    own = summed<512>(own);
    if (threadIdx.x == 0) out[0] = own / n;
}
torch::Tensor huber(torch::Tensor x, torch::Tensor y, float delta) {
    const int n = x.numel(), parts = 1024;
    auto part = torch::empty({parts}, x.options()), out = torch::empty({}, x.options());
    terms<<<parts, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), part.data_ptr<float>(), n, delta);
    finish<<<1, 512>>>(part.data_ptr<float>(), out.data_ptr<float>(), parts, n);
    return out;
}
""",
    model(
        "x, y",
        "return extension.huber(x, y, self.delta)",
        init="delta",
        setup="self.delta = delta",
    ),
)

CROSS_ENTROPY = inline(
    "torch::Tensor cross_entropy(torch::Tensor x, torch::Tensor labels);",
    r"""
__global__ void row_loss(const float* x, const int64_t* labels, float* loss, int cols) {
    __shared__ float shared[8];
    const float* row = x + (size_t)blockIdx.x * cols;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float m = -INFINITY, s = 0.f;
    for (int j = threadIdx.x; j < cols; j += 256) m = fmaxf(m, row[j]);
    for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
    if (lane == 0) shared[warp] = m;
    __syncthreads();
    m = shared[lane % 8];
    for (int o = 4; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
    for (int j = threadIdx.x; j < cols; j += 256) s += expf(row[j] - m);
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    __syncthreads();
    if (lane == 0) shared[warp] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        s = 0.f;
        for (int w = 0; w < 8; ++w) s += shared[w];
        loss[blockIdx.x] = m + logf(s) - row[labels[blockIdx.x]];
    }
}
__global__ void mean(const float* loss, float* out, int rows) {
    __shared__ float part[1024];
    float s = 0.f;
    for (int i = threadIdx.x; i < rows; i += 1024) s += loss[i];
    part[threadIdx.x] = s;
    for (int h = 512; h; h >>= 1) {
        __syncthreads();
        if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];
    }
    if (threadIdx.x == 0) *out = part[0] / rows;
}
torch::Tensor cross_entropy(torch::Tensor x, torch::Tensor labels) {
    const int rows = x.size(0);
    auto loss = torch::empty({rows}, x.options()), out = torch::empty({}, x.options());
    row_loss<<<rows, 256>>>(x.data_ptr<float>(), labels.data_ptr<int64_t>(), loss.data_ptr<float>(), x.size(1));
    mean<<<1, 1024>>>(loss.data_ptr<float>(), out.data_ptr<float>(), rows);
    return out;
}
""",
    model("x, labels", "return extension.cross_entropy(x, labels)"),
)

KL = plain(
    r"""
extern "C" __global__ void kl_rows(const float* logp, const float* q, float* out, int cols) {
    __shared__ float warps[4];
    float s = 0.f;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) {
        const size_t i = (size_t)blockIdx.x * cols + j;
        if (q[i] > 0.f) s += q[i] * (logf(q[i]) - logp[i]);
    }
    for (int o = 16; o; o >>= 1) s += __shfl_down_sync(~0u, s, o);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = warps[0] + warps[1] + warps[2] + warps[3];
}
""",
    model(
        "x, y",
        "out = torch.empty(x.shape[0], device=x.device)\nmodule.kl_rows[x.shape[0], 128](x, y, out, x.shape[1])\nreturn out",
    ),
)

BCE = file(
    r"""
__global__ void bce(const float* x, const float* t, float* loss, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        loss[i] = fmaxf(x[i], 0.f) - x[i] * t[i] + log1pf(expf(-fabsf(x[i])));
}
torch::Tensor forward(torch::Tensor x, torch::Tensor t) {
    auto loss = torch::empty_like(x);
    bce<<<std::min<int64_t>((x.numel() + 255) / 256, 1056), 256>>>(x.data_ptr<float>(), t.data_ptr<float>(), loss.data_ptr<float>(), x.numel());
    return loss;
}
"""
)

COSINE = inline(
    "torch::Tensor cosine(torch::Tensor x, torch::Tensor y);",
    r"""
// Three sums at once, as one float3 that a warp shuffles by parts.
__global__ void cosine_kernel(const float* x, const float* y, float* out, int rows, int cols) {
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float3 s = make_float3(0.f, 0.f, 0.f);
    for (int j = lane; j < cols; j += 32) {
        const float a = x[(size_t)row * cols + j], b = y[(size_t)row * cols + j];
        s.x = fmaf(a, b, s.x);
        s.y = fmaf(a, a, s.y);
        s.z = fmaf(b, b, s.z);
    }
    for (int o = 16; o; o >>= 1) {
        s.x += __shfl_xor_sync(~0u, s.x, o);
        s.y += __shfl_xor_sync(~0u, s.y, o);
        s.z += __shfl_xor_sync(~0u, s.z, o);
    }
    if (lane == 0) out[row] = s.x / (fmaxf(sqrtf(s.y), 1e-8f) * fmaxf(sqrtf(s.z), 1e-8f));
}
torch::Tensor cosine(torch::Tensor x, torch::Tensor y) {
    const int rows = x.size(0);
    auto out = torch::empty({rows}, x.options());
    cosine_kernel<<<(rows + 7) / 8, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), rows, x.size(1));
    return out;
}
""",
    model("x, y", "return extension.cosine(x, y)"),
)

TRIPLET = bound(
    "triplet",
    r"""
__global__ void triplet_kernel(const double* a, const double* p, const double* n, double* out, int cols, double margin) {
    __shared__ double dp[128], dn[128];
    double sp = 0, sn = 0;
    for (int j = threadIdx.x; j < cols; j += 128) {
        const size_t i = (size_t)blockIdx.x * cols + j;
        const double u = a[i] - p[i] + 1e-6, v = a[i] - n[i] + 1e-6;
        sp += u * u;
        sn += v * v;
    }
    dp[threadIdx.x] = sp;
    dn[threadIdx.x] = sn;
    for (int h = 64; h; h /= 2) {
        __syncthreads();
        if (threadIdx.x < h) { dp[threadIdx.x] += dp[threadIdx.x + h]; dn[threadIdx.x] += dn[threadIdx.x + h]; }
    }
    if (threadIdx.x == 0) out[blockIdx.x] = fmax(sqrt(dp[0]) - sqrt(dn[0]) + margin, 0.0);
}
torch::Tensor triplet(torch::Tensor a, torch::Tensor p, torch::Tensor n, double margin) {
    auto out = torch::empty({a.size(0)}, a.options());
    triplet_kernel<<<a.size(0), 128>>>(a.data_ptr<double>(), p.data_ptr<double>(), n.data_ptr<double>(),
                                       out.data_ptr<double>(), a.size(1), margin);
    return out;
}
""",
    model("a, p, n", "return extension.triplet(a, p, n, 1.0)"),
)

FOCAL = plain(
    r"""
__device__ float term(float x, bool positive) {
    const float p = 1.f / (1.f + expf(-x)), q = positive ? p : 1.f - p;
    const float logq = positive ? fminf(x, 0.f) - log1pf(expf(-fabsf(x))) : fminf(-x, 0.f) - log1pf(expf(-fabsf(x)));
    return -(1.f - q) * (1.f - q) * logq;
}
extern "C" __global__ void focal(const float* x, const bool* target, float* loss, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) loss[i] = term(x[i], target[i]);
}
""",
    model(
        "x, y",
        "loss = torch.empty_like(x)\nmodule.focal[(x.numel() + 255) // 256, 256](x, y, loss, x.numel())\nreturn loss",
    ),
)

NLL_IGNORE = inline(
    "torch::Tensor nll(torch::Tensor logp, torch::Tensor labels, int64_t ignored);",
    r"""
// Sum and count in one 64-bit word would lose bits: two words, and the last block divides.
__global__ void nll_kernel(const float* logp, const int64_t* labels, float* totals, int* counts, float* out, int rows,
                           int cols, int64_t ignored) {
    __shared__ bool last;
    float s = 0.f;
    int c = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += gridDim.x * blockDim.x)
        if (labels[i] != ignored) { s -= logp[(size_t)i * cols + labels[i]]; ++c; }
    for (int o = 16; o; o >>= 1) { s += __shfl_down_sync(~0u, s, o); c += __shfl_down_sync(~0u, c, o); }
    if (threadIdx.x % 32 == 0) { atomicAdd(totals, s); atomicAdd(counts, c); }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(counts + 1, 1) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x == 0) *out = atomicAdd(totals, 0.f) / atomicAdd(counts, 0);
}
torch::Tensor nll(torch::Tensor logp, torch::Tensor labels, int64_t ignored) {
    auto totals = torch::zeros({1}, logp.options()), out = torch::empty({}, logp.options());
    auto counts = torch::zeros({2}, logp.options().dtype(torch::kInt));
    nll_kernel<<<32, 256>>>(logp.data_ptr<float>(), labels.data_ptr<int64_t>(), totals.data_ptr<float>(),
                            counts.data_ptr<int>(), out.data_ptr<float>(), logp.size(0), logp.size(1), ignored);
    return out;
}
""",
    model("logp, labels", "return extension.nll(logp, labels, -100)"),
)

CASES = (
    Case("mse-atomic-double", _pair("F.mse_loss(x, y)"), MEAN_SQUARE),
    Case(
        "huber-two-pass",
        task(
            "rows = 2011\ncols = 2111",
            "torch.randn(rows, cols), torch.randn(rows, cols)",
            "x, y",
            "return F.huber_loss(x, y, delta=self.delta)",
            init="delta",
            setup="self.delta = delta",
            init_inputs="0.8",
        ),
        HUBER,
    ),
    Case(
        "cross-entropy-two-kernels",
        task(
            "rows = 1499\nclasses = 3001",
            "torch.randn(rows, classes), torch.randint(0, classes, (rows,))",
            "x, labels",
            "return F.cross_entropy(x, labels)",
        ),
        CROSS_ENTROPY,
    ),
    Case(
        "kl-rows",
        _pair(
            'F.kl_div(x, y, reduction="none").sum(1)',
            "torch.log_softmax(torch.randn(rows, cols), 1), torch.softmax(torch.randn(rows, cols), 1)",
        ),
        KL,
    ),
    Case(
        "bce-logits-file",
        _pair(
            'F.binary_cross_entropy_with_logits(x, y, reduction="none")',
            "torch.randn(rows, cols), torch.rand(rows, cols)",
        ),
        BCE,
        suffix=".cu",
    ),
    Case("cosine-similarity-warps", _pair("F.cosine_similarity(x, y, dim=1)"), COSINE),
    Case(
        "triplet-margin-double",
        task(
            "rows = 1201\ncols = 1303",
            ", ".join(["torch.randn(rows, cols, dtype=torch.float64)"] * 3),
            "a, p, n",
            'return F.triplet_margin_loss(a, p, n, reduction="none")',
        ),
        TRIPLET,
    ),
    Case(
        "focal-elementwise",
        task(
            "rows = 2051\ncols = 2053",
            "torch.randn(rows, cols), torch.rand(rows, cols) > 0.8",
            "x, y",
            "loss = F.binary_cross_entropy_with_logits(x, y.to(x.dtype), reduction='none')\n"
            "p = torch.sigmoid(x)\nq = torch.where(y, p, 1 - p)\nreturn (1 - q) ** 2 * loss",
        ),
        FOCAL,
    ),
    Case(
        "nll-ignored-labels",
        task(
            "rows = 90_001\nclasses = 53",
            "torch.log_softmax(torch.randn(rows, classes), 1), "
            "torch.where(torch.rand(rows) > 0.3, torch.randint(0, classes, (rows,)), -100)",
            "logp, labels",
            "return F.nll_loss(logp, labels, ignore_index=-100)",
        ),
        NLL_IGNORE,
    ),
)
