"""Families of products: matrices in several layouts and tilings, tensor cores, convolutions, pools, stencils."""

from __future__ import annotations

from .family import Edit, small

_AB = "m, k, n = 45, 70, 38"

NAIVE = small(
    "matmul-naive", _AB, "torch.randn(@a@), torch.randn(@b@)", "a, b", "return @torch@",
    r"""
extern "C" __global__ void k(const float* a, const float* b, float* c, int M, int K, int N) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= M || col >= N) return;
    float sum = 0.f;
    for (int p = 0; p < K; ++p) sum += a[@ia@] * b[@ib@];
    c[row * N + col] = sum;
}""",
    "M, K, N = @sizes@\nc = torch.empty(M, N, device=a.device)\n"
    "module.k[((N + 15) // 16, (M + 7) // 8), (16, 8)](a, b, c, M, K, N)\nreturn c",
    {
        "nn": {"a": "m, k", "b": "k, n", "torch": "a @ b", "ia": "row * K + p", "ib": "p * N + col",
               "sizes": "a.shape[0], a.shape[1], b.shape[1]"},
        "nt": {"a": "m, k", "b": "n, k", "torch": "a @ b.T", "ia": "row * K + p", "ib": "col * K + p",
               "sizes": "a.shape[0], a.shape[1], b.shape[0]"},
        "tn": {"a": "k, m", "b": "k, n", "torch": "a.T @ b", "ia": "p * M + row", "ib": "p * N + col",
               "sizes": "a.shape[1], a.shape[0], b.shape[1]"},
        "tt": {"a": "k, m", "b": "n, k", "torch": "a.T @ b.T", "ia": "p * M + row", "ib": "col * K + p",
               "sizes": "a.shape[1], a.shape[0], b.shape[0]"},
    },
    (
        Edit("stride", "b[p * N + col]", "b[p * K + col]"),
        Edit("stride", "a[p * M + row]", "a[p * K + row]", ("tn",)),
        Edit("index", "b[col * K + p]", "b[p * K + col]", ("nt",)),
        Edit("off-by-one", "p < K", "p < K - 1", ("tt", "nn")),
        Edit("guard", "row >= M || col >= N", "row >= M", ("nt",)),
        Edit("index", "c[row * N + col]", "c[col * M + row]", ("tn",)),
        Edit("tail", "(M + 7) // 8", "M // 8", ("tt",)),
        Edit("init", "float sum = 0.f", "float sum", ("nn",)),
    ),
)  # fmt: skip

TILED = small(
    "matmul-tiled", _AB, "torch.randn(m, k), torch.randn(k, n)", "a, b", "return a @ b",
    r"""
#define T @tile@
extern "C" __global__ void k(const float* a, const float* b, float* c, int M, int K, int N) {
    __shared__ float sa[T][T], sb[T][T];
    int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * T + x, row = blockIdx.y * T + y;
    float sum = 0.f;
    for (int p = 0; p < K; p += T) {
        sa[y][x] = row < M && p + x < K ? a[row * K + p + x] : 0.f;
        sb[y][x] = p + y < K && col < N ? b[(p + y) * N + col] : 0.f;
        __syncthreads();  // loaded
        for (int i = 0; i < T; ++i) sum = fmaf(sa[y][i], sb[i][x], sum);
        __syncthreads();  // used
    }
    if (row < M && col < N) c[row * N + col] = sum;
}""",
    "c = torch.empty(a.shape[0], b.shape[1], device=a.device)\n"
    "module.k[((b.shape[1] + @tile@ - 1) // @tile@, (a.shape[0] + @tile@ - 1) // @tile@), (@tile@, @tile@)]"
    "(a, b, c, a.shape[0], a.shape[1], b.shape[1])\nreturn c",
    {"8": {"tile": "8"}, "16": {"tile": "16"}, "32": {"tile": "32"}},
    (
        Edit("barrier", "__syncthreads();  // loaded", "", ("8", "16", "32")),
        Edit("barrier", "__syncthreads();  // used", "", ("8", "16", "32")),
        Edit("guard", "row < M && p + x < K ?", "row < M ?", ("16",)),
        Edit("guard", "p + y < K && col < N ? b[(p + y) * N + col] : 0.f", "b[(p + y) * N + col]", ("32",)),
        Edit("index", "sa[y][i], sb[i][x]", "sa[i][x], sb[y][i]", ("16",)),
        Edit("stride", "(p + y) * N", "(p + y) * K", ("8",)),
        Edit("tail", "p < K; p += T", "p + T <= K; p += T", ("16",)),
        Edit("off-by-one", "i < T; ++i", "i < T - 1; ++i", ("32",)),
        Edit("operation", "fmaf(sa[y][i], sb[i][x], sum)", "sa[y][i] + sb[i][x] + sum", ("32",)),
    ),
)  # fmt: skip

REGISTERS = small(
    "matmul-registers", "m, k, n = 50, 40, 70", "torch.randn(m, k), torch.randn(k, n)", "a, b", "return @torch@",
    r"""
// A block of 64 threads makes 32 x 32 elements; each thread R x C of them.
#define R @r@
#define C @c@
extern "C" __global__ void k(const float* a, const float* b, float* c, int M, int K, int N) {
    __shared__ float sa[8][32], sb[8][32];
    int t = threadIdx.x, row = blockIdx.y * 32, col = blockIdx.x * 32;
    int r0 = t / (32 / C) * R, c0 = t % (32 / C) * C;
    float sum[R][C] = {};
    for (int p = 0; p < K; p += 8) {
        for (int i = t; i < 256; i += 64) {
            int q = i / 32, e = i % 32;
            sa[q][e] = row + e < M && p + q < K ? a[(row + e) * K + p + q] : 0.f;
            sb[q][e] = col + e < N && p + q < K ? b[(p + q) * N + col + e] : 0.f;
        }
        __syncthreads();  // loaded
        for (int q = 0; q < 8; ++q)
            for (int i = 0; i < R; ++i)
                for (int j = 0; j < C; ++j) sum[i][j] += sa[q][r0 + i] * sb[q][c0 + j];
        __syncthreads();  // used
    }
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j)
            if (row + r0 + i < M && col + c0 + j < N) c[(row + r0 + i) * N + col + c0 + j] = @last@;
}""",
    "M, K, N = a.shape[0], a.shape[1], b.shape[1]\nc = torch.empty(M, N, device=a.device)\n"
    "module.k[((N + 31) // 32, (M + 31) // 32), 64](a, b, c, M, K, N)\nreturn c",
    {
        "4x4": {"r": "4", "c": "4", "torch": "a @ b", "last": "sum[i][j]"},
        "2x8": {"r": "2", "c": "8", "torch": "torch.relu(a @ b)", "last": "fmaxf(sum[i][j], 0.f)"},
        "8x2": {"r": "8", "c": "2", "torch": "2.0 * (a @ b)", "last": "2.f * sum[i][j]"},
    },
    (
        Edit("barrier", "__syncthreads();  // loaded", "", ("4x4", "2x8")),
        Edit("barrier", "__syncthreads();  // used", "", ("8x2",)),
        Edit("width", "i = t; i < 256", "i = t; i < 192", ("2x8",)),
        Edit("index", "sa[q][r0 + i] * sb[q][c0 + j]", "sa[q][r0 + j] * sb[q][c0 + i]", ("4x4",)),
        Edit("guard", "row + r0 + i < M && col + c0 + j < N", "row + r0 + i < M", ("8x2",)),
        Edit("stride", "t % (32 / C) * C", "t % (32 / R) * C", ("8x2",)),
        Edit("off-by-one", "q < 8; ++q", "q < 7; ++q", ("4x4",)),
    ),
)  # fmt: skip

BATCHED = small(
    "matmul-batched", "batch, m, k, n = 5, 17, 23, 19", "torch.randn(batch, m, k@a@), torch.randn(batch, k, n@a@)", "a, b",
    "return torch.bmm(a, b)",
    r"""
template <typename T>
__global__ void k(const T* a, const T* b, T* c, int M, int K, int N) {
    a += blockIdx.y * M * K;
    b += blockIdx.y * K * N;
    c += blockIdx.y * M * N;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < M * N; i += gridDim.x * blockDim.x) {
        int row = i / N, col = i % N;
        T sum = 0;
        for (int p = 0; p < K; ++p) sum += a[row * K + p] * b[p * N + col];
        c[i] = sum;
    }
}""",
    'B, M, K = a.shape\nN = b.shape[2]\nc = torch.empty(B, M, N, dtype=a.dtype, device=a.device)\n'
    'module.get("k<@type@>")[(2, B), 64](a, b, c, M, K, N)\nreturn c',
    {"float": {"a": "", "type": "float"}, "double": {"a": ", dtype=torch.float64", "type": "double"}},
    (
        Edit("stride", "blockIdx.y * K * N", "blockIdx.y * M * N"),
        Edit("index", "a += blockIdx.y * M * K", "a += blockIdx.x * M * K", ("double",)),
        Edit("operation", "i / N, col = i % N", "i % M, col = i / M", ("float",)),
        Edit("conversion", "T sum = 0", "int sum = 0", ("double", "float")),
        Edit("stride", "i += gridDim.x * blockDim.x", "i += gridDim.x * gridDim.y * blockDim.x", ("float",)),
    ),
)  # fmt: skip

WMMA = small(
    "matmul-wmma", "m, k, n = 64, 48, 32", "torch.randn(m, k).to(torch.@dtype@), torch.randn(k, n).to(torch.@dtype@)", "a, b",
    "return (a.float() @ b.float())",
    r"""
#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using namespace nvcuda;
extern "C" __global__ void k(const @type@* a, const @type@* b, float* c, int M, int K, int N) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, @type@, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, @type@, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.f);
    int row = blockIdx.y * 16, col = blockIdx.x * 16;
    for (int p = 0; p < K; p += 16) {
        wmma::load_matrix_sync(fa, a + row * K + p, K);
        wmma::load_matrix_sync(fb, b + p * N + col, N);
        wmma::mma_sync(sum, fa, fb, sum);
    }
    wmma::store_matrix_sync(c + row * N + col, sum, N, wmma::mem_row_major);
}""",
    "M, K, N = a.shape[0], a.shape[1], b.shape[1]\n"
    "pad = lambda t, r, c: nn.functional.pad(t, (0, c - t.shape[1], 0, r - t.shape[0]))\n"
    "up = lambda v: (v + 15) // 16 * 16\n"
    "P, Q, S = up(M), up(K), up(N)\n"
    "a, b = pad(a, P, Q).contiguous(), pad(b, Q, S).contiguous()\n"
    "c = torch.empty(P, S, device=a.device)\nmodule.k[(S // 16, P // 16), 32](a, b, c, P, Q, S)\nreturn c[:M, :N]",
    {"half": {"dtype": "float16", "type": "half"}, "bf16": {"dtype": "bfloat16", "type": "__nv_bfloat16"}},
    (
        Edit("stride", "a + row * K + p, K)", "a + row * K + p, N)"),
        Edit("index", "b + p * N + col", "b + p * N", ("half", "bf16")),
        Edit("init", "wmma::fill_fragment(sum, 0.f)", "wmma::fill_fragment(sum, 1.f)", ("bf16",)),
        Edit("operation", "wmma::mem_row_major", "wmma::mem_col_major", ("half",)),
        Edit("operation", "wmma::matrix_b, 16, 16, 16, half, wmma::row_major", "wmma::matrix_b, 16, 16, 16, half, wmma::col_major", ("half",)),
        Edit("off-by-one", "p < K; p += 16", "p < K - 16; p += 16", ("bf16",)),
        Edit("race", "c + row * N + col, sum", "c + row * N, sum", ("bf16",)),
    ),
)  # fmt: skip

VECTOR = small(
    "matvec", "rows, cols = 60, 131", "torch.randn(rows, cols), torch.randn(cols)", "a, v", "return @torch@",
    r"""
extern "C" __global__ void k(const float* a, const float* v, float* y, int rows, int cols) {
    int lane = threadIdx.x % 32, row = blockIdx.x * 4 + threadIdx.x / 32;
    if (row >= rows) return;
    float sum = 0.f;
    for (int j = lane; j < cols; j += 32) sum += @cuda@;
    for (int o = 16; o; o /= 2) sum += __shfl_down_sync(~0u, sum, o);
    if (lane == 0) y[row] = sum;
}""",
    "rows, cols = a.shape\ny = torch.empty(rows, device=a.device)\nmodule.k[(rows + 3) // 4, 128](a, v, y, rows, cols)\nreturn y",
    {
        "product": {"torch": "a @ v", "cuda": "a[row * cols + j] * v[j]"},
        "distance": {"torch": "((a - v) ** 2).sum(1)", "cuda": "(a[row * cols + j] - v[j]) * (a[row * cols + j] - v[j])"},
        "l1": {"torch": "(a - v).abs().sum(1)", "cuda": "fabsf(a[row * cols + j] - v[j])"},
    },
    (
        Edit("width", "o = 16", "o = 8"),
        Edit("index", "threadIdx.x / 32", "threadIdx.x % 4", ("l1",)),
        Edit("operation", "fabsf(a[row * cols + j] - v[j])", "a[row * cols + j] - v[j]", ("l1",)),
        Edit("tail", "(rows + 3) // 4", "rows // 5", ("distance",)),
        Edit("stride", "j += 32", "j += 128", ("product",)),
        Edit("guard", "if (lane == 0) y[row]", "if (lane == 1) y[row]", ("distance",)),
        Edit("off-by-one", "j = lane; j < cols", "j = lane; j <= cols", ("product",)),
    ),
)  # fmt: skip

CONV2D = small(
    "conv2d", "batch, cin, cout, h, w = 2, 3, 5, 12, 13",
    "torch.randn(batch, cin, h, w), torch.randn(cout, cin, 3, 3), torch.randn(cout)", "x, w, b",
    "return F.conv2d(x, w, b, stride=@stride@, padding=@pad@, dilation=@dilation@)",
    r"""
#define STRIDE @stride@
#define PAD @pad@
#define DILATION @dilation@
extern "C" __global__ void k(const float* x, const float* w, const float* b, float* y, int cin, int cout, int H, int W,
                             int P, int Q, int total) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    int q = i % Q, p = i / Q % P, o = i / (Q * P) % cout, n = i / (Q * P * cout);
    float sum = b[o];
    for (int c = 0; c < cin; ++c)
        for (int r = 0; r < 3; ++r)
            for (int s = 0; s < 3; ++s) {
                int u = p * STRIDE - PAD + r * DILATION, v = q * STRIDE - PAD + s * DILATION;
                if (u >= 0 && u < H && v >= 0 && v < W)
                    sum += x[((n * cin + c) * H + u) * W + v] * w[((o * cin + c) * 3 + r) * 3 + s];
            }
    y[i] = sum;
}""",
    "N, C, H, W = x.shape\nO = w.shape[0]\nspan = lambda v: (v + 2 * @pad@ - 2 * @dilation@ - 1) // @stride@ + 1\n"
    "y = torch.empty(N, O, span(H), span(W), device=x.device)\n"
    "module.k[(y.numel() + 127) // 128, 128](x, w, b, y, C, O, H, W, span(H), span(W), y.numel())\nreturn y",
    {
        "same": {"stride": "1", "pad": "1", "dilation": "1"},
        "strided": {"stride": "2", "pad": "1", "dilation": "1"},
        "dilated": {"stride": "1", "pad": "2", "dilation": "2"},
        "valid": {"stride": "1", "pad": "0", "dilation": "1"},
    },
    (
        Edit("guard", "u >= 0 && u < H && v >= 0 && v < W", "u < H && v < W"),
        Edit("guard", "v >= 0 && v < W", "v >= 0 && v <= W", ("same",)),
        Edit("off-by-one", "r = 0; r < 3", "r = 1; r < 3", ("strided", "valid")),
        Edit("init", "float sum = b[o]", "float sum = 0.f", ("dilated",)),
        Edit("operation", "s * DILATION", "s", ("dilated",)),
        Edit("stride", "q * STRIDE - PAD", "q - PAD", ("strided",)),
        Edit("index", "(o * cin + c) * 3 + r) * 3 + s", "(o * cin + c) * 3 + s) * 3 + r", ("valid",)),
        Edit("index", "i / (Q * P) % cout", "i / (Q * P) / cout", ("same",)),
    ),
)  # fmt: skip

POOL = small(
    "pool", "planes, h, w = 6, 15, 17", "torch.randn(planes, h, w)", "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, float* y, int H, int W, int P, int Q) {
    int q = blockIdx.x * blockDim.x + threadIdx.x, p = blockIdx.y, plane = blockIdx.z;
    if (q >= Q) return;
    float v = @init@;
    for (int r = 0; r < @size@; ++r)
        for (int s = 0; s < @size@; ++s) {
            float e = x[(plane * H + p * @step@ + r) * W + q * @step@ + s];
            v = @join@;
        }
    y[(plane * P + p) * Q + q] = @last@;
}""",
    "planes, H, W = x.shape\nP, Q = (H - @size@) // @step@ + 1, (W - @size@) // @step@ + 1\n"
    "y = torch.empty(planes, P, Q, device=x.device)\nmodule.k[((Q + 31) // 32, P, planes), 32](x, y, H, W, P, Q)\nreturn y",
    {
        "max2": {"torch": "F.max_pool2d(x, 2)", "init": "-INFINITY", "size": "2", "step": "2", "join": "fmaxf(v, e)", "last": "v"},
        "avg3": {"torch": "F.avg_pool2d(x, 3, 2)", "init": "0.f", "size": "3", "step": "2", "join": "v + e", "last": "v / 9.f"},
        "max3": {"torch": "F.max_pool2d(x, 3, 1)", "init": "-INFINITY", "size": "3", "step": "1", "join": "fmaxf(v, e)", "last": "v"},
    },
    (
        Edit("init", "float v = -INFINITY", "float v = 1.f", ("max2", "max3")),
        Edit("operation", "v / 9.f", "v / 6.f", ("avg3",)),
        Edit("stride", "q * 2 + s", "q + s", ("avg3",)),
        Edit("off-by-one", "s = 0; s < 3", "s = 0; s < 2", ("max3",)),
        Edit("stride", "(plane * H + p * 2 + r) * W", "(plane * W + p * 2 + r) * H", ("max2",)),
        Edit("index", "plane * P + p", "plane * Q + p", ("avg3",)),
    ),
)  # fmt: skip

STENCIL = small(
    "stencil", "rows, cols = 26, 140", "torch.randn(rows, cols)", "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, float* y, int cols) {
    __shared__ float s[64 + 2];
    int t = threadIdx.x, j = blockIdx.x * 64 + t;
    const float* row = x + blockIdx.y * cols;
    s[t + 1] = j < cols ? row[j] : 0.f;
    if (t == 0) s[0] = j > 0 ? row[j - 1] : 0.f;
    if (t == 63) s[65] = j + 1 < cols ? row[j + 1] : 0.f;
    __syncthreads();
    if (j < cols) y[blockIdx.y * cols + j] = @cuda@;
}""",
    "y = torch.empty_like(x)\nmodule.k[((x.shape[1] + 63) // 64, x.shape[0]), 64](x, y, x.shape[1])\nreturn y",
    {
        "second": {"torch": "F.pad(x, (1, 1))[:, 2:] + F.pad(x, (1, 1))[:, :-2] - 2 * x", "cuda": "s[t] - 2.f * s[t + 1] + s[t + 2]"},
        "mean": {"torch": "(F.pad(x, (1, 1))[:, 2:] + F.pad(x, (1, 1))[:, :-2] + x) / 3", "cuda": "(s[t] + s[t + 1] + s[t + 2]) / 3.f"},
        "left": {"torch": "x - F.pad(x, (1, 1))[:, :-2]", "cuda": "s[t + 1] - s[t]"},
    },
    (
        Edit("barrier", "__syncthreads();", "", ("second", "left")),
        Edit("guard", "j > 0 ? row[j - 1] : 0.f", "row[j - 1]"),
        Edit("off-by-one", "if (t == 63) s[65]", "if (t == 62) s[65]", ("mean",)),
        Edit("width", "s[64 + 2]", "s[64]", ("mean",)),
        Edit("init", "if (t == 0) s[0] = j > 0 ? row[j - 1] : 0.f;", "", ("left", "mean")),
        Edit("index", "s[t] - 2.f * s[t + 1]", "s[t + 1] - 2.f * s[t]", ("second",)),
    ),
)  # fmt: skip

FAMILIES = (NAIVE, TILED, REGISTERS, BATCHED, WMMA, VECTOR, CONV2D, POOL, STENCIL)
