"""Reductions: over a grid by the last block, over rows by warps and blocks, of pairs and of moments."""

from __future__ import annotations

from sets.planted.case import BOUNDS, RACE, UNINITIALISED, Original, reference
from sets.planted_blind.edits import FENCE, MASK, VALUE, edit

GRID_SUM = Original(
    "grid-sum",
    reference("x | x.sum().reshape(1)", "count = 12007", "torch.randn(count)"),
    """
__device__ unsigned int arrived = 0;

__global__ void grid_sum(const float* x, float* partial, float* y, int n) {
    __shared__ float sums[256];
    __shared__ bool last;
    float sum = 0.f;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
        sum += x[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sums[0];
        __threadfence();
        last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    float total = 0.f;
    for (int i = threadIdx.x; i < gridDim.x; i += 256)
        total += partial[i];
    sums[threadIdx.x] = total;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        y[0] = sums[0];
        arrived = 0;
    }
}
""",
    """
blocks = min((x.numel() + 255) // 256, 40)
partial = torch.empty(blocks, device=x.device)
y = torch.empty(1, device=x.device)
module.grid_sum[blocks, 256](x, partial, y, x.numel())
return y
""",
    "x",
    (
        edit(
            "no-fence-before-the-count",
            "dropped fence",
            FENCE,
            "        __threadfence();\n",
            "",
            "partial[blockIdx.x] = sums[0]",
            "last = atomicAdd",
            "total += partial[i]",
        ),
        edit(
            "last-not-shared-in-time",
            "dropped barrier",
            RACE,
            "gridDim.x - 1;\n    }\n    __syncthreads();\n",
            "gridDim.x - 1;\n    }\n",
            "last = atomicAdd",
            "if (!last)",
        ),
        edit("counter-not-reset", "missing reset", VALUE, "        arrived = 0;\n", ""),
        edit(
            "plain-count",
            "non-atomic update",
            RACE,
            "last = atomicAdd(&arrived, 1u) == gridDim.x - 1;",
            "last = arrived++ == gridDim.x - 1;",
            "arrived++",
            "arrived = 0",
        ),
        edit(
            "partials-of-the-first-warp",
            "wrong value",
            VALUE,
            "for (int i = threadIdx.x; i < gridDim.x; i += 256)",
            "for (int i = threadIdx.x; i < min(gridDim.x, 32); i += 256)",
        ),
    ),
)

ROW_MAX = Original(
    "row-max",
    reference("x | x.amax(dim=1)", "rows = 37\nwidth = 70", "torch.randn(rows, width)"),
    """
__global__ void row_max(const float* x, float* y, int rows, int width) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    float most = -INFINITY;
    for (int i = lane; i < width; i += 32)
        most = fmaxf(most, x[row * width + i]);
    for (int step = 16; step > 0; step >>= 1)
        most = fmaxf(most, __shfl_down_sync(0xffffffffu, most, step));
    if (lane == 0)
        y[row] = most;
}
""",
    """
y = torch.empty(x.shape[0], device=x.device)
module.row_max[(x.shape[0] + 3) // 4, 128](x, y, x.shape[0], x.shape[1])
return y
""",
    "x",
    (
        edit("maximum-from-smallest-float", "wrong value", VALUE, "most = -INFINITY", "most = 1.17549435e-38f"),
        edit(
            "mask-of-half-a-warp",
            "wrong mask",
            MASK,
            "__shfl_down_sync(0xffffffffu, most, step)",
            "__shfl_down_sync(0x0000ffffu, most, step)",
            "__shfl_down_sync",
        ),
        edit(
            "no-guard-for-rows",
            "missing guard",
            BOUNDS,
            "    if (row >= rows)\n        return;\n",
            "",
            "most = fmaxf(most, x[",
            "y[row] = most",
        ),
        edit(
            "reads-the-next-row",
            "off by one",
            BOUNDS,
            "i < width; i += 32",
            "i <= width; i += 32",
            "most = fmaxf(most, x[",
        ),
        edit("every-lane-stores", "race", RACE, "    if (lane == 0)\n        y[row]", "    y[row]", "y[row] = most"),
    ),
)

LOG_SUM_EXP = Original(
    "log-sum-exp",
    reference("x | torch.logsumexp(x, dim=1)", "rows = 9\nwidth = 513", "torch.randn(rows, width)"),
    """
__global__ void log_sum_exp(const float* x, float* y, int width) {
    __shared__ float box[8];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    x += (size_t)blockIdx.x * width;
    float most = -INFINITY;
    for (int i = threadIdx.x; i < width; i += 256)
        most = fmaxf(most, x[i]);
    for (int step = 16; step; step >>= 1)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    if (lane == 0)
        box[warp] = most;
    __syncthreads();
    most = box[0];
    for (int k = 1; k < 8; ++k)
        most = fmaxf(most, box[k]);
    __syncthreads();
    float sum = 0.f;
    for (int i = threadIdx.x; i < width; i += 256)
        sum += expf(x[i] - most);
    for (int step = 16; step; step >>= 1)
        sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0)
        box[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.f;
        for (int k = 0; k < 8; ++k)
            total += box[k];
        y[blockIdx.x] = most + logf(total);
    }
}
""",
    """
y = torch.empty(x.shape[0], device=x.device)
module.log_sum_exp[x.shape[0], 256](x, y, x.shape[1])
return y
""",
    "x",
    (
        edit(
            "box-reused-without-barrier",
            "dropped barrier",
            RACE,
            "box[k]);\n    __syncthreads();\n",
            "box[k]);\n",
            "most = box[0]",
            "most = fmaxf(most, box[k])",
            "box[warp] = sum",
        ),
        edit(
            "maximum-before-all-warps",
            "dropped barrier",
            RACE,
            "box[warp] = most;\n    __syncthreads();\n",
            "box[warp] = most;\n",
            "box[warp] = most",
            "most = box[0]",
            "most = fmaxf(most, box[k])",
        ),
        edit(
            "ten-warps-summed",
            "overflow of an array",
            (*BOUNDS, *UNINITIALISED),
            "for (int k = 0; k < 8; ++k)",
            "for (int k = 0; k < 10; ++k)",
            "total += box[k]",
        ),
        edit(
            "only-seven-warps-write",
            "uninitialised",
            UNINITIALISED,
            "    if (lane == 0)\n        box[warp] = most;",
            "    if (lane == 0 && warp < 7)\n        box[warp] = most;",
            "most = fmaxf(most, box[k])",
        ),
        edit(
            "sum-read-by-its-own-warp",
            "dropped barrier",
            RACE,
            "box[warp] = sum;\n    __syncthreads();\n",
            "box[warp] = sum;\n    __syncwarp();\n",
            "box[warp] = sum",
            "total += box[k]",
        ),
    ),
)

VARIANCE = Original(
    "variance",
    reference("x | x.var(dim=1, unbiased=False)", "rows = 11\nwidth = 300", "torch.randn(rows, width)"),
    """
struct Moments { float mean, square, count; };

__device__ Moments join(Moments a, Moments b) {
    float count = a.count + b.count;
    if (count == 0.f)
        return a;
    float delta = b.mean - a.mean;
    return {a.mean + delta * b.count / count, a.square + b.square + delta * delta * a.count * b.count / count, count};
}

__global__ void variance(const float* x, float* y, int width) {
    __shared__ Moments parts[128];
    const float* row = x + (long long)blockIdx.x * width;
    Moments mine = {0.f, 0.f, 0.f};
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        mine = join(mine, {row[i], 0.f, 1.f});
    parts[threadIdx.x] = mine;
    __syncthreads();
    for (int size = blockDim.x / 2; size >= 1; size >>= 1) {
        if (threadIdx.x < size)
            parts[threadIdx.x] = join(parts[threadIdx.x], parts[threadIdx.x + size]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        y[blockIdx.x] = parts[0].square / width;
}
""",
    """
y = torch.empty(x.shape[0], device=x.device)
module.variance[x.shape[0], 128](x, y, x.shape[1])
return y
""",
    "x",
    (
        edit(
            "no-barrier-in-tree",
            "dropped barrier",
            RACE,
            "threadIdx.x + size]);\n        __syncthreads();\n",
            "threadIdx.x + size]);\n",
            "parts[threadIdx.x] = join",
            "parts[0].square",
        ),
        edit("mean-of-the-left", "wrong value", VALUE, "a.mean + delta * b.count / count", "a.mean + delta * 0.5f"),
        edit(
            "parts-of-half-the-threads",
            "overflow of an array",
            BOUNDS,
            "__shared__ Moments parts[128]",
            "__shared__ Moments parts[64]",
            "parts[threadIdx.x] = mine",
        ),
        edit(
            "barrier-in-the-branch",
            "divergent barrier",
            (*RACE, "divergent-barrier", "barrier-deadlock"),
            "threadIdx.x + size]);\n        __syncthreads();\n    }",
            "threadIdx.x + size]), __syncthreads();\n    }",
            "parts[threadIdx.x] = join",
            "parts[0].square",
        ),
        edit(
            "row-in-floats-of-the-block",
            "wrong stride",
            BOUNDS,
            "(long long)blockIdx.x * width;",
            "(long long)blockIdx.x * (width + 1);",
            "mine = join(mine",
        ),
    ),
)

ARG_MIN = Original(
    "arg-min",
    reference("x | x.argmin(dim=1)", "rows = 14\nwidth = 201", "torch.randn(rows, width)"),
    """
__global__ void arg_min(const float* x, long long* y, int width) {
    __shared__ float values[64];
    __shared__ int places[64];
    int t = threadIdx.x;
    float least = INFINITY;
    int place = width;
    for (int i = t; i < width; i += 64) {
        float v = x[blockIdx.x * width + i];
        if (v < least) {
            least = v;
            place = i;
        }
    }
    values[t] = least;
    places[t] = place;
    __syncthreads();
    for (int d = 32; d > 0; d /= 2) {
        if (t < d) {
            float other = values[t + d];
            int there = places[t + d];
            if (other < values[t] || (other == values[t] && there < places[t])) {
                values[t] = other;
                places[t] = there;
            }
        }
        __syncthreads();
    }
    if (t == 0)
        y[blockIdx.x] = places[0];
}
""",
    """
y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
module.arg_min[x.shape[0], 64](x, y, x.shape[1])
return y
""",
    "x",
    (
        edit("place-not-moved", "wrong value", VALUE, "                places[t] = there;\n", ""),
        edit(
            "tree-without-guard",
            "missing guard",
            (*BOUNDS, *RACE),
            "        if (t < d) {\n            float other",
            "        if (true) {\n            float other",
            "float other = values[t + d]",
            "int there = places[t + d]",
            "values[t] = other",
        ),
        edit(
            "stored-as-32-bits",
            "wrong stride",
            (*UNINITIALISED, "unwritten-output"),
            "long long* y",
            "int* y",
            "y[blockIdx.x] = places[0]",
        ),
        edit("identity-zero", "wrong value", VALUE, "float least = INFINITY;", "float least = 0.f;"),
        edit(
            "places-before-barrier",
            "dropped barrier",
            RACE,
            "    places[t] = place;\n    __syncthreads();\n",
            "    places[t] = place;\n",
            "values[t] = least",
            "places[t] = place",
            "float other = values",
            "int there = places",
        ),
    ),
)

CASES = (GRID_SUM, ROW_MAX, LOG_SUM_EXP, VARIANCE, ARG_MIN)
