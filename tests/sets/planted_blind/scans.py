"""Scans: in a block, by warps with a carry, by look-back between blocks, in three kernels, and of segments."""

from __future__ import annotations

from sets.planted.case import BOUNDS, RACE, UNINITIALISED, Original, reference
from sets.planted_blind.edits import FENCE, MASK, VALUE, edit

TREE_SCAN = Original(
    "tree-scan",
    reference("x | torch.cumsum(x, dim=1) - x", "rows = 6\nwidth = 256", "torch.randn(rows, width)"),
    """
__global__ void exclusive(const float* x, float* y, int width) {
    __shared__ float s[256];
    int t = threadIdx.x;
    const float* row = x + blockIdx.x * width;
    s[2 * t] = 2 * t < width ? row[2 * t] : 0.f;
    s[2 * t + 1] = 2 * t + 1 < width ? row[2 * t + 1] : 0.f;
    int offset = 1;
    for (int d = 128; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d)
            s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0)
        s[255] = 0.f;
    for (int d = 1; d < 256; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1;
            float keep = s[a];
            s[a] = s[b];
            s[b] += keep;
        }
    }
    __syncthreads();
    if (2 * t < width)
        y[blockIdx.x * width + 2 * t] = s[2 * t];
    if (2 * t + 1 < width)
        y[blockIdx.x * width + 2 * t + 1] = s[2 * t + 1];
}
""",
    """
if x.shape[1] > 256:
    raise ValueError("rows of at most 256")
y = torch.empty_like(x)
module.exclusive[x.shape[0], 128](x, y, x.shape[1])
return y
""",
    "x",
    (
        edit(
            "no-barrier-going-up",
            "dropped barrier",
            RACE,
            "for (int d = 128; d > 0; d >>= 1) {\n        __syncthreads();\n",
            "for (int d = 128; d > 0; d >>= 1) {\n",
            "s[2 * t",
            "s[offset * (2 * t + 2) - 1] +=",
        ),
        edit(
            "no-barrier-going-down",
            "dropped barrier",
            RACE,
            "offset >>= 1;\n        __syncthreads();\n",
            "offset >>= 1;\n",
            "s[255] = 0.f",
            "float keep = s[a]",
            "s[a] = s[b]",
            "s[b] += keep",
            "s[offset * (2 * t + 2) - 1] +=",
        ),
        edit("last-not-cleared", "missing reset", VALUE, "        s[255] = 0.f;", "        s[255] += 0.f;"),
        edit(
            "one-level-too-many",
            "overflow of an array",
            BOUNDS,
            "for (int d = 128; d > 0; d >>= 1) {",
            "for (int d = 256; d > 0; d >>= 1) {",
            "s[offset * (2 * t + 2) - 1] +=",
        ),
    ),
)

CARRY_SCAN = Original(
    "carry-scan",
    reference("x | torch.cumsum(x, dim=1)", "rows = 5\nwidth = 333", "torch.randn(rows, width)"),
    """
__global__ void scan(const float* x, float* y, int width) {
    __shared__ float ends[4];
    __shared__ float carry;
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    if (t == 0)
        carry = 0.f;
    __syncthreads();
    for (int begin = 0; begin < width; begin += 128) {
        int i = begin + t;
        float v = i < width ? x[blockIdx.x * width + i] : 0.f;
        for (int d = 1; d < 32; d *= 2) {
            float u = __shfl_up_sync(0xffffffff, v, d);
            if (lane >= d)
                v += u;
        }
        if (lane == 31)
            ends[warp] = v;
        __syncthreads();
        float base = carry;
        for (int k = 0; k < warp; ++k)
            base += ends[k];
        v += base;
        if (i < width)
            y[blockIdx.x * width + i] = v;
        __syncthreads();
        if (t == 127)
            carry = v;
        __syncthreads();
    }
}
""",
    """
y = torch.empty_like(x)
module.scan[x.shape[0], 128](x, y, x.shape[1])
return y
""",
    "x",
    (
        edit(
            "carry-changed-too-early",
            "dropped barrier",
            RACE,
            "+ i] = v;\n        __syncthreads();\n        if (t == 127)",
            "+ i] = v;\n        if (t == 127)",
            "float base = carry",
            "carry = v",
        ),
        edit(
            "carry-not-begun",
            "uninitialised",
            UNINITIALISED,
            "    if (t == 0)\n        carry = 0.f;\n    __syncthreads();\n",
            "",
            "float base = carry",
        ),
        edit(
            "shuffle-in-the-branch",
            "wrong mask",
            MASK,
            "            float u = __shfl_up_sync(0xffffffff, v, d);\n            if (lane >= d)\n"
            "                v += u;",
            "            if (lane >= d)\n                v += __shfl_up_sync(0xffffffff, v, d);",
            "__shfl_up_sync",
        ),
        edit("end-of-lane-30", "off by one", VALUE, "if (lane == 31)", "if (lane == 30)"),
        edit(
            "tail-returns-early",
            "divergent barrier",
            ("divergent-barrier", "barrier-deadlock", "shuffle-from-inactive", "sync-mask", *UNINITIALISED),
            "float v = i < width ? x[blockIdx.x * width + i] : 0.f;",
            "if (i >= width) break; float v = x[blockIdx.x * width + i];",
            "__shfl_up_sync",
            "__syncthreads()",
            "base += ends[k]",
        ),
    ),
)

LOOK_BACK = Original(
    "look-back-maximum",
    reference("x | torch.cummax(x, dim=0).values", "count = 9001", "torch.randn(count)"),
    """
#define NONE 0
#define PART 1
#define WHOLE 2

__device__ float later(float a, float b) { return fmaxf(a, b); }

__global__ void running_max(const float* x, float* y, int n, int* ticket, volatile int* state, volatile float* part,
                            volatile float* whole) {
    __shared__ int mine;
    __shared__ float tops[8];
    __shared__ float before;
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    if (t == 0)
        mine = atomicAdd(ticket, 1);
    __syncthreads();
    int tile = mine, at = tile * 256 + t;
    float v = at < n ? x[at] : -INFINITY;
    for (int d = 1; d < 32; d <<= 1) {
        float u = __shfl_up_sync(~0u, v, d);
        if (lane >= d)
            v = later(v, u);
    }
    if (lane == 31)
        tops[warp] = v;
    __syncthreads();
    for (int k = 0; k < warp; ++k)
        v = later(v, tops[k]);
    if (t == 255) {
        float running = -INFINITY;
        if (tile > 0) {
            part[tile] = v;
            __threadfence();
            state[tile] = PART;
            for (int look = tile - 1; look >= 0; --look) {
                int seen;
                do {
                    seen = state[look];
                } while (seen == NONE);
                __threadfence();
                running = later(running, seen == WHOLE ? whole[look] : part[look]);
                if (seen == WHOLE)
                    break;
            }
        }
        whole[tile] = later(running, v);
        __threadfence();
        state[tile] = WHOLE;
        before = running;
    }
    __syncthreads();
    if (at < n)
        y[at] = later(v, before);
}
""",
    """
n = x.numel()
tiles = (n + 255) // 256
counts = torch.zeros(tiles + 1, dtype=torch.int32, device=x.device)
sums = torch.empty(2, tiles, device=x.device)
y = torch.empty_like(x)
module.running_max[tiles, 256](x, y, n, counts, counts[1:], sums[0], sums[1])
return y
""",
    "x",
    (
        edit(
            "stops-at-the-first-part",
            "wrong value",
            VALUE,
            "                if (seen == WHOLE)\n                    break;\n",
            "                break;\n",
        ),
        edit(
            "no-fence-before-whole",
            "dropped fence",
            FENCE,
            "later(running, v);\n        __threadfence();\n",
            "later(running, v);\n",
            "whole[tile] =",
            "state[tile] = WHOLE",
            "running = later(running, seen",
        ),
        edit(
            "flag-before-the-part",
            "dropped fence",
            (*FENCE, *UNINITIALISED),
            "            part[tile] = v;\n            __threadfence();\n            state[tile] = PART;\n",
            "            state[tile] = PART;\n            part[tile] = v;\n            __threadfence();\n",
            "part[tile] = v",
            "state[tile] = PART",
            "running = later(running, seen",
        ),
        edit(
            "whole-read-for-part",
            "uninitialised",
            UNINITIALISED,
            "seen == WHOLE ? whole[look] : part[look]",
            "whole[look]",
            "running = later(running",
        ),
        edit(
            "tile-without-barrier",
            "dropped barrier",
            (*RACE, *UNINITIALISED),
            "atomicAdd(ticket, 1);\n    __syncthreads();\n",
            "atomicAdd(ticket, 1);\n",
            "mine = atomicAdd",
            "int tile = mine",
        ),
    ),
)

THREE_KERNELS = Original(
    "scan-in-three-kernels",
    reference("x | torch.cumsum(x, dim=0)", "count = 20000", "torch.randint(0, 9, (count,), dtype=torch.int32)"),
    """
__global__ void scan_tiles(const int* x, int* y, int* sums, int n) {
    __shared__ int s[2][256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t, from = 0;
    s[0][t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int d = 1; d < 256; d <<= 1) {
        s[from ^ 1][t] = s[from][t] + (t >= d ? s[from][t - d] : 0);
        from ^= 1;
        __syncthreads();
    }
    if (i < n)
        y[i] = s[from][t];
    if (t == 255)
        sums[blockIdx.x] = s[from][t];
}

__global__ void scan_sums(int* sums, int tiles) {
    int lane = threadIdx.x, carry = 0;
    for (int begin = 0; begin < tiles; begin += 32) {
        int i = begin + lane, own = i < tiles ? sums[i] : 0, v = own;
        for (int d = 1; d < 32; d <<= 1) {
            int u = __shfl_up_sync(~0u, v, d);
            v += lane >= d ? u : 0;
        }
        if (i < tiles)
            sums[i] = carry + v - own;
        carry += __shfl_sync(~0u, v, 31);
    }
}

__global__ void add_sums(int* y, long long* out, const int* sums, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        out[i] = y[i] + sums[blockIdx.x];
}
""",
    """
n = x.numel()
tiles = (n + 255) // 256
part = torch.empty_like(x)
sums = torch.empty(tiles, dtype=torch.int32, device=x.device)
y = torch.empty(n, dtype=torch.int64, device=x.device)
module.scan_tiles[tiles, 256](x, part, sums, n)
module.scan_sums[1, 32](sums, tiles)
module.add_sums[tiles, 256](part, y, sums, n)
return y
""",
    "x",
    (
        edit(
            "one-buffer",
            "race",
            RACE,
            "        from ^= 1;\n",
            "        s[from][t] = s[from ^ 1][t];\n",
            "s[from ^ 1][t] =",
            "s[from][t] =",
        ),
        edit(
            "sums-of-the-last-element",
            "uninitialised",
            UNINITIALISED,
            "    if (t == 255)\n",
            "    if (i == n - 1)\n",
            "own = i < tiles ? sums[i]",
            "out[i] = y[i] + sums",
        ),
        edit("carry-of-the-first-lane", "wrong lane", VALUE, "__shfl_sync(~0u, v, 31)", "__shfl_sync(~0u, v, 0)"),
        edit(
            "sums-of-32-tiles-only",
            "wrong value",
            VALUE,
            "scan_sums[1, 32](sums, tiles)",
            "scan_sums[1, 32](sums, min(tiles, 16))",
        ),
        edit(
            "no-guard-in-add",
            "missing guard",
            BOUNDS,
            "    if (i < n)\n        out[i]",
            "    if (i <= n)\n        out[i]",
            "out[i] = y[i]",
        ),
    ),
)

RUN_LENGTHS = Original(
    "compaction",
    reference("x | torch.cat([x[x > 0], torch.zeros(int((x <= 0).sum()))])", "count = 3333", "torch.randn(count)"),
    """
__global__ void count_positive(const float* x, int* counts, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
    int k = __syncthreads_count(i < n && x[i] > 0.f);
    if (threadIdx.x == 0)
        counts[blockIdx.x] = k;
}

__global__ void compact(const float* x, const int* counts, float* y, int n) {
    __shared__ int offset;
    __shared__ int ranks[4];
    int t = threadIdx.x, lane = t % 32, warp = t / 32, i = blockIdx.x * 128 + t;
    if (t == 0) {
        int sum = 0;
        for (int b = 0; b < blockIdx.x; ++b)
            sum += counts[b];
        offset = sum;
    }
    bool keep = i < n && x[i] > 0.f;
    unsigned votes = __ballot_sync(0xffffffffu, keep);
    if (lane == 0)
        ranks[warp] = __popc(votes);
    __syncthreads();
    int place = offset + __popc(votes & ((1u << lane) - 1));
    for (int k = 0; k < warp; ++k)
        place += ranks[k];
    if (keep)
        y[place] = x[i];
}
""",
    """
n = x.numel()
blocks = (n + 127) // 128
counts = torch.empty(blocks, dtype=torch.int32, device=x.device)
y = torch.zeros(n, device=x.device)
module.count_positive[blocks, 128](x, counts, n)
module.compact[blocks, 128](x, counts, y, n)
return y
""",
    "x",
    (
        edit(
            "ranks-before-barrier",
            "dropped barrier",
            RACE,
            "__popc(votes);\n    __syncthreads();\n",
            "__popc(votes);\n",
            "ranks[warp] =",
            "place += ranks[k]",
            "offset = sum",
            "int place = offset",
        ),
        edit("lanes-up-to-and-with", "wrong mask", VALUE, "votes & ((1u << lane) - 1)", "votes & ((2u << lane) - 1)"),
        edit(
            "output-not-cleared",
            "uninitialised",
            VALUE,
            "y = torch.zeros(n, device=x.device)",
            "y = torch.empty(n, device=x.device)",
        ),
        edit(
            "counts-of-the-last-thread",
            "uninitialised",
            UNINITIALISED,
            "    if (threadIdx.x == 0)\n        counts",
            "    if (i == n - 1)\n        counts",
            "sum += counts[b]",
        ),
        edit(
            "order-by-atomic",
            "race",
            VALUE,
            "__popc(votes & ((1u << lane) - 1));",
            "__popc(votes & ~((1u << lane) | ((1u << lane) - 1)));",
        ),
    ),
)

CASES = (TREE_SCAN, CARRY_SCAN, LOOK_BACK, THREE_KERNELS, RUN_LENGTHS)
