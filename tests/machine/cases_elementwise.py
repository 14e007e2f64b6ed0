"""Conformance cases: elementwise kernels, mathematics, conversions, integer arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from conformance import Run, bf16_bits, bf16_values, case, ceil_div, normal, unwritten

erf = np.vectorize(math.erf)
lgamma = np.vectorize(math.lgamma)
Runs = list[Run]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@case()
def relu_grid_stride(rng: np.random.Generator) -> Runs:
    runs = []
    for n, grid in [(1000, 2), (1, 1), (257, 3)]:
        x = normal(rng, n)
        runs.append(Run("relu_kernel", grid, 128, [x, unwritten(n), n], {1: np.maximum(x, 0)}, error=0))
    return runs


@case()
def add_float4_tail(rng: np.random.Generator) -> Runs:
    runs = []
    for n in (1024, 1021, 3):
        a, b = normal(rng, n), normal(rng, n)
        runs.append(Run("vector_add", ceil_div(n, 512), 128, [a, b, unwritten(n), n], {2: a + b}, error=0))
    return runs


@case()
def gelu_tanh(rng: np.random.Generator) -> Runs:
    x = normal(rng, 777) * 3
    d = x.astype(np.float64)
    approx = 0.5 * d * (1 + np.tanh(math.sqrt(2 / math.pi) * (d + 0.044715 * d**3)))
    exact = 0.5 * d * (1 + erf(d / math.sqrt(2)))
    return [Run("gelu_both", 7, 128, [x, unwritten(777), unwritten(777), 777], {1: approx, 2: exact})]


@case()
def leaky_relu_template(rng: np.random.Generator) -> Runs:
    runs = []
    for kind, dtype, error in [
        ("float", np.float32, 1e-7),
        ("double", np.float64, 1e-7),
        ("c10::Half", np.float16, 1e-3),
    ]:
        x = rng.standard_normal(300).astype(dtype)
        y = np.where(x > 0, x, x * dtype(0.125))
        args = [x, unwritten(300, dtype=dtype), 0.125, 300]
        runs.append(Run(f"leaky_relu_kernel<{kind}>", 3, 128, args, {1: y}, error=error))
    return runs


@case()
def swish_half2(rng: np.random.Generator) -> Runs:
    x = rng.standard_normal(200).astype(np.float16)
    gate = sigmoid(x.astype(np.float32)).astype(np.float16)
    a, b = rng.standard_normal((2, 60)).astype(np.float16)
    s, p = a + b, a * b
    fused = (s.astype(np.float64) * p + 0.5).astype(np.float16)
    rows = np.concatenate([fused, np.maximum(a, b), np.sqrt(np.abs(a)), a + b])
    return [
        Run("swish_half2", 1, 128, [x, unwritten(200, dtype=np.float16), 100], {1: x * gate}, error=1e-3),
        Run("half_arithmetic", 1, 64, [a, b, unwritten(240, dtype=np.float16), 60], {2: rows}, error=0),
    ]


@case()
def saxpy_double(rng: np.random.Generator) -> Runs:
    x, y = rng.standard_normal((2, 500))
    return [
        Run("saxpy", 2, 64, [500, 0.3, x, y, negate], {3: y - 0.3 * x if negate else y + 0.3 * x}, error=1e-15)
        for negate in (False, True)
    ]


@case()
def clamp_limits(rng: np.random.Generator) -> Runs:
    x = normal(rng, 100)
    x[3], x[50] = np.inf, -np.inf
    f = np.finfo(np.float32)
    extremes = np.array([f.min, np.inf, f.eps, 2.0**31, -np.inf, np.nan], np.float32)
    return [Run("clamp_kernel", 1, 128, [x, unwritten(100), np.zeros(6, np.float32), 100],
                {1: np.clip(x, f.min, f.max), 2: extremes}, error=0)]  # fmt: skip


@case()
def hardswish_switch(rng: np.random.Generator) -> Runs:
    x = normal(rng, 300) * 4
    d = x.astype(np.float64)
    softplus = np.log1p(np.exp(d))
    rows = [d, np.clip(d, 0, 6), d * np.clip(d + 3, 0, 6) / 6, softplus, np.where(d > 0, d, np.expm1(d)), np.sign(d)]
    rows.append(d * np.tanh(softplus))
    return [Run("activate_all", (3, 7), 128, [x, unwritten(7, 300), 300, 7], {1: np.stack(rows)})]


@case()
def masked_fill_bool(rng: np.random.Generator) -> Runs:
    x, mask = normal(rng, 333), rng.random(333) < 0.5
    keep = rng.integers(0, 256, 333).astype(np.uint8)
    y = np.where(keep > 127, np.where(mask, np.float32(-1e9), x), 0)
    return [Run("masked_fill", 3, 128, [x, mask, keep, -1e9, unwritten(333), 333], {4: y.astype(np.float32)}, error=0)]


@case()
def casts(rng: np.random.Generator) -> Runs:
    x = np.concatenate([normal(rng, 200) * 300, np.float32([0.5, 1.5, 2.5, -0.5, -2.5, 70000, 1e-7, 6e-8, 65519.9])])
    x = x.astype(np.float32)
    n = x.size
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    bits = bf16_bits(x)
    rounded = (np.rint(x).astype(np.int64) + np.trunc(x).astype(np.int64) * 1000).astype(np.int32)
    args = [x, unwritten(n, dtype=np.float16), unwritten(n, dtype=np.uint16), unwritten(n), unwritten(n)]
    args += [unwritten(n, dtype=np.int32), unwritten(n, dtype=np.uint8), n]
    expected = {1: half, 2: bits, 3: half.astype(np.float32), 4: bf16_values(bits), 5: rounded}
    expected[6] = np.clip(x, 0, 255).astype(np.uint8)
    return [Run("casts", 2, 128, args, expected, error=0)]


@case()
def int64_arithmetic(rng: np.random.Generator) -> Runs:
    a = [int(v) for v in rng.integers(-(2**62), 2**62, 40)] + [-7, 7, -7, 7, 0, 2**62]
    b = [int(v) for v in rng.integers(-(2**31), 2**31, 20)] + [int(v) for v in rng.integers(1, 2**62, 20)]
    b += [2, -2, -2, 2, 5, 3]
    n, word = len(a), 2**64

    def signed(v: int) -> int:
        return (v + 2**63) % word - 2**63

    def truncated(x: int, y: int) -> int:
        return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    pairs = list(zip(a, b, strict=True))
    out = [truncated(x, y) for x, y in pairs]
    out += [x - truncated(x, y) * y for x, y in pairs]
    out += [signed(x * y + (x >> 3) - (y << 2)) for x, y in pairs]
    out += [x * y >> 64 for x, y in pairs]
    first = [(x & -x).bit_length() for x, _ in pairs]
    uout = [(x % word) // (y % word | 1) for x, y in pairs]
    uout += [(x % word) * (y % word) >> 64 for x, y in pairs]
    bits = [x % word for x, _ in pairs]
    uout += [v.bit_count() * 1_000_000 + (64 - v.bit_length()) * 1000 + f for v, f in zip(bits, first, strict=True)]
    uout += [int(f"{x % word:064b}"[::-1], 2) ^ int(x < y) for x, y in pairs]
    args = [np.array(a), np.array(b), unwritten(4 * n, dtype=np.int64), unwritten(4 * n, dtype=np.uint64), n]
    return [Run("int64_mix", 2, 32, args, {2: np.array(out, np.int64), 3: np.array(uout, np.uint64)})]


@case()
def math_functions(rng: np.random.Generator) -> Runs:
    x = (normal(rng, 200) * 2).clip(-8.5, 8.5)
    d = x.astype(np.float64)
    m = np.abs(d)
    rows = [np.sin(d), np.cos(d), np.tan(d), np.exp(d), np.log(m + 0.5), m**1.7, np.sqrt(m), erf(d), lgamma(m + 1),
            np.fmod(d, np.float32(0.7)), np.arctan2(d, 2), np.cbrt(d), np.floor(d), np.ceil(d), np.trunc(d), np.rint(d),
            np.exp2(d), np.log2(m + 0.1), np.hypot(d, 3), np.sinh(d), np.arcsinh(d), np.copysign(2, d),
            np.maximum(d - 0.5, 0), sigmoid(d), np.sign(d) * np.floor(m + 0.5), 1 - erf(d), np.log1p(m),
            np.arccos(d / 9)]  # fmt: skip
    y = rng.standard_normal(150) * 2
    a = np.abs(y)
    doubles = [np.sin(y) * np.cos(y), np.exp(y) + np.log(a + 0.5), a**1.7, erf(y) + lgamma(a + 1)]
    doubles += [np.fmod(y, 0.7) + np.tanh(y), np.sqrt(a) / (1 + y * y) + (y * y + 1)]
    return [
        Run("all_float", 2, 128, [x, unwritten(len(rows), 200), 200], {1: np.stack(rows)}),
        Run("all_double", 2, 128, [y, unwritten(6, 150, dtype=np.float64), 150], {1: np.stack(doubles)}, error=1e-14),
    ]


@case("--use_fast_math")
def fast_math(rng: np.random.Generator) -> Runs:
    x = normal(rng, 400) * 2
    d = x.astype(np.float64)
    y = np.exp(-d * d) / np.sqrt(1 + d * d) + np.sin(d) / (2 + np.cos(d)) + np.log(1 + np.abs(d)) + np.tanh(d)
    return [Run("fast", 4, 128, [x, unwritten(400), 400], {1: y + (np.abs(d) + 1) ** 0.3}, error=1e-3)]


def rounded(exact: Fraction, mode: str) -> float:
    """Returns the single-precision number next to `exact`: above ("up"), below ("down") or towards zero."""
    near = np.float32(float(exact))
    low = near if Fraction(float(near)) <= exact else np.nextafter(near, np.float32(-np.inf))
    high = near if Fraction(float(near)) >= exact else np.nextafter(near, np.float32(np.inf))
    if mode == "zero":
        mode = "down" if exact > 0 else "up"
    return float(low if mode == "down" else high)


@case()
def rounding_modes(rng: np.random.Generator) -> Runs:
    a, b = normal(rng, 100), normal(rng, 100)
    pairs = [(Fraction(float(x)), Fraction(float(y))) for x, y in zip(a, b, strict=True)]
    rows = [[rounded(x + y, "up") for x, y in pairs], [rounded(x + y, "down") for x, y in pairs]]
    rows += [[rounded(x * y, "zero") for x, y in pairs], list(np.float32(1) / b)]
    rows += [[rounded(x * y + x, "up") for x, y in pairs], list(np.sqrt(np.abs(a))), list(a.clip(0, 1)), list(a / b)]
    return [Run("rounding", 1, 128, [a, b, unwritten(8, 100), 100], {2: np.array(rows, np.float32)}, error=0)]


@case()
def inline_assembly(rng: np.random.Generator) -> Runs:
    x = rng.integers(0, 2**32, 100, dtype=np.uint64)
    word = 2**32 - 1
    both = [int(v) | (~int(v) & word) << 32 for v in x]
    permuted = [sum((w >> 8 * s & 255) << 8 * i for i, s in enumerate((5, 1, 7, 3))) for w in both]
    rows = [x ^ x >> 1 ^ (x << 1 & word), x >> 5 & 2047, (x & 15) << 8 | 0xFFFFF0FF, permuted]
    rows += [[int(v) * int(v) >> 32 for v in x], np.arange(100) % 32]
    args = [x.astype(np.uint32), unwritten(6, 100, dtype=np.uint32), unwritten(100), 100]
    expected = {1: np.array(rows, np.uint64).astype(np.uint32), 2: 2.0 ** ((x & 15) * 0.25)}
    return [Run("assembly", 2, 64, args, expected)]


@case()
def philox_like(rng: np.random.Generator) -> Runs:
    x, n, seed, word = normal(rng, 500), 500, 0x1234_5678_9ABC_DEF0, 2**32

    def bits(i: int) -> int:
        state = (seed + i * 6364136223846793005) % 2**64
        w = state >> 32 ^ state % word
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            w = (w ^ w >> shift) * factor % word
        return w ^ w >> 16

    raw = [bits(i) for i in range(n)]
    words = [
        int(f"{w:032b}"[::-1], 2) ^ (w % 65536 | i % 65536 << 16) ^ (((i << 32 | w) << 7) >> 32) % word
        for i, w in enumerate(raw)
    ]
    u = np.array([w >> 8 for w in raw]) / 2.0**24
    y = np.where(u < np.float32(0.4), 0, x / (np.float32(1) - np.float32(0.4)))
    args = [x, unwritten(n), unwritten(n, dtype=np.uint32), seed, 0.4, n]
    return [Run("dropout", 4, 128, args, {1: y, 2: np.array(words, np.uint32)})]


@case()
def complex_float2(rng: np.random.Generator) -> Runs:
    x = (normal(rng, 3, 48) + 1j * normal(rng, 3, 48)).astype(np.complex64)
    y = np.fft.fft(x.astype(np.complex128), axis=1)
    flat = y.view(np.float64).reshape(3, 96)
    return [Run("dft", 3, 64, [x.view(np.float32), unwritten(3, 96), 48], {1: flat})]
