"""Medians of timing samples and the interval of their ratio, by the bootstrap. numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 1000


def ratio_interval(
    numerator: Sequence[float], denominator: Sequence[float], seed: int = 0, level: float = 0.95
) -> tuple[float, float, float]:
    """(ratio of medians, low, high): the percentile bootstrap, both sides resampled apart.

    Raises `ValueError` for an empty side.
    """
    a, b = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    if not a.size or not b.size:
        raise ValueError("an interval needs samples on both sides")
    rng = np.random.default_rng(seed)
    tops = np.median(rng.choice(a, (RESAMPLES, a.size)), axis=1)
    bottoms = np.median(rng.choice(b, (RESAMPLES, b.size)), axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(tops / bottoms, [tail, 1 - tail])
    return float(np.median(a) / np.median(b)), float(low), float(high)


def is_narrow(interval: tuple[float, float, float], width: float) -> bool:
    """Whether the whole interval is narrower than `width` times the ratio."""
    ratio, low, high = interval
    return high - low <= width * ratio
