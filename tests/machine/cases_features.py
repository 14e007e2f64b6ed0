"""Conformance cases: atomics, warp and group operations, and features of the language."""

from __future__ import annotations

import struct

import numpy as np
from conformance import Run, case, normal, unwritten

Runs = list[Run]


@case()
def histogram_shared(rng: np.random.Generator) -> Runs:
    x = rng.integers(0, 256, 3000).astype(np.uint8)
    bins = np.bincount(x % 64, minlength=64).astype(np.uint32)
    return [Run("histogram", 3, 96, [x, np.zeros(64, np.uint32), 3000], {1: bins})]


@case()
def scatter_add(rng: np.random.Generator) -> Runs:
    src, index = normal(rng, 60, 5), rng.integers(0, 8, 60)
    dst, dst64 = np.zeros((8, 5)), np.zeros(8)
    np.add.at(dst, index, src)
    np.add.at(dst64, index, src.sum(1, dtype=np.float64))
    args = [src, index, np.zeros((8, 5), np.float32), np.zeros(8), 60, 5]
    counts, bits = np.array([0, -1, 0], np.int32), np.array([0, 0, 255], np.uint32)
    expected = {0: np.int32([-192, 95, 96 % 10]), 1: np.uint64([96 << 33]), 2: np.uint32([2**32 - 1, 2**32 - 1, 0])}
    return [
        Run("scatter_add", 3, 128, args, {2: dst, 3: dst64}),
        Run("count_up", 3, 32, [counts, np.zeros(1, np.uint64), bits, np.zeros(1, np.int32)],
            expected | {3: np.int32([77])}),
    ]  # fmt: skip


@case()
def struct_functor(rng: np.random.Generator) -> Runs:
    runs = []
    for kind, dtype in [("float", np.float32), ("double", np.float64)]:
        x = rng.standard_normal(100).astype(dtype)
        affine, square = struct.pack("<f4xdc7x", 1.5, -0.25, b"\1"), b"\0"
        y = (x * 1.5 - 0.25) ** 2
        args = [x, unwritten(100, dtype=dtype), affine, square, 100]
        runs.append(Run(f"map_both<{kind}, Affine, Square>", 1, 128, args, {1: y}))
    return runs


@case()
def cooperative_tiles(rng: np.random.Generator) -> Runs:
    x = normal(rng, 250)
    padded = np.zeros(256, np.float32)
    padded[:250] = x
    tiles = padded.reshape(32, 8)
    maxima = (tiles * np.float32(100)).astype(np.int32).max(1)
    ranks = np.array([0, 1, 3, 6, 10, 15, 21, 28])
    prefix = (ranks + 100 * (tiles > 2).any(1, keepdims=True)).reshape(-1).astype(np.int32)
    args = [x, unwritten(32), unwritten(32, dtype=np.int32), unwritten(256, dtype=np.int32), 250]
    return [Run("tile_statistics", 2, 128, args, {1: tiles.sum(1, dtype=np.float64), 2: maxima, 3: prefix})]


@case()
def coalesced_append(rng: np.random.Generator) -> Runs:
    x = rng.integers(-9, 10, 300).astype(np.int32)
    kept = unwritten(300, dtype=np.int32)
    positive = x[x > 0]
    expected = np.concatenate([positive, kept[positive.size :]])
    count = np.zeros(1, np.int32)
    args = [x, kept, count, 300]
    return [Run("keep_positive", 3, 128, args, {1: expected, 2: np.int32([positive.size])}, unordered=(1,))]


@case()
def warp_votes(rng: np.random.Generator) -> Runs:
    x = rng.integers(0, 5, 128).astype(np.int32)
    warps = x.reshape(4, 32)
    masks, counts = np.empty((2, 128), np.uint32), np.empty((5, 128), np.int32)
    for t in range(128):
        warp, lane = warps[t // 32], t % 32
        odd = [int(v) & 1 for v in warp]
        masks[0, t] = sum(bit << k for k, bit in enumerate(odd))
        masks[1, t] = sum(1 << k for k, v in enumerate(warp) if v == x[t])
        block = x[t // 64 * 64 : t // 64 * 64 + 64]
        first = int(np.flatnonzero(warp == x[t])[0])
        counts[:, t] = [sum(odd[:lane]), first, 2 + int(3 in warp), warp.sum(), (block > 1).sum()]
    args = [x, unwritten(2, 128, dtype=np.uint32), unwritten(5, 128, dtype=np.int32)]
    return [Run("votes", 2, 64, args, {1: masks, 2: counts})]


@case()
def print_and_assert(rng: np.random.Generator) -> Runs:
    x = rng.integers(0, 100, 70).astype(np.int32)
    return [Run("checked_copy", 3, 32, [x, unwritten(70, dtype=np.int32), 70], {1: x})]


@case()
def embedding_lookup(rng: np.random.Generator) -> Runs:
    runs = []
    table = normal(rng, 30, 40)
    for kind, dtype in [("int", np.int32), ("long long", np.int64)]:
        ids = rng.integers(-1, 30, 25).astype(dtype)
        out = np.where(ids[:, None] < 0, np.float32(0), table[ids])
        args = [table, ids, unwritten(25, 40), 25, 40]
        runs.append(Run(f"embedding<{kind}>", 7, (32, 4), args, {2: out}, error=0))
    return runs


@case()
def half_warp_groups(rng: np.random.Generator) -> Runs:
    x = rng.integers(0, 7, 128).astype(np.int32)
    v = np.where(np.arange(128) % 32 < 16, x * 125 % 7, x)  # v * 5 % 7, three times
    masks, sums = np.empty((3, 128), np.uint32), np.empty((3, 128), np.int32)
    for t in range(128):
        half, shift = v[t // 16 * 16 : t // 16 * 16 + 16], t // 16 % 2 * 16
        masks[0, t] = sum(int(a > 2) << k + shift for k, a in enumerate(half))
        masks[1, t] = sum(int(a == v[t]) << k + shift for k, a in enumerate(half))
        masks[2, t] = 2 * int(6 in half) + int(half.max() < 6)
        sums[:, t] = half.sum(), half.max(), half.sum()
    args = [x, unwritten(3, 128, dtype=np.uint32), unwritten(3, 128, dtype=np.int32)]
    return [Run("half_warps", 2, 64, args, {1: masks, 2: sums})]
