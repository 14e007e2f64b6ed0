"""The device header `kernelwright/product.cuh`: special values, ranges and errors of float32 products."""

from __future__ import annotations

import numpy as np
import pytest
from machine_launch import launch, program

from kernelwright import device
from kernelwright.solutions.kernels.split.products import CHUNK_BYTES, SHAPES, SplitShape

TEXT = """
#include <kernelwright/product.cuh>
extern "C" __global__ void pack(const float* x, void* packed, int rows, int K, int row_step, int k_step, int k_chunks) {
    kw::pack<true>(packed, k_chunks, [&](long long r, int k) {
        return r < rows && k < K ? x[r * row_step + k * k_step] : 0.0f;
    });
}
extern "C" @cluster__global__ void __launch_bounds__(@bounds) product(
    const void* left, const void* right, const float* a, const float* b, float* y, int M, int N, int K) {
    auto store = [&](long long n) { return [=](long long m, float sum) { y[m * N + n] = sum; }; };
    auto exact = [&](long long m, long long n) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) sum += a[m * K + k] * b[k * N + n];
        return sum;
    };
    kw::SplitTile<@tile>::run(left, kw::Packed{right}, M, N, (K + 63) / 64, store, exact);
}
"""


def product(a: np.ndarray, b: np.ndarray, shape: SplitShape = SHAPES["split128"]) -> np.ndarray:
    """Returns the product of float32 matrices [M, K] and [K, N]."""
    (m, k), n = a.shape, b.shape[1]
    cluster = f"__cluster_dims__({shape.split}, 1, 1) " if shape.split > 1 else ""
    text = TEXT.replace("@cluster", cluster).replace("@bounds", shape.bounds).replace("@tile", shape.tile)
    loaded = program(device.inlined(text))
    chunks, down, across = -(-k // 64), -(-m // shape.rows), -(-n // shape.columns)
    left = np.zeros(down * shape.groups * chunks * CHUNK_BYTES, np.uint8)
    right = np.zeros(across * shape.columns // 64 * chunks * CHUNK_BYTES, np.uint8)
    y = np.full((m, n), -7.0, np.float32)
    reports = [
        launch(loaded, "pack", left.size // CHUNK_BYTES, 256, [a, left, m, k, k, 1, chunks]),
        launch(loaded, "pack", right.size // CHUNK_BYTES, 256, [b, right, n, k, 1, n, chunks]),
    ]
    args = [left, right, a, b, y, m, n, k]
    reports.append(launch(loaded, "product", down * across * shape.split, shape.threads, args, shape.shared))
    assert not any(report.warnings for report in reports)
    return y


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", ["split1", "split64", "split192", "deep2", "deep8"])
def test_the_error_is_below_that_of_float32(name: str) -> None:
    a, b = random(1, 130, 700), random(2, 700, 140)
    exact = a.astype(np.float64) @ b
    ours, plain = product(a, b, SHAPES[name]), np.zeros((130, 140), np.float32)
    for k in range(700):
        plain += a[:, k : k + 1] * b[k]
    error, allowed = np.abs(ours - exact), np.abs(plain - exact)
    assert error.max() < allowed.max()
    assert np.sqrt((error**2).mean()) < np.sqrt((allowed**2).mean())


def test_rows_of_very_different_sizes_keep_their_precision() -> None:
    scales = (2.0 ** np.arange(-60, 60, 2)).astype(np.float32)[:, None]
    a, b = random(3, 60, 130) * scales, random(4, 130, 64)
    exact = a.astype(np.float64) @ b
    assert (np.abs(product(a, b) - exact) / np.abs(exact).mean(1, keepdims=True)).max() < 1e-5


def test_nan_and_infinity_come_through_as_in_float32() -> None:
    a, b = random(5, 70, 80), random(6, 80, 66)
    a[3, 5], a[9, 7], b[7, 11], b[2, 60] = np.inf, -np.inf, np.nan, np.inf
    a[20] = 0.0
    with np.errstate(all="ignore"):
        expected = a @ b
    got = product(a, b)
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    assert np.array_equal(got[np.isinf(expected)], expected[np.isinf(expected)])


def test_the_largest_and_the_smallest_numbers_do_not_overflow() -> None:
    a, b = random(7, 64, 64), random(8, 64, 64)
    a[:32] *= np.float32(2.0**100)
    a[32:] *= np.float32(2.0**-100)
    exact = a.astype(np.float64) @ b
    size = np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(product(a, b) - exact) / size).max() < 2.0**-22
