"""Conformance cases: matrix products, convolutions, pooling, attention, stencils, and changes of layout."""

from __future__ import annotations

import numpy as np
from cases_rows import softmax
from conformance import Run, Strided, bf16_bits, bf16_values, case, ceil_div, normal, unwritten

Runs = list[Run]


@case()
def matmul_tiled(rng: np.random.Generator) -> Runs:
    runs = []
    for m, k, n in [(33, 47, 50), (16, 16, 16), (1, 100, 3)]:
        a, b = normal(rng, m, k), normal(rng, k, n)
        c = a.astype(np.float64) @ b
        grid = (ceil_div(n, 16), ceil_div(m, 16))
        runs.append(Run("matmul", grid, (16, 16), [a, b, unwritten(m, n), m, k, n], {2: c}))
    return runs


@case()
def matmul_register_blocked(rng: np.random.Generator) -> Runs:
    a, b = normal(rng, 128, 32), normal(rng, 32, 64)
    args = [a, b, unwritten(128, 64), 128, 64, 32]
    return [Run("sgemm", (1, 2), 256, args, {2: a.astype(np.float64) @ b})]


@case()
def matmul_wmma(rng: np.random.Generator) -> Runs:
    a, b = rng.standard_normal((32, 48)).astype(np.float16), rng.standard_normal((48, 32)).astype(np.float16)
    c = 0.5 * (a.astype(np.float64) @ b.astype(np.float64))
    return [Run("wmma_matmul", 2, 64, [a, b, unwritten(32, 32), 32, 32, 48], {2: c})]


@case()
def mma_inline(rng: np.random.Generator) -> Runs:
    a, b = bf16_bits(normal(rng, 16, 16)), bf16_bits(normal(rng, 8, 16))
    c = bf16_values(a).astype(np.float64) @ bf16_values(b).astype(np.float64).T
    return [Run("mma_bf16", 1, 32, [a, b, unwritten(16, 8)], {2: c})]


@case()
def batched_matvec(rng: np.random.Generator) -> Runs:
    a, x = normal(rng, 3, 7, 50), normal(rng, 3, 50)
    y = np.einsum("bmk,bk->bm", a.astype(np.float64), x)
    return [Run("matvec", 3, 256, [a, x, unwritten(3, 7), 7, 50, 21], {2: y})]


def conv2d(
    x: np.ndarray, w: np.ndarray, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1
) -> np.ndarray:
    n, _, h, width = x.shape
    out_channels, per_group, kh, kw = w.shape
    oh = (h + 2 * padding - dilation * (kh - 1) - 1) // stride + 1
    ow = (width + 2 * padding - dilation * (kw - 1) - 1) // stride + 1
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    y = np.zeros((n, out_channels, oh, ow))
    for a in range(kh):
        for b in range(kw):
            rows, cols = a * dilation, b * dilation
            seen = padded[:, :, rows : rows + stride * oh : stride, cols : cols + stride * ow : stride]
            grouped = seen[:, :, :oh, :ow].reshape(n, groups, per_group, oh, ow)
            weights = w[:, :, a, b].reshape(groups, out_channels // groups, per_group)
            y += np.einsum("ngchw,goc->ngohw", grouped, weights).reshape(y.shape)
    return y


@case()
def conv2d_naive(rng: np.random.Generator) -> Runs:
    runs = []
    for stride, padding, dilation, groups in [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1)]:
        x, w, b = normal(rng, 2, 4, 9, 11), normal(rng, 6, 4 // groups, 3, 3), normal(rng, 6)
        y = conv2d(x, w, stride, padding, dilation, groups)
        sizes = [2, 4, 9, 11, 6, 3, 3, stride, padding, dilation, groups, *y.shape[2:]]
        grid = ceil_div(y.size, 128)
        runs.append(Run("conv2d", grid, 128, [x, w, b, unwritten(*y.shape), *sizes], {3: y + b[:, None, None]}))
        runs.append(Run("conv2d", grid, 128, [x, w, 0, unwritten(*y.shape), *sizes], {3: y}))
    return runs


@case()
def conv_transpose1d(rng: np.random.Generator) -> Runs:
    x, w, stride, pad = normal(rng, 2, 3, 10), normal(rng, 3, 4, 5), 2, 1
    full = np.zeros((2, 4, 9 * stride + 5))
    for i in range(10):
        full[:, :, i * stride : i * stride + 5] += np.einsum("bc,cok->bok", x[:, :, i].astype(np.float64), w)
    y = full[:, :, pad:-pad]
    args = [x, w, unwritten(*y.shape), 2, 3, 4, 10, y.shape[2], 5, stride, pad]
    return [Run("conv_transpose1d", (1, 4, 2), 32, args, {2: y})]


@case()
def depthwise_constant(rng: np.random.Generator) -> Runs:
    x, w = normal(rng, 2, 3, 20, 17), np.zeros((64, 3, 3), np.float32)
    w[:3] = normal(rng, 3, 3, 3)
    y = conv2d(x, w[:3, None], padding=1, groups=3)
    args = [x, unwritten(2, 3, 20, 17), 3, 20, 17]
    symbols = {"filter_weights": w}
    return [Run("depthwise3x3", (2, 2, 6), (16, 16), args, {1: y}, symbols=symbols)]


@case()
def max_pool2d_indices(rng: np.random.Generator) -> Runs:
    x, k, s, p = normal(rng, 4, 11, 13), 3, 2, 1
    padded = np.pad(x, ((0, 0), (p, p), (p, p)), constant_values=-np.inf)
    oh, ow = (11 + 2 * p - k) // s + 1, (13 + 2 * p - k) // s + 1
    y, where = np.empty((4, oh, ow), np.float32), np.empty((4, oh, ow), np.int64)
    for c, i, j in np.ndindex(4, oh, ow):
        window = padded[c, i * s : i * s + k, j * s : j * s + k]
        a, b = divmod(int(window.argmax()), window.shape[1])
        y[c, i, j] = window[a, b]
        where[c, i, j] = (i * s - p + a) * 13 + j * s - p + b
    args = [x, unwritten(4, oh, ow), unwritten(4, oh, ow, dtype=np.int64), 4, 11, 13, oh, ow, k, s, p]
    return [Run("max_pool2d", 2, 64, args, {1: y, 2: where}, error=0)]


@case()
def avg_pool1d(rng: np.random.Generator) -> Runs:
    x = normal(rng, 6, 40)
    y = np.stack([x[:, o * 3 : o * 3 + 5].mean(1, dtype=np.float64) for o in range(12)], 1)
    return [Run("avg_pool1d", (1, 6), 32, [x, unwritten(6, 12), 40, 12, 5, 3], {1: y})]


@case()
def attention(rng: np.random.Generator) -> Runs:
    runs = []
    q, k, v = normal(rng, 3, 2, 37, 16)
    for causal in (0, 1):
        scores = np.einsum("htd,hsd->hts", q.astype(np.float64), k) / 4
        if causal:
            scores = np.where(np.tri(37, dtype=bool), scores, -np.inf)
        y = softmax(scores) @ v
        args = [q, k, v, unwritten(2, 37, 16), 37, 0.25, causal]
        runs.append(Run("attention", (3, 2), 16, args, {3: y}, error=2e-6))
    return runs


@case()
def triangular_loops(rng: np.random.Generator) -> Runs:
    a, b = np.tril(normal(rng, 45, 45)), np.tril(normal(rng, 45, 45))
    c = np.tril(a.astype(np.float64) @ b)
    return [Run("lower_triangular_matmul", (3, 3), (16, 16), [a, b, unwritten(45, 45), 45], {2: c})]


@case()
def stencil_3d(rng: np.random.Generator) -> Runs:
    u = normal(rng, 9, 10, 11)
    e = np.pad(u.astype(np.float64), 1, mode="edge")
    around = e[:-2, 1:-1, 1:-1] + e[2:, 1:-1, 1:-1] + e[1:-1, :-2, 1:-1] + e[1:-1, 2:, 1:-1]
    v = (around + e[1:-1, 1:-1, :-2] + e[1:-1, 1:-1, 2:] - 6 * u) / 0.25
    size = np.array([11, 10, 9], np.uint32).tobytes()
    return [Run("laplace", (2, 3, 3), (8, 4, 4), [u, unwritten(9, 10, 11), size, 0.5], {1: v})]


@case()
def dot_int8(rng: np.random.Generator) -> Runs:
    a, b = rng.integers(-128, 128, (2, 5, 300)).astype(np.int8)
    dot = (a.astype(np.int64) * b).sum(1).astype(np.int32)
    args = [a.view(np.int32), b.view(np.int32), unwritten(5, dtype=np.int32), 0.01, unwritten(5), 75]
    return [Run("int8_dot", 5, 32, args, {2: dot, 4: dot * np.float64(0.01)})]


@case()
def async_pipeline(rng: np.random.Generator) -> Runs:
    x = normal(rng, 7, 32, 4)
    y = x.sum((0, 2), dtype=np.float64)[::-1]
    return [Run("pipelined_sum", 1, 32, [x, unwritten(32), 7], {1: y})]


@case()
def transpose_tile(rng: np.random.Generator) -> Runs:
    x = normal(rng, 50, 71)
    return [Run("transpose", (3, 2), (32, 8), [x, unwritten(71, 50), 71, 50], {1: x.T}, error=0)]


@case()
def permute_strided(rng: np.random.Generator) -> Runs:
    x = rng.standard_normal((3, 4, 5, 6))
    y = np.ascontiguousarray(x.transpose(2, 0, 3, 1))
    strides = [6, 120, 1, 30]
    layout = np.array([4, *y.shape, *strides], np.int64).tobytes()
    return [Run("gather_strided", 3, 128, [x, unwritten(*y.shape, dtype=np.float64), layout, 360], {1: y}, error=0)]


@case()
def packed_accessor(rng: np.random.Generator) -> Runs:
    x = normal(rng, 20, 30)
    y = x[::2, ::3] + x[0, ::3]
    return [Run("outer_sum", (2, 2), (8, 8), [Strided(x, (2, 3)), Strided(unwritten(10, 10), (1, 1))], {1: y}, error=0)]


@case()
def matrix_class(rng: np.random.Generator) -> Runs:
    runs = []
    for kind, dtype, error in [("float", np.float32, 1e-6), ("double", np.float64, 1e-15)]:
        a, b = rng.standard_normal((2, 40, 6)).astype(dtype)
        x, y = a.reshape(40, 2, 3), b.reshape(40, 3, 2)
        z = (x @ y @ x).reshape(40, 6)
        args = [a, b, unwritten(40, 6, dtype=dtype), 40]
        runs.append(Run(f"kernels::chain<{kind}>", 2, 32, args, {2: z}, error=error))
    return runs
