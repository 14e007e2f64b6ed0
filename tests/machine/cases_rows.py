"""Conformance cases: reductions, softmax, normalisation, scans and sorting."""

from __future__ import annotations

import numpy as np
from conformance import Run, bf16_bits, bf16_values, case, normal, unwritten

Runs = list[Run]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@case()
def sum_shared_atomic(rng: np.random.Generator) -> Runs:
    runs = []
    for n in (5000, 100):
        x = rng.random(n).astype(np.float32)
        total = np.array([x.astype(np.float64).sum()])
        runs.append(Run("sum_kernel", 4, 256, [x, np.zeros(1, np.float32), n], {1: total}))
    return runs


@case()
def row_sum_shuffle(rng: np.random.Generator) -> Runs:
    runs = []
    for cols, block in [(1000, 256), (17, 64), (333, 1024)]:
        x = normal(rng, 5, cols)
        runs.append(Run("row_sum", 5, block, [x, unwritten(5), cols], {1: x.sum(1, dtype=np.float64)}))
    return runs


@case()
def mean_middle_dim(rng: np.random.Generator) -> Runs:
    x = normal(rng, 3, 19, 23)
    return [Run("mean_dim1", 2, 64, [x, unwritten(3, 23), 3, 19, 23], {1: x.mean(1, dtype=np.float64)})]


@case()
def argmax_rows(rng: np.random.Generator) -> Runs:
    x = rng.integers(0, 12, (6, 211)).astype(np.float32)  # ties in every row
    best = x.argmax(1).astype(np.int64)
    return [Run("argmax_kernel", 6, 64, [x, unwritten(6, dtype=np.int64), 211], {1: best}, shared=64 * 8)]


@case()
def max_atomic_cas(rng: np.random.Generator) -> Runs:
    x = normal(rng, 700)
    best, mins = np.float32([-np.inf]), np.full(4, 2**32 - 1, np.uint32)
    expected = {1: np.float32([x.max()]), 2: np.uint32([17, 18, 19, 20])}
    return [Run("global_max", 6, 128, [x, best, mins, 700], expected, error=0)]


@case()
def softmax_online(rng: np.random.Generator) -> Runs:
    runs = []
    for cols, scale in [(1000, 1), (60, 1), (257, 50)]:
        x = normal(rng, 4, cols) * scale
        runs.append(Run("softmax_online", 4, 128, [x, unwritten(4, cols), cols], {1: softmax(x)}, error=2e-6))
    return runs


@case()
def logsumexp_double(rng: np.random.Generator) -> Runs:
    x = rng.standard_normal((10, 77)) * 30
    y = np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1)
    return [Run("logsumexp", 3, (32, 4), [x, unwritten(10, dtype=np.float64), 10, 77], {1: y}, error=1e-15)]


@case()
def layer_norm(rng: np.random.Generator) -> Runs:
    x, gamma, beta = normal(rng, 6, 301), normal(rng, 301), normal(rng, 301)
    d = x.astype(np.float64)
    unit = (d - d.mean(1, keepdims=True)) / np.sqrt(d.var(1, keepdims=True) + 1e-5)
    return [
        Run("layer_norm<128>", 6, 128, [x, gamma, beta, unwritten(6, 301), 301, 1e-5], {3: unit * gamma + beta}),
        Run("layer_norm<256>", 6, 256, [x, gamma, 0, unwritten(6, 301), 301, 1e-5], {3: unit * gamma}),
    ]


@case()
def rms_norm_vec(rng: np.random.Generator) -> Runs:
    x, w = normal(rng, 5, 200), normal(rng, 200)
    d = x.astype(np.float64)
    y = d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-6) * w
    return [Run("rms_norm", 5, 32, [x, w, unwritten(5, 200), 50, 1e-6], {2: y})]


@case()
def group_norm_welford(rng: np.random.Generator) -> Runs:
    x, w, b = normal(rng, 2, 6, 5, 7) + 3, normal(rng, 6), normal(rng, 6)
    d = x.astype(np.float64).reshape(2, 3, -1)
    unit = (d - d.mean(2, keepdims=True)) / np.sqrt(d.var(2, keepdims=True) + 1e-5)
    y = unit.reshape(2, 6, 5, 7) * w[:, None, None] + b[:, None, None]
    args = [x, w, b, unwritten(2, 6, 5, 7), 6, 35, 3, 1e-5]
    return [Run("group_norm", (3, 2), 64, args, {3: y}, shared=64 * 12, error=5e-6)]


@case()
def batch_norm_inference(rng: np.random.Generator) -> Runs:
    x = normal(rng, 2, 3, 11, 13)
    mean, var, gamma, beta = normal(rng, 3), rng.random(3).astype(np.float32) + 0.1, normal(rng, 3), normal(rng, 3)
    m, v, g, b = (p.astype(np.float64)[:, None, None] for p in (mean, var, gamma, beta))
    y = g * (x - m) / np.sqrt(v + 1e-5) + b
    args = [x, mean, var, gamma, beta, unwritten(2, 3, 11, 13), 2, 3, 11, 13, 1e-5]
    return [Run("batch_norm_inference", (2, 3, 6), (8, 4), args, {5: y})]


@case()
def cosine_similarity(rng: np.random.Generator) -> Runs:
    a, b = normal(rng, 4, 150).astype(np.float64), normal(rng, 4, 150).astype(np.float64)
    y = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    args = [a.astype(np.float32), b.astype(np.float32), unwritten(4), 150]
    return [Run("cosine", 4, 64, args, {2: y}, error=5e-6)]


@case()
def bf16_norm(rng: np.random.Generator) -> Runs:
    bits = bf16_bits(normal(rng, 3, 70))
    x = bf16_values(bits).astype(np.float64)
    y = bf16_bits((x / np.sqrt((x * x).sum(1, keepdims=True))).astype(np.float32))
    halves = rng.standard_normal((3, 70)).astype(np.float16)
    h = halves.astype(np.float64)
    unit = h / np.sqrt((h * h).sum(1, keepdims=True))
    half_args = [halves, unwritten(3, 70, dtype=np.float16), 70]
    return [
        Run("l2_normalize<c10::BFloat16>", 3, 32, [bits, unwritten(3, 70, dtype=np.uint16), 70], {1: y}),
        Run("l2_normalize<at::Half>", 3, 32, half_args, {1: unit}, error=1e-3),
    ]


@case()
def scan_blelloch(rng: np.random.Generator) -> Runs:
    x = rng.integers(-50, 50, (3, 256)).astype(np.int32)
    y = np.cumsum(x, 1, dtype=np.int32) - x
    return [Run("blelloch", 3, 128, [x, unwritten(3, 256, dtype=np.int32), 256], {1: y}, shared=1024)]


@case()
def cumsum_warp(rng: np.random.Generator) -> Runs:
    runs = []
    for cols in (1000, 256, 3):
        x = normal(rng, 3, cols)
        y = np.cumsum(x, 1, dtype=np.float64)
        runs.append(Run("cumsum", 3, 256, [x, unwritten(3, cols), cols], {1: y}, error=2e-6))
    return runs


@case()
def reverse_cumprod(rng: np.random.Generator) -> Runs:
    x = rng.random((5, 33)) + 0.5
    y = np.cumprod(x[:, ::-1], 1)[:, ::-1]
    exclusive = np.concatenate([y[:, 1:], np.ones((5, 1))], 1)
    out = unwritten(5, 33, dtype=np.float64)
    return [
        Run("reverse_cumprod", 1, 32, [x, out, 5, 33, 0], {1: y}, error=1e-14),
        Run("reverse_cumprod", 1, 32, [x, out, 5, 33, 1], {1: exclusive}, error=1e-14),
    ]


@case()
def dynamic_shared_carved(rng: np.random.Generator) -> Runs:
    x = rng.integers(0, 40, (3, 90)).astype(np.float32)
    ranks = x.argsort(1, kind="stable").astype(np.int32)
    args = [x, unwritten(3, 90), unwritten(3, 90, dtype=np.int32), 90]
    return [Run("rank_sort", 3, 64, args, {1: np.sort(x, 1), 2: ranks}, shared=720, error=0)]


@case()
def bitonic_sort(rng: np.random.Generator) -> Runs:
    x = normal(rng, 3, 128)
    return [Run("bitonic_sort", 3, 128, [x, 128], {0: np.sort(x, 1)}, shared=512, error=0)]


@case()
def cub_block(rng: np.random.Generator) -> Runs:
    x = normal(rng, 300)
    padded = np.zeros(384)
    padded[:300] = x
    blocks = padded.reshape(3, 128)
    running = np.cumsum(blocks, 1).reshape(-1)[:300]
    args = [x, unwritten(3), unwritten(300), 300]
    return [Run("block_statistics<128>", 3, 128, args, {1: blocks.sum(1), 2: running}, error=2e-6)]


@case()
def warp_synchronous(rng: np.random.Generator) -> Runs:
    x = normal(rng, 700)
    padded = np.zeros(768)
    padded[:700] = x
    sums = padded.reshape(3, 256).sum(1)
    return [Run("reduce_volatile", 3, 128, [x, unwritten(3), 700], {1: sums}, error=2e-6)]


@case()
def last_block(rng: np.random.Generator) -> Runs:
    x = normal(rng, 1000)
    total = np.array([(x.astype(np.float64) ** 2).sum()])
    run = Run("sum_of_squares", 5, 64, [x, unwritten(5), unwritten(1), 1000], {2: total})
    return [run, run]  # the second launch finds the counter as the first left it


@case()
def huber_reduction(rng: np.random.Generator) -> Runs:
    p, t = normal(rng, 900), normal(rng, 900)
    d = np.abs((p - t).astype(np.float64))
    loss = np.where(d < 0.5, 0.5 * d * d / 0.5, d - 0.25).sum()
    args = [p, t, np.zeros(1), 900, 0.5]
    return [Run("huber", 3, 128, args, {2: np.array([loss])})]


@case()
def cross_entropy(rng: np.random.Generator) -> Runs:
    z, target = normal(rng, 50, 11) * 4, rng.integers(0, 11, 50)
    target[7] = -100
    loss = -np.log(softmax(z))[np.arange(50), target % 11]
    loss[7] = 0
    return [Run("cross_entropy", 2, 32, [z, target, unwritten(50), 50, 11, -100], {2: loss}, error=2e-6)]
