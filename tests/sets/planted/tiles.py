"""Kernels that work on tiles: matrix products, a transpose, a stencil."""

from __future__ import annotations

from sets.planted.case import BOUNDS, RACE, UNINITIALISED, Mutant, Original, reference

MATMUL = Original(
    "tiled-matmul",
    reference(
        "a, b | a @ b",
        "rows = 40\ninner = 50\ncolumns = 36",
        "torch.randn(rows, inner), torch.randn(inner, columns)",
    ),
    """
#define T 16
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int k, int n) {
    __shared__ float left[T][T];
    __shared__ float right[T][T];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * T + ty, column = blockIdx.x * T + tx;
    float sum = 0.f;
    for (int begin = 0; begin < k; begin += T) {
        left[ty][tx] = row < m && begin + tx < k ? a[row * k + begin + tx] : 0.f;
        right[ty][tx] = begin + ty < k && column < n ? b[(begin + ty) * n + column] : 0.f;
        __syncthreads();
        for (int i = 0; i < T; ++i)
            sum += left[ty][i] * right[i][tx];
        __syncthreads();
    }
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
        Mutant(
            "tile-overwritten-too-early",
            "dropped barrier",
            "right[i][tx];\n        __syncthreads();\n",
            "right[i][tx];\n",
            RACE,
            ("left[ty][tx] =", "right[ty][tx] =", "sum += left"),
            hidden=True,
        ),
        Mutant(
            "tile-read-too-early",
            "dropped barrier",
            "column] : 0.f;\n        __syncthreads();\n",
            "column] : 0.f;\n",
            RACE,
            ("left[ty][tx] =", "right[ty][tx] =", "sum += left"),
        ),
        Mutant(
            "no-guard-for-rows",
            "missing guard",
            "row < m && begin + tx < k ? a[",
            "begin + tx < k ? a[",
            BOUNDS,
            ("left[ty][tx] =",),
            hidden=True,
        ),
        Mutant(
            "store-without-guard",
            "missing guard",
            "    if (row < m && column < n)\n        c[",
            "    if (column < n)\n        c[",
            BOUNDS,
            ("c[row * n + column] = sum",),
        ),
        Mutant(
            "one-product-too-many",
            "off by one",
            "for (int i = 0; i < T; ++i)",
            "for (int i = 0; i <= T; ++i)",
            BOUNDS,
            ("sum += left",),
        ),
    ),
)

DOUBLE = Original(
    "double-buffered-matmul",
    reference(
        "a, b | a @ b",
        "rows = 64\ninner = 96\ncolumns = 64",
        "torch.randn(rows, inner), torch.randn(inner, columns)",
    ),
    """
#define BM 32
#define BK 8
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int k, int n) {
    __shared__ float left[2][BK][BM + 1];
    __shared__ float right[2][BK][BM];
    int t = threadIdx.x, tx = t % 16, ty = t / 16;
    int top = blockIdx.y * BM, side = blockIdx.x * BM;
    float sum[4][2] = {};
    auto fetch = [&](int buffer, int begin) {
        for (int e = t; e < BM * BK; e += 128) {
            int r = e / BK, q = e % BK;
            left[buffer][q][r] = top + r < m && begin + q < k ? a[(top + r) * k + begin + q] : 0.f;
        }
        for (int e = t; e < BM * BK; e += 128) {
            int q = e / BM, r = e % BM;
            right[buffer][q][r] = begin + q < k && side + r < n ? b[(begin + q) * n + side + r] : 0.f;
        }
    };
    fetch(0, 0);
    __syncthreads();
    int steps = (k + BK - 1) / BK;
    for (int s = 0; s < steps; ++s) {
        if (s + 1 < steps) fetch((s + 1) % 2, (s + 1) * BK);
        for (int q = 0; q < BK; ++q)
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 2; ++j)
                    sum[i][j] += left[s % 2][q][ty * 4 + i] * right[s % 2][q][tx * 2 + j];
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j) {
            int row = top + ty * 4 + i, column = side + tx * 2 + j;
            if (row < m && column < n)
                c[row * n + column] = sum[i][j];
        }
}
""",
    """
m, k, n = a.shape[0], a.shape[1], b.shape[1]
c = torch.empty(m, n, device=a.device)
module.matmul[((n + 31) // 32, (m + 31) // 32), (128,)](a, b, c, m, k, n)
return c
""",
    "a, b",
    (
        Mutant(
            "one-buffer",
            "race",
            "if (s + 1 < steps) fetch((s + 1) % 2, (s + 1) * BK);",
            "if (s + 1 < steps) fetch(s % 2, (s + 1) * BK);",
            (*RACE, *UNINITIALISED),
            ("left[buffer][q][r] =", "right[buffer][q][r] =", "sum[i][j] += left"),
        ),
        Mutant(
            "no-barrier-between-steps",
            "dropped barrier",
            "right[s % 2][q][tx * 2 + j];\n        __syncthreads();\n",
            "right[s % 2][q][tx * 2 + j];\n",
            RACE,
            ("left[buffer][q][r] =", "right[buffer][q][r] =", "sum[i][j] += left"),
            hidden=True,
        ),
        Mutant(
            "third-buffer",
            "overflow of an array",
            "if (s + 1 < steps) fetch((s + 1) % 2, (s + 1) * BK);",
            "if (s + 1 < steps) fetch(s + 1, (s + 1) * BK);",
            BOUNDS,
            ("left[buffer][q][r] =", "right[buffer][q][r] ="),
        ),
        Mutant(
            "first-tile-unsynchronised",
            "dropped barrier",
            "    fetch(0, 0);\n    __syncthreads();\n",
            "    fetch(0, 0);\n",
            RACE,
            ("left[buffer][q][r] =", "right[buffer][q][r] =", "sum[i][j] += left"),
            hidden=True,
        ),
        Mutant(
            "tile-half-fetched",
            "uninitialised",
            "        for (int e = t; e < BM * BK; e += 128) {\n            int q = e / BM, r = e % BM;",
            "        for (int e = t; e < BM * BK - 128; e += 128) {\n            int q = e / BM, r = e % BM;",
            UNINITIALISED,
            ("sum[i][j] += left",),
        ),
    ),
)

TRANSPOSE = Original(
    "transpose",
    reference("x | x.t().contiguous()", "rows = 70\ncolumns = 45", "torch.randn(rows, columns)"),
    """
#define T 32
extern "C" __global__ void transpose(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[T][T + 1];
    int tx = threadIdx.x, ty = threadIdx.y;
    for (int k = ty; k < T; k += 8) {
        int r = blockIdx.y * T + k, c = blockIdx.x * T + tx;
        if (r < rows && c < columns) tile[k][tx] = x[r * columns + c];
    }
    __syncthreads();
    for (int k = ty; k < T; k += 8) {
        int r = blockIdx.x * T + k, c = blockIdx.y * T + tx;
        if (r < columns && c < rows) y[r * rows + c] = tile[tx][k];
    }
}
""",
    """
r, c = x.shape
y = torch.empty(c, r, device=x.device)
module.transpose[((c + 31) // 32, (r + 31) // 32), (32, 8)](x, y, r, c)
return y
""",
    "x",
    (
        Mutant(
            "no-barrier",
            "dropped barrier",
            "    __syncthreads();\n    for (int k = ty; k < T; k += 8) {\n        int r = blockIdx.x",
            "    for (int k = ty; k < T; k += 8) {\n        int r = blockIdx.x",
            RACE,
            ("tile[k][tx] =", "= tile[tx][k]"),
        ),
        Mutant(
            "wrong-leading-dimension",
            "wrong stride",
            "y[r * rows + c] = tile[tx][k];",
            "y[r * columns + c] = tile[tx][k];",
            RACE,
            ("= tile[tx][k]",),
        ),
        Mutant(
            "tile-filled-for-a-guard-too-small",
            "uninitialised",
            "if (r < rows && c < columns) tile[k][tx] =",
            "if (r < rows - 1 && c < columns) tile[k][tx] =",
            UNINITIALISED,
            ("= tile[tx][k]",),
        ),
        Mutant(
            "tile-padded-in-the-wrong-place",
            "overflow of an array",
            "float tile[T][T + 1];",
            "float tile[T - 1][T + 1];",
            BOUNDS,
            ("tile[k][tx] =", "= tile[tx][k]"),
        ),
        Mutant(
            "rows-compared-with-columns",
            "missing guard",
            "if (r < columns && c < rows) y[",
            "if (r < rows && c < rows) y[",
            (*BOUNDS, *RACE, *UNINITIALISED),
            ("= tile[tx][k]",),
        ),
    ),
)

STENCIL = Original(
    "stencil",
    reference(
        "x | (torch.nn.functional.pad(x, (2, 2)).unfold(0, 5, 1) * torch.tensor([1.0, 2.0, 3.0, 2.0, 1.0])).sum(1)",
        "size = 1000",
        "torch.randn(size)",
    ),
    """
#define THREADS 128
#define HALO 2
__constant__ float weight[5] = {1.f, 2.f, 3.f, 2.f, 1.f};
extern "C" __global__ void stencil(const float* x, float* y, int n) {
    __shared__ float span[THREADS + 2 * HALO];
    int t = threadIdx.x, i = blockIdx.x * THREADS + t;
    span[t + HALO] = i < n ? x[i] : 0.f;
    if (t < HALO) {
        span[t] = i >= HALO ? x[i - HALO] : 0.f;
        span[t + THREADS + HALO] = i + THREADS < n ? x[i + THREADS] : 0.f;
    }
    __syncthreads();
    if (i >= n) return;
    float sum = 0.f;
    for (int k = 0; k < 5; ++k)
        sum += weight[k] * span[t + k];
    y[i] = sum;
}
""",
    """
y = torch.empty_like(x)
module.stencil[((x.numel() + 127) // 128,), (128,)](x, y, x.numel())
return y
""",
    "x",
    (
        Mutant(
            "no-barrier",
            "dropped barrier",
            "    __syncthreads();\n    if (i >= n) return;\n",
            "    if (i >= n) return;\n",
            RACE,
            ("span[t + HALO] =", "span[t] =", "span[t + THREADS + HALO] =", "sum += weight"),
            hidden=True,
        ),
        Mutant(
            "halo-on-one-side",
            "uninitialised",
            "        span[t + THREADS + HALO] = i + THREADS < n ? x[i + THREADS] : 0.f;\n",
            "",
            UNINITIALISED,
            ("sum += weight",),
        ),
        Mutant(
            "halo-not-guarded-at-the-start",
            "missing guard",
            "span[t] = i >= HALO ? x[i - HALO] : 0.f;",
            "span[t] = x[i - HALO];",
            BOUNDS,
            ("span[t] = x[",),
            hidden=True,
        ),
        Mutant(
            "span-one-halo-short",
            "overflow of an array",
            "float span[THREADS + 2 * HALO];",
            "float span[THREADS + HALO];",
            BOUNDS,
            ("span[t + THREADS + HALO] =", "sum += weight"),
        ),
        Mutant(
            "six-weights",
            "off by one",
            "for (int k = 0; k < 5; ++k)",
            "for (int k = 0; k <= 5; ++k)",
            BOUNDS,
            ("sum += weight",),
        ),
    ),
)
CASES = (MATMUL, DOUBLE, TRANSPOSE, STENCIL)
