"""Filters of rollout rows: functions on flat columns that return a boolean mask of the rows to train on.

Filters come after advantages: baselines use all rows with a score; rejected rows are masked afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.errors import ConfigError
from kernelwright.training.rl.rows import Array, as_numpy, counts, flags, numbered, scores, unwrapped

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Mismatch:
    """The result of mismatch rejection, with one entry per row."""

    keep: NDArray[np.bool_]
    ratio: NDArray[np.float64]
    """Geometric mean of the trainer's over the sampler's probabilities; 1 for rows without tokens, NaN if not
    finite."""
    vetoed: NDArray[np.bool_]
    """True for rows rejected because of a single token."""

    @property
    def rejected_share(self) -> float:
        """The share of rejected rows; 0 without rows."""
        return float(1.0 - self.keep.mean()) if len(self.keep) else 0.0


def mismatch_rejection(
    log_probs: Array,
    rollout_log_probs: Array,
    token_mask: Array,
    *,
    low: float = 0.999,
    high: float = 1.001,
    veto: float = 1e-4,
) -> Mismatch:
    """MRS (arXiv 2602.05885): keeps rows on whose probability sampler and trainer agree.

    A row is kept if `exp(mean_t(log_probs - rollout_log_probs))` is in [low, high] and no token's ratio is below
    `veto`. All inputs have shape `(rows, length)`. Log-probabilities are those of the sampled tokens; `token_mask` is
    true for these tokens. Raises `ConfigError`.
    """
    if not 0.0 < low <= 1.0 <= high:
        raise ConfigError(f"[{low}, {high}] does not hold 1", hint="use low in (0, 1] and high of at least 1")
    if not 0.0 < veto <= 1.0:
        raise ConfigError(f"veto = {veto} is no ratio that rejects a token", hint="use more than 0 and at most 1")
    here, there, mask = _table(log_probs), _table(rollout_log_probs), _table(token_mask) != 0.0
    if not here.shape == there.shape == mask.shape or here.ndim != 2:
        raise ConfigError(f"shapes {here.shape}, {there.shape} and {mask.shape}", hint="all must be (rows, length)")
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(mask, here - there, 0.0)
        ratio = np.exp(difference.sum(axis=1) / np.maximum(mask.sum(axis=1), 1))
    ratio = np.where(np.isfinite(ratio), ratio, np.nan)
    vetoed = (difference < np.log(veto)).any(axis=1)
    keep = (ratio >= low) & (ratio <= high) & ~vetoed
    return Mismatch(keep, ratio, vetoed)


def _table(values: Array) -> NDArray[np.float64]:
    """Converts to float64: sums over long answers exceed half precision. Raises `ConfigError`."""
    try:
        return np.asarray(unwrapped(values), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError("rows of several lengths, or of what is no number", hint="pad them to one length") from error


def widened(low: float, high: float, rejected_share: float, *, limit: float = 0.6, factor: float = 2.0) -> Any:
    """Returns the next step's `(low, high)`: `factor` times as far from 1 if more than `limit` of the rows were
    rejected."""
    if rejected_share <= limit:
        return low, high
    return max(1.0 - factor * (1.0 - low), 1e-3), 1.0 + factor * (high - 1.0)


def profiling_rejection(
    profiling_ratio: Array,
    correct: Array,
    seed: int,
    *,
    tau: float = 0.3,
    scale: float = 0.1,
    keep_speedup: float | None = None,
    speedup: Array | None = None,
) -> NDArray[np.bool_]:
    """PRS (arXiv 2602.05885): keeps a correct row with probability `clip((PR - tau) / scale, 0, 1)`.

    PR is the share of device time that the candidate's own kernels took. All incorrect rows are kept as negative
    examples. Correct rows without a profile (PR is None or NaN) are kept, and with `keep_speedup` all correct rows of
    at least that speedup. The draw depends only on `seed` and the row's index. Raises `ConfigError`.
    """
    if not 0.0 < scale < math.inf or not math.isfinite(tau):
        raise ConfigError(f"tau = {tau} and scale = {scale}", hint="use finite numbers, and a scale of more than 0")
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigError(f"seed = {seed}", hint="use a whole number of at least 0")
    ratio, right = scores(profiling_ratio, "profiling_ratio"), flags(correct, "correct")
    if ratio.shape != right.shape:
        raise ConfigError(f"{len(ratio)} profiling ratios of {len(right)} rows")
    draws = np.random.default_rng(seed).random(len(ratio))
    chance = np.clip((ratio - tau) / scale, 0.0, 1.0)
    keep = ~right | np.isnan(ratio) | (draws < chance)
    if keep_speedup is not None:
        if speedup is None or not math.isfinite(keep_speedup):
            raise ConfigError(f"keep_speedup = {keep_speedup}", hint="give a finite number, and `speedup` of each row")
        speed = scores(speedup, "speedup")
        if speed.shape != right.shape:
            raise ConfigError(f"{len(speed)} speedups of {len(right)} rows")
        keep |= right & (speed >= keep_speedup)
    return keep


def varied_groups(score: Array, group: Array, mask: Array | None = None) -> NDArray[np.bool_]:
    """Marks the rows of groups with at least two different scores; other groups have no gradient.

    Padding and rows without a score (None or NaN) are never marked and do not count as a score. Raises `ConfigError`.
    """
    values, groups = scores(score), numbered(as_numpy(group))
    if values.shape != groups.shape:
        raise ConfigError(f"{len(values)} scores of {len(groups)} rows")
    real = np.ones(len(values), bool) if mask is None else flags(mask, "mask")
    if real.shape != values.shape:
        raise ConfigError(f"{len(values)} scores of rows and a mask of {len(real)}")
    valid = ~np.isnan(values) & real
    low, high = np.full(groups.max(initial=0) + 1, np.inf), np.full(groups.max(initial=0) + 1, -np.inf)
    np.minimum.at(low, groups[valid], values[valid])
    np.maximum.at(high, groups[valid], values[valid])
    return valid & (low < high)[groups]


@dataclass(frozen=True)
class Selection:
    """The result of dynamic sampling: kept rows and groups, and the number of groups still missing."""

    keep: NDArray[np.bool_]
    """One entry per row."""
    groups: tuple[Any, ...]
    """Labels of the kept groups, in order of appearance."""
    missing: int
    """The number of groups still to sample."""
    sampled: int
    """The number of groups sampled so far; `len(groups) / sampled` is the yield, to size the next draw."""


def dynamic_sampling(score: Array, group: Array, mask: Array | None = None, *, wanted: int) -> Selection:
    """Keeps the first `wanted` groups with different scores (DAPO). Takes all rows sampled so far, in order.

    Raises `ConfigError`.
    """
    if wanted < 1:
        raise ConfigError(f"wanted = {wanted} groups", hint="use at least 1")
    labels = as_numpy(group)
    numbers, varied = numbered(labels), varied_groups(score, group, mask)
    real = np.ones(len(numbers), dtype=bool) if mask is None else flags(mask, "mask")
    names: dict[int, Any] = {}
    for number, label in zip(numbers[real].tolist(), labels[real].tolist(), strict=True):
        names.setdefault(number, label)
    kinds = set(numbers[varied].tolist())
    chosen = [number for number in names if number in kinds][:wanted]
    keep = varied & np.isin(numbers, chosen)
    return Selection(keep, tuple(names[number] for number in chosen), wanted - len(chosen), len(names))


def shares(keep: NDArray[np.bool_], group: Array) -> NDArray[np.float64]:
    """Returns for each row the kept share of its group's rows, for the log."""
    groups = numbered(as_numpy(group))
    return counts(groups, keep) / np.maximum(counts(groups, np.ones(len(groups), bool)), 1.0)
