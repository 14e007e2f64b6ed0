"""Advantage estimators: functions on flat rows, one row a turn, looked up by name. No trainer, no torch.

    ADVANTAGES["trloo"](score, group, trajectory, turn, mask, gamma=1.0)

All take columns of one length: `score` the turn's own reward (None or NaN: a harness fault, no reward at all), `group`
the task, `trajectory` the rollout, `turn` its number in it, `mask` false for padding; and return an advantage for each
row, in the caller's kind of array. Padding and rows without a score have advantage 0 and are in nobody's baseline.
Groups and trajectories have labels of any kind, told apart by equality and type. All is computed in float64, whatever
the scores are in; a result that the caller's kind cannot hold is a `ConfigError`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.errors import ConfigError, did_you_mean
from kernelwright.training.rl.rows import Array, Rows, counts, like, numbered, read_rows, sums

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

    A turn that no other rollout of the task has reached has no baseline: `single="skip"` gives it advantage 0, as the
    paper says; `"zero_baseline"` its whole return, as the authors' code does, and without which the estimate of the
    gradient is biased where rollouts may stop.
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
    """Leave-one-out over whole trajectories: each turn gets its rollout's return less the others' mean return.

    The baseline looks at no prefix of the rollout, not even at which turns it has, so that it is the same whatever the
    policy did: unbiased, also where rollouts may stop.
    """
    rows, unit = _in_units(read_rows(score, group, trajectory, turn, mask))
    returns = _discounted(rows, gamma, aggregate, missing)  # from the first turn on, be there no score for that one
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
    """The estimator of that name. Raises `ConfigError`."""
    if name in ADVANTAGES:
        return ADVANTAGES[name]
    hint = did_you_mean(name, ADVANTAGES, f"advantages: {', '.join(ADVANTAGES)}")
    raise ConfigError(f"there is no advantage {name!r}", hint=hint)


def returns_to_go(rows: Rows, gamma: float, aggregate: str = "sum", missing: str = "unknown") -> NDArray[np.float64]:
    """For each row the discounted sum, or the maximum, of its trajectory's scores from it on; NaN where not known.

    Discounts go by turn numbers. `missing="unknown"`: a score that is not there leaves the returns of the turns before
    it unknown, too, since to count it as zero would charge them for our fault; `"skip"` leaves it out of them.
    """
    return np.where(_scored(rows.score, rows), _discounted(rows, gamma, aggregate, missing), np.nan)


def _discounted(rows: Rows, gamma: float, aggregate: str, missing: str) -> NDArray[np.float64]:
    """The same; with `"skip"` a row without a score has what its trajectory gets after it."""
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


def _in_units(rows: Rows) -> tuple[Rows, NDArray[np.float64]]:
    """The rows with each group's scores in units of a power of two near its largest, and each row's unit.

    Sums and squares of scores in such units neither overflow nor vanish, and nothing is rounded that was not before.
    """
    largest = np.zeros(rows.group.max(initial=0) + 1)
    scored = _scored(rows.score, rows)
    np.maximum.at(largest, rows.group[scored], np.abs(rows.score[scored]))
    unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)  # one more would be infinite for the largest floats
    unit = np.where(largest > 0.0, unit, 1.0)[rows.group]
    return dataclasses.replace(rows, score=rows.score / unit), unit


def _times(values: Floats, unit: Floats) -> Any:
    with np.errstate(over="ignore"):  # `like` says so where it matters
        return values * unit


def _scored(values: NDArray[np.float64], rows: Rows) -> NDArray[np.bool_]:
    return rows.real & ~np.isnan(values)


def _centred(values: Floats, key: Floats, valid: Floats) -> Any:
    number = np.maximum(counts(key, valid), 1.0)
    centred = values - sums(values, key, valid) / number
    return np.where(valid & ~_constant(values, key, valid), centred, 0.0)


def _constant(values: Floats, key: Floats, valid: Floats) -> Any:
    """Rows whose valid peers all have one value: differences to their mean would be rounding errors only."""
    low, high = np.full(key.max(initial=0) + 1, np.inf), np.full(key.max(initial=0) + 1, -np.inf)
    np.minimum.at(low, key[valid], values[valid])
    np.maximum.at(high, key[valid], values[valid])
    return (low >= high)[key]


def _standardised(values: Floats, rows: Rows, ddof: int, eps: float, unit: Floats) -> Any:
    """`(v - mean) / (std + eps)` over each group; values are in units, `eps` is not."""
    if ddof < 0 or not 0.0 <= eps < math.inf:
        raise ConfigError(f"ddof = {ddof}, eps = {eps}", hint="use at least 0")
    valid = _scored(values, rows)
    centred = _centred(values, rows.group, valid)
    number = np.maximum(counts(rows.group, valid) - ddof, 1.0)
    deviation = np.sqrt(sums(centred**2, rows.group, valid) / number)
    with np.errstate(over="ignore"):  # next to nothing over an infinite number is the 0 that it has to be
        divisor = deviation + eps / unit
    return np.divide(centred, divisor, out=np.zeros_like(centred), where=divisor > 0)


def _leave_one_out(values: Floats, key: Floats, valid: Floats, single: str) -> Any:
    """`v_i - mean of the others' v` over rows of one key."""
    if single not in ("skip", "zero_baseline"):
        raise ConfigError(f"single = {single!r}", hint="use skip or zero_baseline")
    number = counts(key, valid)
    centred = _centred(values, key, valid)
    result = np.where(number > 1, centred * number / np.maximum(number - 1.0, 1.0), 0.0)
    if single == "zero_baseline":
        result = np.where(number == 1, values, result)
    return np.where(valid, result, 0.0)


def _first_rows(rows: Rows) -> Any:
    """Each trajectory's first row that is no padding."""
    first = np.full(rows.trajectory.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, rows.trajectory[rows.real], rows.turn[rows.real])
    return rows.real & (rows.turn == first[rows.trajectory])
