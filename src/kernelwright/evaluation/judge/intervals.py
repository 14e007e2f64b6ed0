"""Medians of timing samples and the interval of their ratio, by the bootstrap. numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 1000
PROCESS_RELATIVE, PROCESS_MS = 0.0015, 0.0001
"""How far two processes may be apart that run the same kernel: a share of the time, and milliseconds. Measured on an
H200 with `benchmarks/gpu_precision.py`; no number of samples within two processes shows it."""


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
    with np.errstate(divide="ignore", invalid="ignore"):  # times of zero are for others to doubt
        low, high = np.quantile(tops / bottoms, [tail, 1 - tail])
        return float(np.median(a) / np.median(b)), float(low), float(high)


def is_narrow(interval: tuple[float, float, float], width: float) -> bool:
    """Whether the whole interval is narrower than `width` times the ratio."""
    ratio, low, high = interval
    return high - low <= width * ratio


def process_spread(milliseconds: float) -> float:
    """By which share a ratio of two processes' times is uncertain beyond their samples."""
    return PROCESS_RELATIVE + PROCESS_MS / max(milliseconds, PROCESS_MS)
