"""Draws sizes that people choose: extents near a wished value, shapes with a wished number of elements."""

from __future__ import annotations

import math
from random import Random

LARGEST_TENSOR = 300_000_000
"""Most elements of a generated tensor (1.2 GB in float32)."""
LARGEST_FLOPS = 2e12
"""Most FLOPs of a task, two per multiply-add; with more, a plain kernel takes seconds."""


def around(random: Random, wish: float, low: int = 1, high: int = 1 << 30) -> int:
    """Draws an extent near `wish`: mostly a power of two or a small multiple, else a round decimal or an odd number."""
    wish = max(low, min(high, wish))
    kind = random.random()
    power = 2 ** max(0, round(math.log2(max(1.0, wish))))
    if kind < 0.5 or wish < 4:
        found = power
    elif kind < 0.7:
        found = max(1, power // 4) * random.choice((3, 5, 6, 7))
    elif kind < 0.85:
        step = 10 ** max(0, int(math.log10(wish)) - 1) * random.choice((1, 5))
        found = max(1, round(wish / step)) * step
    else:
        found = power + random.choice((-1, 1, 3, -3)) if power > 8 else power + 1
    return int(max(low, min(high, found)))


def log_uniform(random: Random, low: float, high: float) -> float:
    """Returns a number whose logarithm is uniform between those of `low` and `high`."""
    return math.exp(random.uniform(math.log(low), math.log(high)))


def elements(random: Random) -> float:
    """Returns a number of elements for a memory-bound operator's input: 1e6 to 2e8, sometimes fewer."""
    if random.random() < 0.15:
        return log_uniform(random, 3e3, 1e6)
    return log_uniform(random, 1e6, 2e8)


def shape(random: Random, rank: int, total: float, low: int = 2) -> list[int]:
    """Returns extents of a tensor of `rank` dimensions with roughly `total` elements."""
    shares = [random.uniform(0.5, 1.5) for _ in range(rank)]
    if rank > 1:
        shares[0] *= 0.6
    whole = sum(shares)
    found = [around(random, total ** (s / whole), low, 1 << 22) for s in shares]
    while math.prod(found) > LARGEST_TENSOR:
        largest = found.index(max(found))
        found[largest] = max(low, found[largest] // 2)
    return found


def image(random: Random, rank: int, total: float, channels: int = 0) -> list[int]:
    """Draws batch, channels and `rank` spatial extents, often equal, with roughly `total` elements."""
    channels = channels or random.choice((1, 3, 3, 8, 16, 32, 32, 64, 64, 96, 128, 256))
    batch = random.choice((1, 2, 4, 8, 16, 16, 32, 64, 128))
    spatial = max(4.0**rank, total / channels / batch)
    side = spatial ** (1 / rank)
    cap = {1: 1 << 17, 2: 1024, 3: 128}[rank]
    first = around(random, side, 5, cap)
    if random.random() < 0.6:
        found = [first] * rank
    else:
        found = [around(random, side * random.choice((0.5, 1, 2)), 5, cap) for _ in range(rank)]
    while batch * channels * math.prod(found) > LARGEST_TENSOR and batch > 1:
        batch //= 2
    return [batch, channels, *found]
