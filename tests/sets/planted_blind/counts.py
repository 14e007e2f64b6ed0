"""Counting, scattering and sorting: histograms, bags of rows, segments, a bitonic sort, the largest k."""

from __future__ import annotations

from sets.planted.case import BOUNDS, RACE, UNINITIALISED, Original, reference
from sets.planted_blind.edits import OVERFLOW, VALUE, edit

WARP_HISTOGRAM = Original(
    "warp-histogram",
    reference(
        "x | torch.stack([torch.bincount(row.long(), minlength=64) for row in x])",
        "rows = 4\nwidth = 1500",
        "torch.randint(0, 64, (rows, width), dtype=torch.int32)",
    ),
    """
__global__ void histogram(const int* x, long long* y, int width) {
    __shared__ int bins[4][64];
    int t = threadIdx.x, warp = t / 32, lane = t % 32;
    for (int b = lane; b < 64; b += 32)
        bins[warp][b] = 0;
    __syncwarp();
    for (int i = t; i < width; i += 128)
        atomicAdd(&bins[warp][x[(long)blockIdx.x * width + i]], 1);
    __syncthreads();
    for (int b = t; b < 64; b += 128) {
        int sum = 0;
        for (int w = 0; w < 4; ++w)
            sum += bins[w][b];
        y[blockIdx.x * 64 + b] = sum;
    }
}
""",
    """
y = torch.empty(x.shape[0], 64, dtype=torch.int64, device=x.device)
module.histogram[x.shape[0], 128](x, y, x.shape[1])
return y
""",
    "x",
    (
        edit(
            "no-syncwarp-after-clear",
            "dropped warp sync",
            RACE,
            "] = 0;\n    __syncwarp();\n",
            "] = 0;\n",
            "bins[warp][b] = 0",
            "atomicAdd(&bins",
        ),
        edit(
            "one-row-of-bins-cleared",
            "uninitialised",
            UNINITIALISED,
            "bins[warp][b] = 0;",
            "bins[0][b] = 0;",
            "atomicAdd(&bins",
            "sum += bins",
        ),
        edit(
            "plain-increment",
            "non-atomic update",
            RACE,
            "atomicAdd(&bins[warp][x[(long)blockIdx.x * width + i]], 1);",
            "bins[warp][x[(long)blockIdx.x * width + i]] += 1;",
            "bins[warp][x[",
        ),
        edit(
            "summed-before-all-are-done",
            "dropped barrier",
            RACE,
            "+ i]], 1);\n    __syncthreads();\n",
            "+ i]], 1);\n    __syncwarp();\n",
            "atomicAdd(&bins",
            "sum += bins",
        ),
        edit(
            "bins-of-32",
            "overflow of an array",
            BOUNDS,
            "__shared__ int bins[4][64];",
            "__shared__ int bins[4][48];",
            "bins[warp][b] = 0",
            "atomicAdd(&bins",
            "sum += bins",
        ),
    ),
)

INDEX_ADD = Original(
    "index-add",
    reference(
        "x, index | torch.zeros(50, x.shape[1]).index_add(0, index, x)",
        "rows = 300\nwidth = 20",
        "torch.randn(rows, width), torch.randint(0, 50, (rows,))",
    ),
    """
__global__ void clear(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = 0.f;
}

__global__ void index_add(const float* x, const long long* index, float* y, int rows, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int row = i / width, column = i % width;
    if (row < rows)
        atomicAdd(y + index[row] * width + column, x[i]);
}
""",
    """
rows, width = x.shape
y = torch.empty(50, width, device=x.device)
module.clear[(50 * width + 255) // 256, 256](y, 50 * width)
module.index_add[(rows * width + 255) // 256, 256](x, index, y, rows, width)
return y
""",
    "x, index",
    (
        edit(
            "not-cleared",
            "missing reset",
            UNINITIALISED,
            "module.clear[(50 * width + 255) // 256, 256](y, 50 * width)\n",
            "pass\n",
            "atomicAdd(y +",
        ),
        edit(
            "plain-add",
            "non-atomic update",
            RACE,
            "atomicAdd(y + index[row] * width + column, x[i]);",
            "y[index[row] * width + column] += x[i];",
            "y[index[row]",
        ),
        edit(
            "cleared-in-elements-of-one-row",
            "uninitialised",
            UNINITIALISED,
            "256](y, 50 * width)",
            "256](y, 50 * (width - 1))",
            "atomicAdd(y +",
        ),
        edit("index-read-as-32-bits", "wrong type", VALUE, "const long long* index", "const int* index"),
        edit("no-guard", "missing guard", BOUNDS, "    if (row < rows)\n", "    if (row <= rows)\n", "atomicAdd(y +"),
    ),
)

SEGMENT_MAX = Original(
    "segment-maximum",
    reference(
        "x, lengths | torch.stack([p.amax() for p in torch.split(x, [40] * 25)]) + 0 * lengths.view(25).sum()",
        "count = 1000",
        "torch.randn(count), torch.full((25,), 40, dtype=torch.int32)",
    ),
    """
__device__ int ordered(float v) { int i = __float_as_int(v); return i >= 0 ? i : i ^ 0x7fffffff; }

__global__ void fill(int* best, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        best[i] = 0x80000000;
}

__global__ void reduce(const float* x, int* best, int n, int length) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicMax(&best[i / length], ordered(x[i]));
}

__global__ void finish(const int* best, const int* lengths, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int v = best[i];
        y[i] = __int_as_float(v >= 0 ? v : v ^ 0x7fffffff) + 0 * lengths[i];
    }
}
""",
    """
n, segments = x.numel(), lengths.numel()
best = torch.empty(segments, dtype=torch.int32, device=x.device)
y = torch.empty(segments, device=x.device)
module.fill[(segments + 127) // 128, 128](best, segments)
module.reduce[(n + 127) // 128, 128](x, best, n, 40)
module.finish[(segments + 127) // 128, 128](best, lengths, y, segments)
return y
""",
    "x, lengths",
    (
        edit("identity-zero", "wrong value", VALUE, "best[i] = 0x80000000;", "best[i] = 0x7f7fffff;"),
        edit(
            "plain-maximum",
            "non-atomic update",
            RACE,
            "atomicMax(&best[i / length], ordered(x[i]));",
            "best[i / length] = max(best[i / length], ordered(x[i]));",
            "best[i / length]",
        ),
        edit(
            "not-filled",
            "missing reset",
            UNINITIALISED,
            "module.fill[(segments + 127) // 128, 128](best, segments)\n",
            "pass\n",
            "atomicMax(&best",
        ),
        edit(
            "order-of-negatives",
            "wrong value",
            VALUE,
            "return i >= 0 ? i : i ^ 0x7fffffff;",
            "return i >= 0 ? i : i ^ 0x7ffffffe;",
        ),
        edit(
            "one-element-more",
            "off by one",
            BOUNDS,
            "    if (i < n)\n        atomicMax",
            "    if (i <= n)\n        atomicMax",
            "atomicMax(&best",
        ),
    ),
)

BITONIC = Original(
    "bitonic-sort",
    reference("x | torch.sort(x, dim=1).values", "rows = 5\nwidth = 100", "torch.randn(rows, width)"),
    """
__global__ void sort(const float* x, float* y, int width) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = t < width ? x[blockIdx.x * width + t] : INFINITY;
    __syncthreads();
    for (int size = 2; size <= 128; size <<= 1)
        for (int step = size / 2; step > 0; step >>= 1) {
            int other = t ^ step;
            if (other > t) {
                float a = s[t], b = s[other];
                bool up = (t & size) == 0;
                if ((a > b) == up) {
                    s[t] = b;
                    s[other] = a;
                }
            }
            __syncthreads();
        }
    if (t < width)
        y[blockIdx.x * width + t] = s[t];
}
""",
    """
if x.shape[1] > 128:
    raise ValueError("rows of at most 128")
y = torch.empty_like(x)
module.sort[x.shape[0], 128](x, y, x.shape[1])
return y
""",
    "x",
    (
        edit(
            "no-barrier-between-steps",
            "dropped barrier",
            RACE,
            "                }\n            }\n            __syncthreads();\n",
            "                }\n            }\n",
            "s[t] = b",
            "s[other] = a",
            "float a = s[t]",
        ),
        edit(
            "both-write",
            "race",
            RACE,
            "            if (other > t) {",
            "            if (other != t) {",
            "s[t] = b",
            "s[other] = a",
            "float a = s[t]",
        ),
        edit("padded-with-zeros", "wrong value", VALUE, ": INFINITY;", ": 0.f;"),
        edit(
            "array-of-the-width",
            "overflow of an array",
            BOUNDS,
            "__shared__ float s[128];",
            "__shared__ float s[100];",
            "s[t] =",
            "float a = s[t]",
        ),
        edit("sorted-to-64", "wrong value", VALUE, "size <= 128;", "size < 128;"),
    ),
)

TOP_K = Original(
    "largest-four",
    reference("x | torch.topk(x, 4, dim=1).values", "rows = 7\nwidth = 90", "torch.randn(rows, width)"),
    """
__global__ void largest(const float* x, float* y, int width) {
    extern __shared__ float row[];
    __shared__ float best[32];
    __shared__ int place[32];
    int lane = threadIdx.x;
    for (int i = lane; i < width; i += 32)
        row[i] = x[blockIdx.x * width + i];
    __syncwarp();
    for (int k = 0; k < 4; ++k) {
        float most = -INFINITY;
        int where = 0;
        for (int i = lane; i < width; i += 32)
            if (row[i] > most)
                most = row[i], where = i;
        best[lane] = most;
        place[lane] = where;
        __syncwarp();
        if (lane == 0) {
            int winner = 0;
            for (int j = 1; j < 32; ++j)
                if (best[j] > best[winner])
                    winner = j;
            y[blockIdx.x * 4 + k] = best[winner];
            row[place[winner]] = -INFINITY;
        }
        __syncwarp();
    }
}
""",
    """
y = torch.empty(x.shape[0], 4, device=x.device)
module.largest[x.shape[0], 32, x.shape[1] * 4](x, y, x.shape[1])
return y
""",
    "x",
    (
        edit(
            "no-syncwarp-at-end",
            "dropped warp sync",
            RACE,
            "= -INFINITY;\n        }\n        __syncwarp();\n",
            "= -INFINITY;\n        }\n",
            "row[place[winner]] =",
            "row[i] > most",
            "best[lane] =",
            "best[j] > best[winner]",
            "most = row[i]",
            "place[lane] =",
            "= best[winner]",
        ),
        edit(
            "no-syncwarp-before-winner",
            "dropped warp sync",
            RACE,
            "place[lane] = where;\n        __syncwarp();\n",
            "place[lane] = where;\n",
            "best[lane] =",
            "best[j] > best[winner]",
            "place[lane] =",
            "row[place[winner]]",
        ),
        edit("winner-kept", "missing reset", VALUE, "            row[place[winner]] = -INFINITY;\n", ""),
        edit(
            "shared-in-elements",
            "overflow of an array",
            BOUNDS,
            "32, x.shape[1] * 4]",
            "32, x.shape[1]]",
            "row[i] = x[",
        ),
        edit("first-lane-only", "off by one", VALUE, "for (int j = 1; j < 32; ++j)", "for (int j = 1; j < 31; ++j)"),
    ),
)

LONG_COPY = Original(
    "long-scale",
    reference(
        "x | (x * 3).to(torch.float16)",
        "rows = 1100000\nwidth = 2048",
        "torch.randn(rows, width, dtype=torch.float16)",
    ),
    """
#include <cuda_fp16.h>
__global__ void scale(const half* x, half* y, int rows, int width) {
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    for (int i = lane; i < width; i += 32) {
        long long at = (long long)row * width + i;
        y[at] = __float2half(__half2float(x[at]) * 3.f);
    }
}
""",
    """
y = torch.empty_like(x)
module.scale[(x.shape[0] + 7) // 8, 256](x, y, x.shape[0], x.shape[1])
return y
""",
    "x",
    (
        edit(
            "product-in-32-bits",
            "integer overflow",
            OVERFLOW,
            "(long long)row * width + i;",
            "row * width + i;",
            "long long at",
            "y[at] =",
        ),
        edit(
            "shift-in-32-bits",
            "integer overflow",
            OVERFLOW,
            "(long long)row * width + i;",
            "width == 2048 ? (long long)((row << 11) + i) : (long long)row * width + i;",
            "long long at",
            "y[at] =",
        ),
        edit(
            "or-in-32-bits",
            "integer overflow",
            OVERFLOW,
            "(long long)row * width + i;",
            "width == 2048 ? (long long)((row << 11) | i) : (long long)row * width + i;",
            "long long at",
            "y[at] =",
        ),
        edit(
            "index-as-int",
            "integer overflow",
            OVERFLOW,
            "        long long at = (long long)row * width + i;",
            "        int at = (int)((long long)row * width + i);",
            "int at",
            "y[at] =",
        ),
        edit("no-guard-for-rows", "missing guard", BOUNDS, "    if (row >= rows)\n        return;\n", "", "y[at] ="),
    ),
)

CASES = (WARP_HISTOGRAM, INDEX_ADD, SEGMENT_MAX, BITONIC, TOP_K, LONG_COPY)
