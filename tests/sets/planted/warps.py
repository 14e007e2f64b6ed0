"""Kernels whose warps cooperate, and kernels with atomics."""

from __future__ import annotations

from sets.planted.case import BOUNDS, RACE, UNINITIALISED, Mutant, Original, reference

HISTOGRAM = Original(
    "histogram",
    reference(
        "x | torch.bincount((x.flatten() * 31.99).long().clamp(0, 31), minlength=32).to(torch.int32)",
        "size = 5000",
        "torch.rand(size)",
    ),
    """
#define BINS 32
extern "C" __global__ void clear(int* y) { y[threadIdx.x] = 0; }
extern "C" __global__ void histogram(const float* x, int* y, int n) {
    __shared__ int bins[BINS];
    int t = threadIdx.x;
    if (t < BINS) bins[t] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) {
        int at = (int)((long long)i * 1000003 % n);  // scattered, so that neighbours' equal values do not meet
        long long v = (long long)(x[at] * 31.99f);
        int b = (int)(v < 0 ? 0 : v > BINS - 1 ? BINS - 1 : v);
        atomicAdd(&bins[b], 1);
    }
    __syncthreads();
    if (t < BINS) atomicAdd(&y[t], bins[t]);
}
""",
    """
y = torch.empty(32, dtype=torch.int32, device=x.device)
module.clear[(1,), (32,)](y)
module.histogram[(4,), (128,)](x, y, x.numel())
return y
""",
    "x",
    (
        Mutant(
            "plain-add-in-shared",
            "non-atomic update",
            "        atomicAdd(&bins[b], 1);\n",
            "        bins[b] += 1;\n",
            RACE,
            ("bins[b] += 1",),
        ),
        Mutant(
            "plain-add-in-global",
            "non-atomic update",
            "if (t < BINS) atomicAdd(&y[t], bins[t]);",
            "if (t < BINS) y[t] += bins[t];",
            RACE,
            ("y[t] += bins[t]",),
        ),
        Mutant(
            "bins-not-cleared",
            "uninitialised",
            "    if (t < BINS) bins[t] = 0;\n",
            "",
            UNINITIALISED,
            ("atomicAdd(&bins[b], 1)",),
        ),
        Mutant(
            "counts-before-the-clear",
            "dropped barrier",
            "    if (t < BINS) bins[t] = 0;\n    __syncthreads();\n",
            "    if (t < BINS) bins[t] = 0;\n",
            RACE,
            ("bins[t] = 0", "atomicAdd(&bins[b], 1)"),
            hidden=True,
        ),
        Mutant(
            "output-not-cleared",
            "uninitialised",
            "        module.clear[(1,), (32,)](y)\n",
            "",
            UNINITIALISED,
            ("atomicAdd(&y[t], bins[t])",),
        ),
        Mutant(
            "index-in-32-bits",
            "integer overflow",
            "int at = (int)((long long)i * 1000003 % n);",
            "int at = i * 1000003 % n;",
            ("index-overflow",),
            ("int at = i",),
        ),
    ),
)

NORM = Original(
    "warp-norm",
    reference("x | x / x.norm(dim=1, keepdim=True)", "batch_size = 11\ndim = 150", "torch.randn(batch_size, dim)"),
    """
extern "C" __global__ void normalise(const float* x, float* y, int rows, int n) {
    int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const float* in = x + row * n;
    float sum = 0.f;
    for (int i = lane; i < n; i += 32)
        sum += in[i] * in[i];
    for (int o = 16; o > 0; o /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, o);
    sum = __shfl_sync(0xffffffffu, sum, 0);
    float scale = rsqrtf(sum);
    for (int i = lane; i < n; i += 32)
        y[row * n + i] = in[i] * scale;
}
""",
    """
y = torch.empty_like(x)
module.normalise[((x.shape[0] + 3) // 4,), (128,)](x, y, x.shape[0], x.shape[1])
return y
""",
    "x",
    (
        Mutant(
            "no-guard-for-rows",
            "missing guard",
            "    if (row >= rows) return;\n",
            "",
            BOUNDS,
            ("sum += in[i] * in[i]",),
        ),
        Mutant(
            "sum-not-broadcast",
            "wrong value",
            "    sum = __shfl_sync(0xffffffffu, sum, 0);\n",
            "",
        ),
        Mutant(
            "shuffle-in-half-a-warp",
            "wrong mask",
            "        sum += __shfl_down_sync(0xffffffffu, sum, o);\n",
            "        if (lane < 16)\n            sum += __shfl_down_sync(0x0000ffffu, sum, o);\n",
            ("shuffle-from-inactive",),
            ("__shfl_down_sync",),
        ),
        Mutant(
            "full-mask-in-a-branch",
            "wrong mask",
            "        sum += __shfl_down_sync(0xffffffffu, sum, o);\n",
            "        if (lane < o)\n            sum += __shfl_down_sync(0xffffffffu, sum, o);\n",
            ("barrier-deadlock", "shuffle-from-inactive"),
            ("__shfl_down_sync", "__shfl_sync"),
        ),
    ),
)

ATTENTION = Original(
    "attention-row",
    reference(
        "q, k, v | torch.softmax(q @ k.t() / 8.0, dim=1) @ v",
        "queries = 10\nkeys = 45\nwidth = 64",
        "torch.randn(queries, width), torch.randn(keys, width), torch.randn(keys, width)",
    ),
    """
#define MOST 64
#define WARPS 2
extern "C" __global__ void attention(const float* q, const float* k, const float* v, float* y, int queries, int keys,
                                     int wk, int wv) {
    extern __shared__ float scores[];
    __shared__ float query[WARPS][MOST];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.x * WARPS + warp;
    if (row >= queries) return;
    float* mine = scores + warp * keys;
    for (int d = lane; d < wk; d += 32)
        query[warp][d] = q[row * wk + d];
    __syncwarp();
    float most = -INFINITY;
    for (int j = lane; j < keys; j += 32) {
        float s = 0.f;
        for (int d = 0; d < wk; ++d)
            s += query[warp][d] * k[j * wk + d];
        mine[j] = s / 8.f;
        most = fmaxf(most, s / 8.f);
    }
    for (int o = 16; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, o));
    float sum = 0.f;
    for (int j = lane; j < keys; j += 32) {
        float e = expf(mine[j] - most);
        mine[j] = e;
        sum += e;
    }
    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    __syncwarp();
    for (int d = lane; d < wv; d += 32) {
        float a = 0.f;
        for (int j = 0; j < keys; ++j)
            a += mine[j] * v[j * wv + d];
        y[row * wv + d] = a / sum;
    }
}
""",
    """
y = torch.empty(q.shape[0], v.shape[1], device=q.device)
blocks, shared = (q.shape[0] + 1) // 2, 2 * k.shape[0] * 4
module.attention[(blocks,), (64,), shared](q, k, v, y, q.shape[0], k.shape[0], k.shape[1], v.shape[1])
return y
""",
    "q, k, v",
    (
        Mutant(
            "query-without-syncwarp",
            "dropped warp sync",
            "q[row * wk + d];\n    __syncwarp();\n    float most",
            "q[row * wk + d];\n    float most",
            RACE,
            ("query[warp][d] =", "s += query"),
            hidden=True,
        ),
        Mutant(
            "scores-overlap",
            "race",
            "float* mine = scores + warp * keys;",
            "float* mine = scores + warp * (keys - 1);",
            (*RACE, *UNINITIALISED),
            ("mine[j]",),
        ),
        Mutant(
            "too-little-shared-memory",
            "overflow of an array",
            "shared = (q.shape[0] + 1) // 2, 2 * k.shape[0] * 4",
            "shared = (q.shape[0] + 1) // 2, 2 * k.shape[0] * 4 - 16",
            BOUNDS,
            ("mine[j] =",),
        ),
        Mutant(
            "tail-scores-missing",
            "uninitialised",
            "    for (int j = lane; j < keys; j += 32) {\n        float s = 0.f;",
            "    for (int j = lane; j < keys - 1; j += 32) {\n        float s = 0.f;",
            UNINITIALISED,
            ("expf(mine[j] - most)",),
        ),
        Mutant(
            "vector-load-from-odd-offset",
            "misalignment",
            "            s += query[warp][d] * k[j * wk + d];\n",
            "            s += query[warp][d] * reinterpret_cast<const float2*>(k + j * wk + d)->x;\n",
            ("misaligned-access",),
            ("s += query",),
        ),
    ),
)
CASES = (HISTOGRAM, NORM, ATTENTION)
