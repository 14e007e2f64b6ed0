"""Blocks and warps that wait for one another: a chain of flags, a grid barrier, mbarriers, tickets, attention."""

from __future__ import annotations

from sets.planted.case import BOUNDS, RACE, UNINITIALISED, Original, reference
from sets.planted_blind.edits import ASYNC, FENCE, VALUE, edit

CHAIN = Original(
    "chained-scan",
    reference("x | torch.cumsum(x, dim=0)", "rows = 900\nwidth = 33", "torch.randn(rows, width)"),
    """
__global__ void chained(const float* x, float* y, float* carries, int* flags, int rows, int width) {
    int strip = blockIdx.x, c = threadIdx.x, first = strip * 64, end = min(first + 64, rows);
    float sum = 0.f;
    if (c < width)
        for (int r = first; r < end; ++r)
            sum += x[r * width + c];
    if (strip > 0) {
        if (c == 0)
            while (atomicAdd(&flags[strip - 1], 0) == 0) { }
        __syncthreads();
        __threadfence();
    }
    float before = strip > 0 && c < width ? carries[(strip - 1) * width + c] : 0.f;
    if (c < width)
        carries[strip * width + c] = before + sum;
    __threadfence();
    __syncthreads();
    if (c == 0)
        atomicExch(&flags[strip], 1);
    float running = before;
    if (c < width)
        for (int r = first; r < end; ++r) {
            running += x[r * width + c];
            y[r * width + c] = running;
        }
}
""",
    """
rows, width = x.shape
strips = (rows + 63) // 64
flags = torch.zeros(strips, dtype=torch.int32, device=x.device)
carries = torch.empty(strips, width, device=x.device)
y = torch.empty_like(x)
module.chained[strips, (width + 31) // 32 * 32](x, y, carries, flags, rows, width)
return y
""",
    "x",
    (
        edit(
            "no-fence-before-the-flag",
            "dropped fence",
            FENCE,
            "= before + sum;\n    __threadfence();\n    __syncthreads();\n",
            "= before + sum;\n    __syncthreads();\n",
            "carries[strip * width + c] =",
            "atomicExch(",
            "float before =",
        ),
        edit(
            "no-barrier-before-the-flag",
            "dropped barrier",
            FENCE,
            "    __threadfence();\n    __syncthreads();\n    if (c == 0)\n        atomicExch",
            "    __threadfence();\n    if (c == 0)\n        atomicExch",
            "carries[strip * width + c] =",
            "atomicExch(",
            "float before =",
        ),
        edit(
            "only-the-first-thread-waits",
            "dropped barrier",
            FENCE,
            "== 0) { }\n        __syncthreads();\n",
            "== 0) { }\n",
            "carries[strip * width + c] =",
            "float before =",
        ),
        edit(
            "own-sum-only",
            "wrong value",
            VALUE,
            "carries[strip * width + c] = before + sum;",
            "carries[strip * width + c] = sum;",
        ),
        edit(
            "flags-not-cleared",
            "missing reset",
            (*FENCE, *UNINITIALISED),
            "torch.zeros(strips, dtype=torch.int32",
            "torch.ones(strips, dtype=torch.int32",
            "float before =",
            "carries[strip * width + c] =",
        ),
    ),
)

GRID_BARRIER = Original(
    "two-smoothings",
    reference(
        "x | (lambda f: f(f(x)))(lambda v: (torch.roll(v, 1) + v + torch.roll(v, -1)) / 3)",
        "count = 2500",
        "torch.randn(count)",
    ),
    """
__device__ unsigned int arrivals;
__device__ volatile unsigned int generation;

__device__ void grid_barrier() {
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned int now = generation;
        __threadfence();
        if (atomicAdd(&arrivals, 1) == gridDim.x - 1) {
            arrivals = 0;
            __threadfence();
            generation = now + 1;
        } else {
            while (generation == now) { }
        }
        __threadfence();
    }
    __syncthreads();
}

__global__ void smooth(const float* x, float* mid, float* y, int n) {
    int step = gridDim.x * blockDim.x, t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += step)
        mid[i] = (x[(i + n - 1) % n] + x[i] + x[(i + 1) % n]) / 3.f;
    grid_barrier();
    for (int i = t; i < n; i += step)
        y[i] = (mid[(i + n - 1) % n] + mid[i] + mid[(i + 1) % n]) / 3.f;
}
""",
    """
mid, y = torch.empty_like(x), torch.empty_like(x)
module.smooth[8, 128](x, mid, y, x.numel())
return y
""",
    "x",
    (
        edit(
            "no-barrier-at-all",
            "dropped barrier",
            FENCE,
            "    grid_barrier();\n    for",
            "    for",
            "mid[i] =",
            "y[i] = (mid",
        ),
        edit(
            "block-barrier-only",
            "dropped barrier",
            FENCE,
            "    grid_barrier();\n    for",
            "    __syncthreads();\n    for",
            "mid[i] =",
            "y[i] = (mid",
        ),
        edit(
            "no-fence-before-arrival",
            "dropped fence",
            FENCE,
            "generation;\n        __threadfence();\n",
            "generation;\n",
            "mid[i] =",
            "y[i] = (mid",
            "atomicAdd(&arrivals",
        ),
        edit(
            "no-barrier-before-arrival",
            "dropped barrier",
            FENCE,
            "__device__ void grid_barrier() {\n    __syncthreads();\n",
            "__device__ void grid_barrier() {\n",
            "mid[i] =",
            "y[i] = (mid",
        ),
        edit(
            "no-barrier-after-the-wait",
            "dropped barrier",
            FENCE,
            "        __threadfence();\n    }\n    __syncthreads();\n}",
            "        __threadfence();\n    }\n}",
            "mid[i] =",
            "y[i] = (mid",
        ),
    ),
)

MBARRIER = Original(
    "mbarrier-stages",
    reference(
        "x | torch.cumsum(x.view(-1, 64).flip(0), 0).flip(0).reshape(-1)", "count = 64 * 12", "torch.randn(count)"
    ),
    """
#include <cuda/barrier>
typedef cuda::barrier<cuda::thread_scope_block> Gate;

__global__ void backwards(const float* x, float* y, int rows) {
    __shared__ float stage[2][64];
    __shared__ Gate full[2], empty[2];
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; ++s) {
            init(&full[s], 128);
            init(&empty[s], 128);
        }
    __syncthreads();
    int t = threadIdx.x % 64;
    if (threadIdx.x < 64) {
        for (int k = 0; k < rows; ++k) {
            if (k >= 2)
                empty[k % 2].arrive_and_wait();
            stage[k % 2][t] = x[(rows - 1 - k) * 64 + t];
            (void)full[k % 2].arrive();
        }
    } else {
        float sum = 0.f;
        for (int k = 0; k < rows; ++k) {
            full[k % 2].arrive_and_wait();
            sum += stage[k % 2][63 - t];
            if (k + 2 < rows)
                (void)empty[k % 2].arrive();
            y[(rows - 1 - k) * 64 + 63 - t] = sum;
        }
    }
}
""",
    """
y = torch.empty_like(x)
module.backwards[1, 128](x, y, x.numel() // 64)
return y
""",
    "x",
    (
        edit(
            "overwrites-before-empty",
            "race",
            RACE,
            "            if (k >= 2)\n                empty[k % 2].arrive_and_wait();\n",
            "            if (k >= 2)\n                (void)empty[k % 2].arrive();\n",
            "stage[k % 2][t] =",
            "sum += stage",
        ),
        edit(
            "reads-before-full",
            "race",
            (*RACE, *UNINITIALISED),
            "            full[k % 2].arrive_and_wait();\n            sum",
            "            (void)full[k % 2].arrive();\n            sum",
            "stage[k % 2][t] =",
            "sum += stage",
        ),
        edit(
            "no-barrier-after-init",
            "dropped barrier",
            (*RACE, "mbarrier-misuse", *UNINITIALISED),
            "        }\n    __syncthreads();\n    int t",
            "        }\n    int t",
            "init(&full",
            "init(&empty",
            "arrive",
        ),
        edit(
            "arrives-before-the-store",
            "race",
            RACE,
            "            stage[k % 2][t] = x[(rows - 1 - k) * 64 + t];\n            (void)full[k % 2].arrive();\n",
            "            (void)full[k % 2].arrive();\n            stage[k % 2][t] = x[(rows - 1 - k) * 64 + t];\n",
            "stage[k % 2][t] =",
            "sum += stage",
        ),
        edit(
            "count-of-one-side",
            "wrong value",
            (*RACE, "mbarrier-misuse", "barrier-deadlock"),
            "init(&full[s], 128);",
            "init(&full[s], 64);",
            "stage[k % 2][t] =",
            "sum += stage",
            "arrive",
            "init(&full",
        ),
    ),
)

ATTENTION = Original(
    "attention-tiles",
    reference(
        "q, k, v | torch.softmax(q.view(q.shape[0], 16) @ k.t() * 0.25, dim=-1) @ v",
        "queries = 37\nkeys = 51\nwidth = 16",
        "torch.randn(queries, width), torch.randn(keys, width), torch.randn(keys, width)",
    ),
    """
#define W 16
#define TILE 32
__global__ void attend(const float* q, const float* k, const float* v, float* y, int queries, int keys) {
    __shared__ float ks[TILE][W + 1], vs[TILE][W + 1];
    __shared__ float scores[4][TILE];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.x * 4 + warp;
    float query[W];
    for (int d = 0; d < W; ++d)
        query[d] = row < queries ? q[row * W + d] : 0.f;
    float most = -INFINITY, sum = 0.f, out = 0.f;
    for (int begin = 0; begin < keys; begin += TILE) {
        for (int e = threadIdx.x; e < TILE * W; e += 128) {
            bool inside = begin + e / W < keys;
            ks[e / W][e % W] = inside ? k[begin * W + e] : 0.f;
            vs[e / W][e % W] = inside ? v[begin * W + e] : 0.f;
        }
        __syncthreads();
        float score = -INFINITY;
        if (begin + lane < keys) {
            score = 0.f;
            for (int d = 0; d < W; ++d)
                score += query[d] * ks[lane][d];
            score *= 0.25f;
        }
        float top = score;
        for (int m = 16; m; m >>= 1)
            top = fmaxf(top, __shfl_xor_sync(~0u, top, m));
        float next = fmaxf(most, top), shrink = expf(most - next), p = expf(score - next), total = p;
        for (int m = 16; m; m >>= 1)
            total += __shfl_xor_sync(~0u, total, m);
        scores[warp][lane] = p;
        __syncwarp();
        sum = sum * shrink + total;
        out *= shrink;
        for (int j = 0; j < TILE; ++j)
            out += scores[warp][j] * vs[j][lane % W];
        most = next;
        __syncthreads();
    }
    if (row < queries && lane < W)
        y[row * W + lane] = out / sum;
}
""",
    """
y = torch.empty_like(q)
module.attend[(q.shape[0] + 3) // 4, 128](q, k, v, y, q.shape[0], k.shape[0])
return y
""",
    "q, k, v",
    (
        edit(
            "no-syncwarp",
            "dropped warp sync",
            RACE,
            "= p;\n        __syncwarp();\n",
            "= p;\n",
            "scores[warp][lane] = p",
            "out += scores",
        ),
        edit(
            "tile-overwritten",
            "dropped barrier",
            RACE,
            "most = next;\n        __syncthreads();\n",
            "most = next;\n",
            "ks[e / W]",
            "vs[e / W]",
            "out += scores",
            "score += query",
        ),
        edit("out-not-shrunk", "wrong value", VALUE, "        out *= shrink;\n", ""),
        edit(
            "scores-of-one-warp",
            "race",
            RACE,
            "scores[warp][lane] = p;",
            "scores[0][lane] = p;",
            "scores[0][lane] = p",
            "out += scores",
        ),
        edit(
            "no-guard-for-queries",
            "missing guard",
            BOUNDS,
            "row < queries && lane < W",
            "lane < W",
            "y[row * W + lane]",
        ),
    ),
)

WARP_COPY = Original(
    "staged-rows",
    reference("x | x.view(x.shape[0], 64).flip(1) * 2", "rows = 21\nwidth = 64", "torch.randn(rows, width)"),
    """
#include <cuda_pipeline.h>
__global__ void turn(const float* x, float* y, int rows) {
    __shared__ __align__(16) float stage[4][64];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.x * 4 + warp;
    if (row >= rows)
        return;
    __pipeline_memcpy_async(&stage[warp][lane * 2], &x[row * 64 + lane * 2], 8);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncwarp();
    for (int i = lane; i < 64; i += 32)
        y[row * 64 + i] = stage[warp][63 - i] * 2.f;
}
""",
    """
if x.shape[1] != 64:
    raise ValueError("rows of 64")
y = torch.empty_like(x)
module.turn[(x.shape[0] + 3) // 4, 128](x, y, x.shape[0])
return y
""",
    "x",
    (
        edit(
            "no-syncwarp",
            "dropped warp sync",
            ASYNC,
            "    __pipeline_wait_prior(0);\n    __syncwarp();\n",
            "    __pipeline_wait_prior(0);\n",
            "stage[warp][63 - i]",
            "__pipeline_memcpy_async(",
        ),
        edit(
            "no-wait",
            "wrong wait",
            ASYNC,
            "    __pipeline_wait_prior(0);\n",
            "",
            "stage[warp][63 - i]",
            "__pipeline_memcpy_async(",
        ),
        edit(
            "waits-with-one-left",
            "wrong wait",
            ASYNC,
            "__pipeline_wait_prior(0);",
            "__pipeline_wait_prior(1);",
            "stage[warp][63 - i]",
            "__pipeline_memcpy_async(",
        ),
        edit(
            "half-the-bytes",
            "uninitialised",
            UNINITIALISED,
            "&x[row * 64 + lane * 2], 8);",
            "&x[row * 64 + lane * 2], 4);",
            "stage[warp][63 - i]",
        ),
        edit(
            "stage-of-one-warp",
            "race",
            ASYNC,
            "&stage[warp][lane * 2]",
            "&stage[0][lane * 2]",
            "__pipeline_memcpy_async(",
            "stage[warp][63 - i]",
        ),
    ),
)

CASES = (CHAIN, GRID_BARRIER, MBARRIER, ATTENTION, WARP_COPY)
