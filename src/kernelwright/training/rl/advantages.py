"""Advantage estimators: functions on flat rows, one row a turn, looked up by name. No trainer, no torch.

    ADVANTAGES["trloo"](score, group, trajectory, turn, mask, gamma=1.0)

All take columns of one length: `score` the turn's own reward (None or NaN: no reward, after a harness error), `group`
the task, `trajectory` the rollout, `turn` its number in the rollout, `mask` false for padding. They return one
advantage per row, in the caller's kind of array. Padding and rows without a score get advantage 0 and are part of no
baseline. Groups and trajectories have labels of any type, compared by equality and type. Computation is in float64;
a result outside the range of the caller's type raises `ConfigError`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.errors import ConfigError, did_you_mean
from kernelwright.training.rl.rows import Array, TurnRows, counts, like, numbered, read_rows, sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

Advantage = Callable[..., Any]
Floats = Any


def grpo(
    score: Array,
    group: Array,
    trajectory: Array,
    turn: Array,
    mask: Array | None = None,
    *,
    ddof: int = 1,
    eps: float = 1e-4,
) -> Array:
    """`(s - mean) / (std + eps)` over all rows of a group. `ddof` and `eps` are those of TRL by default."""
    rows, unit = _in_units(read_rows(score, group, trajectory, turn, mask))
    return like(_standardised(rows.score, rows, ddof, eps, unit), score)


def mean(score: Array, group: Array, trajectory: Array, turn: Array, mask: Array | None = None) -> Array:
    """`s - mean` over all rows of a group: Dr. GRPO, and the Stanford recipe."""
    rows, unit = _in_units(read_rows(score, group, trajectory, turn, mask))
    return like(_times(_centred(rows.score, rows.group, _scored(rows.score, rows)), unit), score)


def kevin(
    score: Array,
    group: Array,
    trajectory: Array,
    turn: Array,
    mask: Array | None = None,
    *,
    gamma: float = 0.4,
    aggregate: str = "sum",
    missing: str = "unknown",
    ddof: int = 1,
    eps: float = 1e-4,
) -> Array:
    """Kevin (arXiv 2507.11948): discounted returns of turns, standardised over all turns of all rollouts of a task.

    `R_t = sum_{i >= t} gamma^(i-t) s_i`, or the maximum of these terms (`aggregate="max"`).
    """
    rows, unit = _in_units(read_rows(score, group, trajectory, turn, mask))
    returns = returns_to_go(rows, gamma, aggregate, missing)
    return like(_standardised(returns, rows, ddof, eps, unit), score)


def trloo(
    score: Array,
    group: Array,
    trajectory: Array,
    turn: Array,
    mask: Array | None = None,
    *,
    gamma: float = 1.0,
    single: str = "skip",
    missing: str = "unknown",
) -> Array:
    """Dr. Kernel's TRLOO (arXiv 2602.05885): return to go, less its mean over the other rollouts' same turn.

    A turn that no other rollout of the task reached has no baseline. `single="skip"` gives it advantage 0, as in the
    paper; this biases the gradient estimate if rollouts may stop early. `"zero_baseline"` gives it its whole return,
    as in the authors' code.
    """
    rows, unit = _in_units(read_rows(score, group, trajectory, turn, mask))
    returns = returns_to_go(rows, gamma, "sum", missing)
    place = numbered(rows.group * (len(rows.turn) + 1) + numbered(rows.turn))
    return like(_times(_leave_one_out(returns, place, _scored(returns, rows), single), unit), score)


def prefix_free(
    score: Array,
    group: Array,
    trajectory: Array,
    turn: Array,
    mask: Array | None = None,
    *,
    gamma: float = 1.0,
    aggregate: str = "sum",
    single: str = "skip",
    missing: str = "unknown",
) -> Array:
    """Leave-one-out over whole trajectories: each turn gets its rollout's return minus the others' mean return.

    The baseline depends on no prefix of the rollout, not even on its number of turns. It is unbiased, also if rollouts
    may stop early.
    """
    rows, unit = _in_units(read_rows(score, group, trajectory, turn, mask))
    returns = _discounted(rows, gamma, aggregate, missing)  # also for a first turn without a score
    first = _first_rows(rows)
    at_first = _leave_one_out(returns, rows.group, first & ~np.isnan(returns), single)
    spread = sums(at_first, rows.trajectory, first)
    return like(_times(np.where(_scored(rows.score, rows), spread, 0.0), unit), score)


ADVANTAGES: dict[str, Advantage] = {
    "grpo": grpo,
    "mean": mean,
    "kevin": kevin,
    "trloo": trloo,
    "prefix_free": prefix_free,
}


def load_advantage(name: str) -> Advantage:
    """Returns the estimator with that name. Raises `ConfigError`."""
    if name in ADVANTAGES:
        return ADVANTAGES[name]
    hint = did_you_mean(name, ADVANTAGES, f"advantages: {', '.join(ADVANTAGES)}")
    raise ConfigError(f"there is no advantage {name!r}", hint=hint)


def returns_to_go(
    rows: TurnRows, gamma: float, aggregate: str = "sum", missing: str = "unknown"
) -> NDArray[np.float64]:
    """Returns for each row the discounted sum, or maximum, of its trajectory's scores from that turn on; NaN if
    unknown.

    Discounts follow turn numbers. `missing="unknown"`: a missing score makes the returns of earlier turns unknown too,
    since counting it as zero would penalise them for a harness error. `"skip"` leaves the score out of their returns.
    """
    return np.where(_scored(rows.score, rows), _discounted(rows, gamma, aggregate, missing), np.nan)


def _discounted(rows: TurnRows, gamma: float, aggregate: str, missing: str) -> NDArray[np.float64]:
    """Computes `returns_to_go`; with `"skip"`, a row without a score gets the return of the later turns."""
    if aggregate not in ("sum", "max"):
        raise ConfigError(f"there is no aggregate {aggregate!r}", hint="use sum or max")
    if missing not in ("unknown", "skip"):
        raise ConfigError(f"missing = {missing!r}", hint="use unknown or skip")
    if not 0.0 <= gamma <= 1.0:
        raise ConfigError(f"gamma = {gamma} is not in [0, 1]")
    returns = np.full(len(rows.score), np.nan)
    later: dict[int, tuple[int, float]] = {}  # trajectory -> turn and return of the next row
    for row in np.lexsort((-rows.turn, rows.trajectory)).tolist():
        if not rows.real[row]:
            continue
        own, trajectory, turn = float(rows.score[row]), int(rows.trajectory[row]), int(rows.turn[row])
        following = later.get(trajectory)
        to_come = None if following is None else gamma ** (following[0] - turn) * following[1]
        if np.isnan(own) and missing == "skip":
            if to_come is None:
                continue
            total = to_come
        elif to_come is None:
            total = own
        elif aggregate == "sum":
            total = own + to_come
        else:
            total = float(np.maximum(own, to_come))  # NaN where one of them is
        returns[row] = total
        later[trajectory] = (turn, total)
    return returns


def _in_units(rows: TurnRows) -> tuple[TurnRows, NDArray[np.float64]]:
    """Scales each group's scores by a power of two near the largest one; returns the rows and each row's unit.

    Sums and squares of scaled scores neither overflow nor underflow, and scaling by a power of two is exact.
    """
    largest = np.zeros(rows.group.max(initial=0) + 1)
    scored = _scored(rows.score, rows)
    np.maximum.at(largest, rows.group[scored], np.abs(rows.score[scored]))
    unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)  # the next power of two overflows for the largest floats
    unit = np.where(largest > 0.0, unit, 1.0)[rows.group]
    return dataclasses.replace(rows, score=rows.score / unit), unit


def _times(values: Floats, unit: Floats) -> Any:
    with np.errstate(over="ignore"):  # `like` raises for an overflow
        return values * unit


def _scored(values: NDArray[np.float64], rows: TurnRows) -> NDArray[np.bool_]:
    return rows.real & ~np.isnan(values)


def _centred(values: Floats, key: Floats, valid: Floats) -> Any:
    number = np.maximum(counts(key, valid), 1.0)
    centred = values - sums(values, key, valid) / number
    return np.where(valid & ~_constant(values, key, valid), centred, 0.0)


def _constant(values: Floats, key: Floats, valid: Floats) -> Any:
    """Marks rows whose group has a single value: differences to its mean would be rounding errors."""
    low, high = np.full(key.max(initial=0) + 1, np.inf), np.full(key.max(initial=0) + 1, -np.inf)
    np.minimum.at(low, key[valid], values[valid])
    np.maximum.at(high, key[valid], values[valid])
    return (low >= high)[key]


def _standardised(values: Floats, rows: TurnRows, ddof: int, eps: float, unit: Floats) -> Any:
    """Computes `(v - mean) / (std + eps)` over each group; values are scaled by `unit`, `eps` is not."""
    if ddof < 0 or not 0.0 <= eps < math.inf:
        raise ConfigError(f"ddof = {ddof}, eps = {eps}", hint="use at least 0")
    valid = _scored(values, rows)
    centred = _centred(values, rows.group, valid)
    number = np.maximum(counts(rows.group, valid) - ddof, 1.0)
    deviation = np.sqrt(sums(centred**2, rows.group, valid) / number)
    with np.errstate(over="ignore"):  # eps / unit may overflow for tiny units: the quotient is then 0, as it should be
        divisor = deviation + eps / unit
    return np.divide(centred, divisor, out=np.zeros_like(centred), where=divisor > 0)


def _leave_one_out(values: Floats, key: Floats, valid: Floats, single: str) -> Any:
    """Computes `v_i - mean of the others' v` over rows with one key."""
    if single not in ("skip", "zero_baseline"):
        raise ConfigError(f"single = {single!r}", hint="use skip or zero_baseline")
    number = counts(key, valid)
    centred = _centred(values, key, valid)
    result = np.where(number > 1, centred * number / np.maximum(number - 1.0, 1.0), 0.0)
    if single == "zero_baseline":
        result = np.where(number == 1, values, result)
    return np.where(valid, result, 0.0)


def _first_rows(rows: TurnRows) -> Any:
    """Marks each trajectory's first row that is not padding."""
    first = np.full(rows.trajectory.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, rows.trajectory[rows.real], rows.turn[rows.real])
    return rows.real & (rows.turn == first[rows.trajectory])
