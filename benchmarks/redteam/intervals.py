"""The Clopper-Pearson interval of a share, by bisection: no library is needed."""

from __future__ import annotations

import math


def _above(hits: int, count: int, share: float) -> float:
    """Returns the probability of at least `hits` hits in `count` draws of probability `share`."""
    if hits <= 0 or share >= 1:
        return 1.0
    if share <= 0:
        return 0.0
    logs = [
        math.lgamma(count + 1)
        - math.lgamma(k + 1)
        - math.lgamma(count - k + 1)
        + k * math.log(share)
        + (count - k) * math.log1p(-share)
        for k in range(hits, count + 1)
    ]
    return min(1.0, math.fsum(math.exp(v) for v in logs))


def exact_interval(hits: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Returns the exact two-sided interval of a share of `hits` among `count`; (0, 1) for a count of 0."""
    if count == 0:
        return 0.0, 1.0
    tail = (1 - level) / 2

    def solved(target: float, wanted: int) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if _above(wanted, count, middle) < target else (low, middle)
        return (low + high) / 2

    low = 0.0 if hits == 0 else solved(tail, hits)
    high = 1.0 if hits == count else solved(1 - tail, hits + 1)
    return low, high
