"""Kernels that work on rows: sums, softmax, layer norm, argmax, scans."""

from __future__ import annotations

from sets.planted.case import BOUNDS, RACE, UNINITIALISED, Mutant, Original, reference

SUM = Original(
    "row-sum",
    reference("x | x.sum(dim=1)", "batch_size = 6\ndim = 700", "torch.randn(batch_size, dim)"),
    """
#define THREADS 128
extern "C" __global__ void row_sum(const float* x, float* y, int n) {
    __shared__ float part[THREADS];
    int t = threadIdx.x;
    const float* row = x + (long long)blockIdx.x * n;
    float sum = 0.f;
    for (int i = t; i < n; i += THREADS)
        sum += row[i];
    part[t] = sum;
    __syncthreads();
    for (int h = THREADS / 2; h >= 32; h /= 2) {
        if (t < h) part[t] += part[t + h];
        __syncthreads();
    }
    if (t < 32) {
        float v = part[t];
        for (int o = 16; o > 0; o /= 2)
            v += __shfl_down_sync(0xffffffffu, v, o);
        if (t == 0) y[blockIdx.x] = v;
    }
}
""",
    """
y = torch.empty(x.shape[0], device=x.device)
module.row_sum[(x.shape[0],), (128,)](x, y, x.shape[1])
return y
""",
    "x",
    (
        Mutant(
            "no-barrier-in-tree",
            "dropped barrier",
            "        if (t < h) part[t] += part[t + h];\n        __syncthreads();\n",
            "        if (t < h) part[t] += part[t + h];\n",
            RACE,
            ("part[t] += part[t + h]", "float v = part[t]"),
        ),
        Mutant(
            "no-barrier-after-store",
            "dropped barrier",
            "    part[t] = sum;\n    __syncthreads();\n",
            "    part[t] = sum;\n",
            RACE,
            ("part[t] = sum", "part[t] += part[t + h]"),
            hidden=True,
        ),
        Mutant(
            "reads-one-past-the-row",
            "off by one",
            "for (int i = t; i < n; i += THREADS)",
            "for (int i = t; i <= n; i += THREADS)",
            BOUNDS,
            ("sum += row[i]",),
        ),
        Mutant(
            "tree-starts-too-wide",
            "overflow of an array",
            "for (int h = THREADS / 2; h >= 32; h /= 2)",
            "for (int h = THREADS; h >= 32; h /= 2)",
            BOUNDS,
            ("part[t] += part[t + h]",),
        ),
        Mutant(
            "half-mask",
            "wrong mask",
            "v += __shfl_down_sync(0xffffffffu, v, o);",
            "v += __shfl_down_sync(0x0000ffffu, v, o);",
            ("sync-mask",),
            ("__shfl_down_sync",),
            hidden=True,
        ),
    ),
)

SOFTMAX = Original(
    "softmax",
    reference("x | torch.softmax(x, dim=1)", "batch_size = 5\ndim = 330", "torch.randn(batch_size, dim)"),
    """
#define THREADS 64
__device__ float all_max(float v, float* box) {
    int t = threadIdx.x;
    box[t] = v;
    __syncthreads();
    for (int h = THREADS / 2; h > 0; h /= 2) {
        if (t < h) box[t] = fmaxf(box[t], box[t + h]);
        __syncthreads();
    }
    float r = box[0];
    __syncthreads();
    return r;
}
__device__ float all_sum(float v, float* box) {
    int t = threadIdx.x;
    box[t] = v;
    __syncthreads();
    for (int h = THREADS / 2; h > 0; h /= 2) {
        if (t < h) box[t] += box[t + h];
        __syncthreads();
    }
    return box[0];
}
extern "C" __global__ void softmax(const float* x, float* y, int n) {
    __shared__ float box[THREADS];
    const float* in = x + (long long)blockIdx.x * n;
    float* out = y + (long long)blockIdx.x * n;
    float most = -INFINITY;
    for (int i = threadIdx.x; i < n; i += THREADS) most = fmaxf(most, in[i]);
    most = all_max(most, box);
    float sum = 0.f;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += expf(in[i] - most);
    sum = all_sum(sum, box);
    for (int i = threadIdx.x; i < n; i += THREADS) out[i] = expf(in[i] - most) / sum;
}
""",
    """
y = torch.empty_like(x)
module.softmax[(x.shape[0],), (64,)](x, y, x.shape[1])
return y
""",
    "x",
    (
        Mutant(
            "box-reused-too-early",
            "dropped barrier",
            "    float r = box[0];\n    __syncthreads();\n    return r;\n",
            "    float r = box[0];\n    return r;\n",
            RACE,
            ("float r = box[0]", "box[t] = v"),
            hidden=True,
        ),
        Mutant(
            "sum-read-too-early",
            "dropped barrier",
            "        if (t < h) box[t] += box[t + h];\n        __syncthreads();\n",
            "        if (t < h) box[t] += box[t + h];\n",
            RACE,
            ("box[t] += box[t + h]", "return box[0]"),
        ),
        Mutant(
            "row-stride-off-by-one",
            "wrong stride",
            "float* out = y + (long long)blockIdx.x * n;",
            "float* out = y + (long long)blockIdx.x * (n + 1);",
            BOUNDS,
            ("out[i] = expf",),
        ),
        Mutant(
            "maximum-from-zero",
            "uninitialised",
            "    float most = -INFINITY;\n",
            "    float most;\n",
        ),
        Mutant(
            "barrier-in-branch",
            "divergent barrier",
            "        if (t < h) box[t] += box[t + h];\n        __syncthreads();\n    }\n    return box[0];",
            "        if (t < h) {\n            box[t] += box[t + h];\n            __syncthreads();\n"
            "        }\n    }\n    return box[0];",
            ("divergent-barrier", *RACE),
            ("__syncthreads();", "box[t] += box[t + h]", "return box[0]"),
        ),
    ),
)

LAYERNORM = Original(
    "layernorm",
    reference(
        "x | torch.nn.functional.layer_norm(x, (dim,))",
        "batch_size = 5\ndim = 300",
        "torch.randn(batch_size, dim)",
    ),
    """
#define WARPS 4
__device__ float warp_sum(float v) {
    for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
extern "C" __global__ void layernorm(const float* x, float* y, int n) {
    __shared__ float sums[WARPS], squares[WARPS];
    __shared__ float mean, scale;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float* in = x + (long long)blockIdx.x * n;
    float s = 0.f, q = 0.f;
    for (int i = threadIdx.x; i < n; i += 32 * WARPS) {
        float v = in[i];
        s += v;
        q += v * v;
    }
    s = warp_sum(s);
    q = warp_sum(q);
    if (lane == 0) {
        sums[warp] = s;
        squares[warp] = q;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        float a = 0.f, b = 0.f;
        for (int w = 0; w < WARPS; ++w) {
            a += sums[w];
            b += squares[w];
        }
        mean = a / n;
        scale = rsqrtf(b / n - (a / n) * (a / n) + 1e-5f);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 32 * WARPS)
        y[(long long)blockIdx.x * n + i] = (in[i] - mean) * scale;
}
""",
    """
y = torch.empty_like(x)
module.layernorm[(x.shape[0],), (128,)](x, y, x.shape[1])
return y
""",
    "x",
    (
        Mutant(
            "mean-read-too-early",
            "dropped barrier",
            "+ 1e-5f);\n    }\n    __syncthreads();\n",
            "+ 1e-5f);\n    }\n",
            RACE,
            ("mean = a / n", "scale = rsqrtf", "(in[i] - mean) * scale"),
        ),
        Mutant(
            "partial-sums-too-early",
            "dropped barrier",
            "        squares[warp] = q;\n    }\n    __syncthreads();\n",
            "        squares[warp] = q;\n    }\n",
            RACE,
            ("a += sums[w]", "b += squares[w]", "sums[warp] = s", "squares[warp] = q"),
        ),
        Mutant(
            "one-warp-too-many",
            "overflow of an array",
            "for (int w = 0; w < WARPS; ++w)",
            "for (int w = 0; w <= WARPS; ++w)",
            BOUNDS,
            ("a += sums[w]", "b += squares[w]"),
        ),
        Mutant(
            "last-warp-writes-no-sum",
            "uninitialised",
            "    if (lane == 0) {\n        sums[warp] = s;",
            "    if (lane == 0 && warp < WARPS - 1) {\n        sums[warp] = s;",
            UNINITIALISED,
            ("a += sums[w]", "b += squares[w]"),
        ),
        Mutant(
            "half-warp-sum",
            "wrong value",
            "for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync",
            "for (int o = 8; o > 0; o /= 2) v += __shfl_xor_sync",
        ),
    ),
)

ARGMAX = Original(
    "argmax",
    reference("x | torch.argmax(x, dim=1)", "batch_size = 7\ndim = 500", "torch.randn(batch_size, dim)"),
    """
#define THREADS 96
extern "C" __global__ void argmax(const float* x, long long* y, int n) {
    __shared__ float value[THREADS];
    __shared__ int place[THREADS];
    int t = threadIdx.x;
    const float* row = x + (long long)blockIdx.x * n;
    float best = -INFINITY;
    int at = 0;
    for (int i = t; i < n; i += THREADS)
        if (row[i] > best) {
            best = row[i];
            at = i;
        }
    value[t] = best;
    place[t] = at;
    __syncthreads();
    for (int h = 64; h > 0; h /= 2) {
        if (t < h && t + h < THREADS) {
            float v = value[t + h];
            int p = place[t + h];
            if (v > value[t] || (v == value[t] && p < place[t])) {
                value[t] = v;
                place[t] = p;
            }
        }
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = place[0];
}
""",
    """
y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
module.argmax[(x.shape[0],), (96,)](x, y, x.shape[1])
return y
""",
    "x",
    (
        Mutant(
            "no-tail-guard-in-tree",
            "missing guard",
            "if (t < h && t + h < THREADS) {",
            "if (t < h) {",
            BOUNDS,
            ("value[t + h]", "place[t + h]"),
            hidden=True,
        ),
        Mutant(
            "no-barrier-in-tree",
            "dropped barrier",
            "            }\n        }\n        __syncthreads();\n    }\n    if (t == 0)",
            "            }\n        }\n    }\n    if (t == 0)",
            RACE,
            ("value[t + h]", "place[t + h]", "value[t]", "place[t]", "place[0]"),
        ),
        Mutant(
            "place-not-stored-by-tail",
            "uninitialised",
            "    place[t] = at;\n",
            "    if (t < 64) place[t] = at;\n",
            UNINITIALISED,
            ("int p = place[t + h]",),
        ),
        Mutant(
            "tree-starts-at-half",
            "wrong value",
            "for (int h = 64; h > 0; h /= 2)",
            "for (int h = THREADS / 2; h > 0; h /= 2)",
        ),
        Mutant(
            "every-thread-stores-the-result",
            "race",
            "    if (t == 0) y[blockIdx.x] = place[0];",
            "    y[blockIdx.x] = place[t];",
            RACE,
            ("y[blockIdx.x] = place[t]",),
        ),
    ),
)

SCAN = Original(
    "scan",
    reference("x | torch.cumsum(x, dim=1)", "batch_size = 4\ndim = 200", "torch.randn(batch_size, dim)"),
    """
#define THREADS 256
extern "C" __global__ void scan(const float* x, float* y, int n) {
    __shared__ float from[THREADS];
    __shared__ float into[THREADS];
    int t = threadIdx.x;
    float carry = 0.f;
    for (int begin = 0; begin < n; begin += THREADS) {
        from[t] = begin + t < n ? x[(long long)blockIdx.x * n + begin + t] : 0.f;
        __syncthreads();
        float *a = from, *b = into;
        for (int d = 1; d < THREADS; d *= 2) {
            b[t] = t >= d ? a[t] + a[t - d] : a[t];
            __syncthreads();
            float* c = a;
            a = b;
            b = c;
        }
        if (begin + t < n) y[(long long)blockIdx.x * n + begin + t] = carry + a[t];
        carry += a[THREADS - 1];
        __syncthreads();
    }
}
""",
    """
y = torch.empty_like(x)
module.scan[(x.shape[0],), (256,)](x, y, x.shape[1])
return y
""",
    "x",
    (
        Mutant(
            "in-place",
            "race",
            "float *a = from, *b = into;",
            "float *a = from, *b = from;",
            RACE,
            ("b[t] = t >= d", "from[t] = begin"),
        ),
        Mutant(
            "no-barrier-in-loop",
            "dropped barrier",
            "a[t] + a[t - d] : a[t];\n            __syncthreads();\n",
            "a[t] + a[t - d] : a[t];\n",
            RACE,
            ("b[t] = t >= d", "carry + a[t]", "carry += a[THREADS - 1]", "from[t] = begin"),
        ),
        Mutant(
            "no-guard-for-the-first",
            "missing guard",
            "b[t] = t >= d ? a[t] + a[t - d] : a[t];",
            "b[t] = a[t] + a[t - d];",
            BOUNDS,
            ("b[t] = a[t]",),
        ),
        Mutant(
            "store-without-tail-guard",
            "missing guard",
            "        if (begin + t < n) y[",
            "        y[",
            (*BOUNDS, *RACE),
            ("] = carry + a[t];",),
        ),
        Mutant(
            "load-without-tail-guard",
            "missing guard",
            "from[t] = begin + t < n ? x[(long long)blockIdx.x * n + begin + t] : 0.f;",
            "from[t] = x[(long long)blockIdx.x * n + begin + t];",
            BOUNDS,
            ("from[t] = x[",),
            hidden=True,
        ),
    ),
)
CASES = (SUM, SOFTMAX, LAYERNORM, ARGMAX, SCAN)
