"""The device headers `kernelwright/halves.cuh` and `kernelwright/attention.cuh`: layouts, tails, special values."""

from __future__ import annotations

from itertools import product as pairs

import numpy as np
import pytest
from machine_launch import launch, program

from kernelwright import device
from kernelwright.solutions.families.attention import tiling
from kernelwright.solutions.families.half_products import SHAPES, HalfShape

PRODUCT = """
#include <kernelwright/halves.cuh>
extern "C" __global__ void __launch_bounds__(384, 1) product(
    const __half* a, const __half* b, float* y, int M, int N, int K, int am, int ak, int bn, int bk) {
    auto store = [&](long long n) { return [=](long long m, float sum) { y[m * N + n] = sum; }; };
    kw::HalfTile<__half, @tile>::run({a, am, ak}, {b, bn, bk}, M, N, K, store);
}
"""
ATTENTION = """
#include <kernelwright/attention.cuh>
extern "C" __global__ void __launch_bounds__(384, 1) attend(
    const __half* q, const __half* k, const __half* v, const float* bias, float* y, int M, int N, float scale) {
    auto store = [&](long long m, int d, float x) { y[m * @D + d] = x; };
    kw::Mask mask([&](long long m, long long n, float score) { return score + bias[m * N + n]; });
    kw::Attention<__half, @D, @keys, @stages, @causal>::run(
        {q, @D, 1}, {k, @D, 1}, {v, @D, 1}, blockIdx.x, M, N, scale, @mask, store);
}
"""
LAYOUTS = list(pairs((True, False), repeat=2))
"""Whether neighbouring k of the left and of the right operand are adjacent."""


def halves(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def product(a: np.ndarray, b: np.ndarray, shape: HalfShape, along: tuple[bool, bool], pitch: int = 0) -> np.ndarray:
    """Returns the product of [M, K] and [K, N], `along` k or across it; a line ends in `pitch` unused elements."""
    (m, k), n = a.shape, b.shape[1]
    tile = [*(str(x).lower() for x in along), shape.groups, shape.columns, shape.stages]
    loaded = program(device.inlined(PRODUCT.replace("@tile", ", ".join(map(str, tile)))))
    lines = [a if along[0] else a.T, b.T if along[1] else b]
    stored = [np.ascontiguousarray(np.pad(x, ((0, 0), (0, pitch)), constant_values=np.nan)) for x in lines]
    steps = [(x.shape[1], 1) if by_k else (1, x.shape[1]) for x, by_k in zip(stored, along, strict=True)]
    y = np.full((m, n), -7.0, np.float32)
    grid = -(-m // shape.rows) * -(-n // shape.columns)
    report = launch(loaded, "product", grid, 384, [*stored, y, m, n, k, *steps[0], *steps[1]], shape.shared)
    assert not report.warnings
    return y


@pytest.mark.parametrize("along", LAYOUTS)
@pytest.mark.parametrize(
    ("name", "sizes", "pitch"),
    [
        ("half256", (130, 264, 136), 8),
        ("halftall", (257, 72, 200), 0),
        ("half128", (67, 33, 77), 3),
        ("half64", (1, 5, 8), 0),
    ],
)
def test_products_of_every_layout(name: str, sizes: tuple[int, int, int], pitch: int, along: tuple[bool, bool]) -> None:
    m, n, k = sizes
    a, b = halves(1, m, k), halves(2, k, n)
    exact = a.astype(np.float64) @ b
    got = product(a, b, SHAPES[name], along, pitch)
    assert np.abs(got - exact).max() <= 2e-6 * np.abs(exact).max() + 1e-6 * k**0.5


def test_nan_and_infinity_come_through() -> None:
    a, b = halves(3, 70, 80), halves(4, 80, 66)
    a[3, 5], a[9, 7], b[7, 11] = np.inf, -np.inf, np.nan
    with np.errstate(all="ignore"):
        expected = a.astype(np.float32) @ b.astype(np.float32)
    got = product(a, b, SHAPES["half64"], (True, False))
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    assert np.array_equal(got[np.isinf(expected)], expected[np.isinf(expected)])


def attended(size: int, m: int, n: int, causal: bool, bias: np.ndarray | None, scale: float) -> float:
    """Returns the largest error of attention over random operands."""
    q, k, v = halves(5, m, size), halves(6, n, size), halves(7, n, size)
    shape = tiling(size)
    text = ATTENTION.replace("@D", str(size)).replace("@keys", str(shape.keys)).replace("@stages", str(shape.stages))
    text = text.replace("@causal", str(causal).lower()).replace("@mask", "kw::NoMask()" if bias is None else "mask")
    given = np.zeros((m, n), np.float32) if bias is None else bias
    y = np.full((m, size), -7.0, np.float32)
    args = [q, k, v, given, y, m, n, float(scale)]
    report = launch(program(device.inlined(text)), "attend", -(-m // 128), 384, args, shape.shared(size))
    assert not report.warnings
    scores = q.astype(np.float64) @ k.T.astype(np.float64) * scale + given
    if causal:
        scores[np.arange(n) > np.arange(m)[:, None]] = -np.inf
    most = scores.max(1, keepdims=True)
    weights = np.exp(scores - np.where(most == -np.inf, 0.0, most))
    total = weights.sum(1, keepdims=True)
    return float(np.abs(y - weights / np.where(total == 0.0, 1.0, total) @ v).max())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("size", "m", "n"), [(64, 130, 300), (33, 300, 77), (128, 1, 129), (192, 200, 70), (256, 65, 66)]
)
def test_attention_of_every_size_of_a_head(size: int, m: int, n: int, causal: bool) -> None:
    assert attended(size, m, n, causal, None, size**-0.5) < 2e-3


def test_attention_of_a_negative_scale() -> None:
    assert attended(64, 40, 150, False, None, -0.2) < 2e-3


@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_is_added_and_a_row_without_keys_is_zero(causal: bool) -> None:
    bias = np.random.default_rng(8).standard_normal((140, 150)).astype(np.float32) * 3
    bias[np.random.default_rng(9).random(bias.shape) < 0.4] = -np.inf
    bias[7] = -np.inf
    assert attended(80, 140, 150, causal, bias, 0.1) < 2e-3
