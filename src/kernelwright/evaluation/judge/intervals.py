"""Computes the ratio of medians of timing samples and its bootstrap interval. Needs numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 1000
PROCESS_RELATIVE, PROCESS_MS = 0.0015, 0.0001
"""The difference between two processes running the same kernel: a share of the time, and milliseconds. Measured on an
H200 with `benchmarks/gpu_precision.py`; no number of samples within two processes shows it."""


def ratio_interval(
    numerator: Sequence[float], denominator: Sequence[float], seed: int = 0, level: float = 0.95
) -> tuple[float, float, float]:
    """Returns (ratio of medians, low, high) by the percentile bootstrap, each side resampled independently.

    Raises `ValueError` for an empty side.
    """
    a, b = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    if not a.size or not b.size:
        raise ValueError("an interval needs samples on both sides")
    rng = np.random.default_rng(seed)
    tops = np.median(rng.choice(a, (RESAMPLES, a.size)), axis=1)
    bottoms = np.median(rng.choice(b, (RESAMPLES, b.size)), axis=1)
    tail = (1 - level) / 2
    with np.errstate(divide="ignore", invalid="ignore"):  # the physical floor rejects times of zero
        low, high = np.quantile(tops / bottoms, [tail, 1 - tail])
        return float(np.median(a) / np.median(b)), float(low), float(high)


def is_narrow(interval: tuple[float, float, float], width: float) -> bool:
    """Tells whether the whole interval is at most `width` times the ratio wide."""
    ratio, low, high = interval
    return high - low <= width * ratio


def process_spread(milliseconds: float) -> float:
    """Returns the relative uncertainty of a ratio of two processes' times that their samples do not show."""
    return PROCESS_RELATIVE + PROCESS_MS / max(milliseconds, PROCESS_MS)
