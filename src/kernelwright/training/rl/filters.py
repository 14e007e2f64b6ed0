"""Which rows of rollouts to train on: functions on flat rows that return what to keep, with the reasons countable.

Filters come after advantages: a baseline is taken over all rows with a score, and rejected rows are masked then.
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
    """What mismatch rejection found, an entry a row."""

    keep: NDArray[np.bool_]
    ratio: NDArray[np.float64]
    """Geometric mean of trainer's over sampler's probabilities; 1 for rows without tokens, NaN where not finite."""
    vetoed: NDArray[np.bool_]
    """Rejected for a single token."""

    @property
    def rejected_share(self) -> float:
        """Rejected rows over all rows; 0 where there are none."""
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
    """MRS (arXiv 2602.05885): keeps rows whose sampler and trainer agree on how probable the answer was.

    A row is kept where `exp(mean_t(log_probs - rollout_log_probs))` is in [low, high] and no token's own ratio is below
    `veto`. All have shape `(rows, length)`; log-probabilities are of the sampled tokens, `token_mask` true for them.
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
    """Rows of numbers in float64: sums of long answers are beyond half precision."""
    try:
        return np.asarray(unwrapped(values), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError("rows of several lengths, or of what is no number", hint="pad them to one length") from error


def widened(low: float, high: float, rejected_share: float, *, limit: float = 0.6, factor: float = 2.0) -> Any:
    """The next step's `(low, high)`: `factor` times as far from 1 where more than `limit` of the rows were rejected."""
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

    PR is the share of device time that the candidate's own kernels took. Rows that are not correct are all kept, else
    there would be no negatives; so are correct ones that were not profiled (None or NaN), about which nothing is known,
    and with `keep_speedup` those at least that fast. The draw depends on `seed` and a row's place only.
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
    """Rows whose group has at least two different scores: groups without teach nothing and are skipped.

    Padding and rows without a score (None or NaN) are not kept, and do not make a group varied.
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
    """What dynamic sampling keeps, and what is still to be sampled."""

    keep: NDArray[np.bool_]
    """By row."""
    groups: tuple[Any, ...]
    """Labels of the kept groups, in the order in which they came."""
    missing: int
    """How many groups are wanted besides."""
    sampled: int
    """How many groups there were: `len(groups) / sampled` is the yield by which to size the next draw."""


def dynamic_sampling(score: Array, group: Array, mask: Array | None = None, *, wanted: int) -> Selection:
    """Keeps the first `wanted` groups that have different scores (DAPO): give all rows sampled so far, in order."""
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
    """For each row, the share of its group's rows that are kept: what to log of a filter."""
    groups = numbered(as_numpy(group))
    return counts(groups, keep) / np.maximum(counts(groups, np.ones(len(groups), bool)), 1.0)
