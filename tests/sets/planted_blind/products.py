"""Matrix products and convolutions in tiles: asynchronous copies, vectors, tensor cores, halos."""

from __future__ import annotations

from sets.planted.case import BOUNDS, RACE, UNINITIALISED, Original, reference
from sets.planted_blind.edits import ASYNC, VALUE, edit

PIPELINE = Original(
    "pipelined-matmul",
    reference(
        "a, b | a @ b",
        "rows = 35\ninner = 52\ncolumns = 41",
        "torch.randn(rows, inner), torch.randn(inner, columns)",
    ),
    """
#include <cuda_pipeline.h>
#define T 16
#define STAGES 3

__device__ void load(float (*left)[T], float (*right)[T], const float* a, const float* b, int m, int k, int n, int k0) {
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * T + ty, column = blockIdx.x * T + tx;
    bool in_a = row < m && k0 + tx < k, in_b = k0 + ty < k && column < n;
    __pipeline_memcpy_async(&left[ty][tx], in_a ? &a[row * k + k0 + tx] : a, 4, in_a ? 0 : 4);
    __pipeline_memcpy_async(&right[ty][tx], in_b ? &b[(k0 + ty) * n + column] : b, 4, in_b ? 0 : 4);
    __pipeline_commit();
}

__global__ void matmul(const float* a, const float* b, float* c, int m, int k, int n) {
    __shared__ float left[STAGES][T][T], right[STAGES][T][T];
    int tx = threadIdx.x, ty = threadIdx.y, steps = (k + T - 1) / T;
    float sum = 0.f;
    for (int s = 0; s < STAGES - 1; ++s)
        load(left[s], right[s], a, b, m, k, n, s * T);
    for (int s = 0; s < steps; ++s) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        int next = s + STAGES - 1;
        load(left[next % STAGES], right[next % STAGES], a, b, m, k, n, next * T);
        for (int i = 0; i < T; ++i)
            sum += left[s % STAGES][ty][i] * right[s % STAGES][i][tx];
    }
    __pipeline_wait_prior(0);
    int row = blockIdx.y * T + ty, column = blockIdx.x * T + tx;
    if (row < m && column < n)
        c[row * n + column] = sum;
}
""",
    """
m, k, n = a.shape[0], a.shape[1], b.shape[1]
c = torch.empty(m, n, device=a.device)
module.matmul[((n + 15) // 16, (m + 15) // 16), (16, 16)](a, b, c, m, k, n)
return c
""",
    "a, b",
    (
        edit(
            "waits-for-one-group-too-few",
            "wrong wait",
            ASYNC,
            "__pipeline_wait_prior(STAGES - 2);",
            "__pipeline_wait_prior(STAGES - 1);",
            "sum += left[",
            "__pipeline_memcpy_async(",
        ),
        edit(
            "no-barrier-in-loop",
            "dropped barrier",
            ASYNC,
            "(STAGES - 2);\n        __syncthreads();\n",
            "(STAGES - 2);\n",
            "sum += left[",
            "__pipeline_memcpy_async(",
        ),
        edit(
            "loads-into-the-stage-in-use",
            "race",
            ASYNC,
            "int next = s + STAGES - 1;",
            "int next = s + STAGES;",
            "sum += left[",
            "__pipeline_memcpy_async(",
        ),
        edit(
            "no-commit",
            "wrong wait",
            ASYNC,
            "    __pipeline_commit();\n",
            "",
            "sum += left[",
            "__pipeline_memcpy_async(",
        ),
        edit(
            "columns-not-guarded",
            "missing guard",
            BOUNDS,
            "in_b = k0 + ty < k && column < n",
            "in_b = k0 + ty < k",
            "__pipeline_memcpy_async(&right",
        ),
    ),
)

VECTORS = Original(
    "vector-matmul",
    reference(
        "a, b | a @ b.t()",
        "rows = 40\ninner = 64\ncolumns = 24",
        "torch.randn(rows, inner), torch.randn(columns, inner)",
    ),
    """
#define BM 32
#define BN 32
#define BK 16
#define PAD 4
__global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[BK][BM + PAD];
    __shared__ float bs[BK][BN + PAD];
    int t = threadIdx.x, row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
    int r = t / 8 * 4, q = t % 8 * 4;
    int line = t / 2, part = t % 2 * 8;
    float acc[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int v = 0; v < 8; v += 4) {
            int kk = part + v;
            bool tail = k0 + kk < k;
            float4 p = row0 + line < m && tail ? *(const float4*)&a[(row0 + line) * k + k0 + kk] : float4{0, 0, 0, 0};
            float4 w = column0 + line < n && tail ? *(const float4*)&b[(column0 + line) * k + k0 + kk] : float4{};
            as[kk][line] = p.x, as[kk + 1][line] = p.y, as[kk + 2][line] = p.z, as[kk + 3][line] = p.w;
            bs[kk][line] = w.x, bs[kk + 1][line] = w.y, bs[kk + 2][line] = w.z, bs[kk + 3][line] = w.w;
        }
        __syncthreads();
        for (int i = 0; i < BK; ++i) {
            float4 x = *(float4*)&as[i][r], y = *(float4*)&bs[i][q];
            float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
            for (int u = 0; u < 4; ++u)
                for (int v = 0; v < 4; ++v)
                    acc[u][v] = fmaf(xs[u], ys[v], acc[u][v]);
        }
        __syncthreads();
    }
    for (int u = 0; u < 4; ++u)
        for (int v = 0; v < 4; ++v)
            if (row0 + r + u < m && column0 + q + v < n)
                c[(row0 + r + u) * n + column0 + q + v] = acc[u][v];
}
""",
    """
m, k, n = a.shape[0], a.shape[1], b.shape[0]
if k % 4:
    a, b = torch.nn.functional.pad(a, (0, 4 - k % 4)), torch.nn.functional.pad(b, (0, 4 - k % 4))
a, b = a.contiguous(), b.contiguous()
c = torch.empty(m, n, device=a.device)
module.product[((n + 31) // 32, (m + 31) // 32), 64](a, b, c, m, n, a.shape[1])
return c
""",
    "a, b",
    (
        edit(
            "odd-padding",
            "misalignment",
            ("misaligned-access",),
            "#define PAD 4",
            "#define PAD 1",
            "*(float4*)&as",
        ),
        edit(
            "rows-not-guarded",
            "missing guard",
            BOUNDS,
            "row0 + line < m && tail ? *",
            "tail ? *",
            "float4 p =",
        ),
        edit(
            "overwrites-the-tile",
            "dropped barrier",
            RACE,
            "acc[u][v]);\n        }\n        __syncthreads();\n",
            "acc[u][v]);\n        }\n",
            "as[kk][line] =",
            "bs[kk][line] =",
            "float4 x =",
        ),
        edit(
            "columns-take-the-rows-limit",
            "missing guard",
            BOUNDS,
            "column0 + q + v < n)",
            "column0 + q + v < m)",
            "c[(row0 + r + u) * n",
        ),
        edit(
            "half-the-lines-loaded",
            "uninitialised",
            UNINITIALISED,
            "for (int v = 0; v < 8; v += 4) {",
            "for (int v = 0; v < 4; v += 4) {",
            "float4 x =",
        ),
    ),
)

TENSOR_CORES = Original(
    "tensor-core-matmul",
    reference(
        "a, b | a @ b",
        "rows = 48\ninner = 32\ncolumns = 32",
        "torch.randn(rows, inner).half(), torch.randn(inner, columns).half()",
    ),
    """
#include <mma.h>
using namespace nvcuda;
#define LD 24

__global__ void product(const half* a, const half* b, half* c, int m, int n, int k) {
    __shared__ half as[16][LD];
    __shared__ half bs[16][LD];
    __shared__ float out[16][16];
    int lane = threadIdx.x, row0 = blockIdx.y * 16, column0 = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.f);
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int e = lane; e < 256; e += 32) {
            int r = e / 16, q = e % 16;
            as[r][q] = row0 + r < m && k0 + q < k ? a[(row0 + r) * k + k0 + q] : __float2half(0.f);
            bs[r][q] = k0 + r < k && column0 + q < n ? b[(k0 + r) * n + column0 + q] : __float2half(0.f);
        }
        __syncwarp();
        wmma::load_matrix_sync(fa, &as[0][0], LD);
        wmma::load_matrix_sync(fb, &bs[0][0], LD);
        wmma::mma_sync(fc, fa, fb, fc);
        __syncwarp();
    }
    wmma::store_matrix_sync(&out[0][0], fc, 16, wmma::mem_row_major);
    __syncwarp();
    for (int e = lane; e < 256; e += 32)
        if (row0 + e / 16 < m && column0 + e % 16 < n)
            c[(row0 + e / 16) * n + column0 + e % 16] = __float2half(out[e / 16][e % 16]);
}
""",
    """
m, k, n = a.shape[0], a.shape[1], b.shape[1]
c = torch.empty(m, n, device=a.device, dtype=torch.float16)
module.product[((n + 15) // 16, (m + 15) // 16), 32](a, b, c, m, n, k)
return c
""",
    "a, b",
    (
        edit(
            "loads-with-the-unpadded-stride",
            "wrong stride",
            UNINITIALISED,
            "load_matrix_sync(fb, &bs[0][0], LD)",
            "load_matrix_sync(fb, &bs[0][0], 16)",
            "load_matrix_sync(fb",
        ),
        edit(
            "column-major-factor",
            "wrong layout",
            VALUE,
            "wmma::matrix_b, 16, 16, 16, half, wmma::row_major",
            "wmma::matrix_b, 16, 16, 16, half, wmma::col_major",
        ),
        edit("sum-not-cleared", "uninitialised", VALUE, "    wmma::fill_fragment(fc, 0.f);\n", ""),
        edit(
            "sum-in-halves",
            "wrong type",
            VALUE,
            "__float2half(out[e / 16][e % 16]);",
            "__float2half(__int2float_rn(__float2int_rz(out[e / 16][e % 16] * 16.f)) / 16.f);",
        ),
        edit(
            "tail-of-rows",
            "missing guard",
            BOUNDS,
            "if (row0 + e / 16 < m && column0 + e % 16 < n)",
            "if (column0 + e % 16 < n)",
            "c[(row0 + e / 16) * n",
        ),
    ),
)

CONVOLUTION = Original(
    "convolution-rows",
    reference(
        "x, w | torch.nn.functional.conv1d(x.unsqueeze(1), w.view(1, 1, 9), padding=4).squeeze(1)",
        "rows = 5\nwidth = 301",
        "torch.randn(rows, width), torch.randn(9)",
    ),
    """
#define TILE 128
__constant__ int radius_limit = 4;

__global__ void convolve(const float* x, const float* w, float* y, int width) {
    __shared__ float span[TILE + 8];
    __shared__ float taps[9];
    const float* row = x + blockIdx.y * width;
    int first = blockIdx.x * TILE;
    for (int i = threadIdx.x; i < TILE + 8; i += TILE) {
        int at = first + i - radius_limit;
        span[i] = at >= 0 && at < width ? row[at] : 0.f;
    }
    if (threadIdx.x < 9)
        taps[threadIdx.x] = w[threadIdx.x];
    __syncthreads();
    int place = first + threadIdx.x;
    if (place >= width)
        return;
    float sum = 0.f;
    for (int k = 0; k < 9; ++k)
        sum += taps[k] * span[threadIdx.x + k];
    y[blockIdx.y * width + place] = sum;
}
""",
    """
y = torch.empty_like(x)
module.convolve[((x.shape[1] + 127) // 128, x.shape[0]), 128](x, w, y, x.shape[1])
return y
""",
    "x, w",
    (
        edit("flipped-taps", "wrong value", VALUE, "taps[k] * span", "taps[8 - k] * span"),
        edit(
            "right-halo-short",
            "off by one",
            UNINITIALISED,
            "i < TILE + 8; i += TILE",
            "i < TILE + 7; i += TILE",
            "sum += taps[k] * span",
        ),
        edit(
            "span-without-halo",
            "overflow of an array",
            BOUNDS,
            "__shared__ float span[TILE + 8];",
            "__shared__ float span[TILE];",
            "span[i] =",
            "sum += taps",
        ),
        edit(
            "no-guard-left",
            "missing guard",
            (*BOUNDS, *VALUE),
            "at >= 0 && at < width ? row[at]",
            "at < width ? row[at]",
            "span[i] =",
        ),
        edit(
            "taps-behind-the-barrier",
            "race",
            (*RACE, *UNINITIALISED),
            "        taps[threadIdx.x] = w[threadIdx.x];\n    __syncthreads();\n",
            "        taps[threadIdx.x] = 0.f;\n    __syncthreads();\n    if (threadIdx.x < 9)\n"
            "        taps[threadIdx.x] = w[threadIdx.x];\n",
            "taps[threadIdx.x] =",
            "sum += taps",
        ),
    ),
)

POOLING = Original(
    "average-pooling",
    reference(
        "x | torch.nn.functional.avg_pool2d(x, 3, 2, 1)",
        "n = 2\nc = 3\nh = 21\nw = 19",
        "torch.randn(n, c, h, w)",
    ),
    """
__global__ void pool(const float* x, float* y, int planes, int h, int w, int oh, int ow) {
    extern __shared__ float plane[];
    const float* from = x + (size_t)blockIdx.x * h * w;
    for (int i = threadIdx.x; i < h * w; i += blockDim.x)
        plane[i] = from[i];
    __syncthreads();
    for (int o = threadIdx.x; o < oh * ow; o += blockDim.x) {
        int r0 = o / ow * 2 - 1, q0 = o % ow * 2 - 1;
        float sum = 0.f;
        for (int r = max(r0, 0); r < min(r0 + 3, h); ++r)
            for (int q = max(q0, 0); q < min(q0 + 3, w); ++q)
                sum += plane[r * w + q];
        y[(size_t)blockIdx.x * oh * ow + o] = sum / 9.f;
    }
}
""",
    """
n, c, h, w = x.shape
oh, ow = (h - 1) // 2 + 1, (w - 1) // 2 + 1
y = torch.empty(n, c, oh, ow, device=x.device)
module.pool[n * c, 128, h * w * 4](x, y, n * c, h, w, oh, ow)
return y
""",
    "x",
    (
        edit(
            "too-little-shared", "overflow of an array", BOUNDS, "128, h * w * 4]", "128, h * w]", "plane[i] = from[i]"
        ),
        edit(
            "no-barrier",
            "dropped barrier",
            RACE,
            "plane[i] = from[i];\n    __syncthreads();\n",
            "plane[i] = from[i];\n",
            "plane[i] =",
            "sum += plane",
        ),
        edit(
            "bottom-not-clamped",
            "missing guard",
            (*BOUNDS, *UNINITIALISED),
            "r < min(r0 + 3, h)",
            "r < r0 + 3",
            "sum += plane",
        ),
        edit("top-not-clamped", "missing guard", BOUNDS, "int r = max(r0, 0)", "int r = r0", "sum += plane"),
        edit(
            "mean-of-the-window-inside",
            "wrong value",
            VALUE,
            "sum / 9.f",
            "sum / ((min(r0 + 3, h) - max(r0, 0)) * 3.f)",
        ),
    ),
)

CASES = (PIPELINE, VECTORS, TENSOR_CORES, CONVOLUTION, POOLING)
