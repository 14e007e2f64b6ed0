"""Pure statistics over tasks and samples: pass@k, fast_p, means, intervals, paired tests. numpy only.

pass@k: Chen et al. 2021, "Evaluating Large Language Models Trained on Code". fast_p: Ouyang et al. 2025, "KernelBench".
Intervals are over tasks, since samples of one task are not independent. Those of shares are Wilson's, which do not
shrink to a point where every task or none is solved; those of speedups resample tasks. Every function is seeded, so
that a run's table is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 4000
LEVEL = 0.95
NORMAL_QUANTILE = 1.959963984540054
"""The quantile of the normal distribution for two-sided intervals at `LEVEL`."""
LEAST_BOOTSTRAPPED = 8
"""The fewest tasks for a bootstrap test: with fewer there are too few resamples that differ."""
FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
_CHUNK = 2_000_000  # numbers drawn at a time; bounds memory


@dataclass(frozen=True)
class Estimate:
    """An estimate with its interval and the number of tasks behind it."""

    value: float
    low: float
    high: float
    tasks: int

    def plain(self) -> dict[str, float | int]:
        """Plain data, for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "tasks": self.tasks}


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Returns the unbiased estimate of the chance that one of `k` samples passes, given `passed` of `samples`.

    1 - C(n - c, k) / C(n, k). Raises `ValueError` unless 0 <= passed <= samples and 1 <= k <= samples.
    """
    if not (0 <= passed <= samples and 1 <= k <= samples):
        raise ValueError(f"pass@{k} is not defined for {passed} of {samples} samples")
    return 1.0 - math.comb(samples - passed, k) / math.comb(samples, k)


def is_fast(correct: bool, speedup: float | None, p: float) -> bool:
    """Applies KernelBench's criterion: correct, and faster than the baseline by more than a factor `p`.

    p = 0 needs no timing: fast_0 is the share of correct samples.
    """
    return correct and (p == 0.0 or (speedup is not None and speedup > p))


def share(values: Sequence[float]) -> Estimate | None:
    """Returns the mean of shares of tasks (numbers from 0 to 1) with Wilson's interval; None without tasks.

    Several samples of a task make its share vary less than one sample would. The interval then counts as many tasks as
    would vary so little with one sample each. Where all tasks have the same share, it counts the tasks themselves.
    Raises `ValueError` for a number outside of 0 to 1.
    """
    given = np.asarray(values, dtype=float)
    if not given.size:
        return None
    if given.min() < 0 or given.max() > 1:
        raise ValueError("a share lies between 0 and 1")
    center = float(given.mean())
    variance = float(given.var(ddof=1)) if given.size > 1 else 0.0
    counted = max(float(given.size), center * (1 - center) / variance * given.size) if variance > 0 else given.size
    low, high = wilson(center, float(counted))
    return Estimate(center, low, high, int(given.size))


def wilson(center: float, count: float) -> tuple[float, float]:
    """Returns Wilson's score interval at `LEVEL` of a share `center` of `count` trials, which may be a fraction."""
    z = NORMAL_QUANTILE
    middle = (center + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(center * (1 - center) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    # At 0 and 1 the bound is exact; rounding must not put the share itself outside.
    return max(0.0, min(center, middle - half)), min(1.0, max(center, middle + half))


def mean(values: Sequence[float], seed: int = 0) -> Estimate | None:
    """Returns the mean over tasks; None without tasks."""
    return bootstrap(values, lambda rows: rows.mean(axis=1), seed)


def geometric_mean(values: Sequence[float], seed: int = 0) -> Estimate | None:
    """Returns the geometric mean of positive values over tasks; None without tasks."""
    found = bootstrap([math.log(v) for v in values], lambda rows: rows.mean(axis=1), seed)
    if found is None:
        return None
    return Estimate(math.exp(found.value), math.exp(found.low), math.exp(found.high), found.tasks)


def median(values: Sequence[float], seed: int = 0) -> Estimate | None:
    """Returns the median over tasks; None without tasks."""
    return bootstrap(values, lambda rows: np.median(rows, axis=1), seed)


def bootstrap(
    values: Sequence[float], statistic: Callable[[np.ndarray], np.ndarray], seed: int = 0, level: float = LEVEL
) -> Estimate | None:
    """Returns a statistic of one number per task, with its percentile interval over `RESAMPLES` resamples of tasks.

    `statistic` maps (resamples, tasks) to (resamples,). None without values.
    """
    given = np.asarray(values, dtype=float)
    if not given.size:
        return None
    tail = (1 - level) / 2
    low, high = np.quantile(_resampled(given, statistic, seed), [tail, 1 - tail])
    return Estimate(float(statistic(given[None, :])[0]), float(low), float(high), int(given.size))


def _resampled(values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK // values.size)
    counts = [min(step, RESAMPLES - done) for done in range(0, RESAMPLES, step)]
    return np.concatenate([statistic(rng.choice(values, (count, values.size))) for count in counts])


@dataclass(frozen=True)
class Paired:
    """Two runs on the same tasks: means, their difference B - A with its interval, and tests of no difference.

    `first_only` and `second_only` count the tasks on which A or B was better. `p_exact` is the exact binomial test on
    these counts (with one sample per task, McNemar's test); `p_bootstrap` is the bootstrap test, None for fewer than
    `LEAST_BOOTSTRAPPED` tasks.
    """

    tasks: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    first_only: int
    second_only: int
    p_exact: float
    p_bootstrap: float | None

    def plain(self) -> dict[str, float | int | None]:
        """Plain data, for JSON."""
        return dict(self.__dict__)


def paired(first: Sequence[float], second: Sequence[float], seed: int = 0, *, shares: bool = False) -> Paired | None:
    """Compares two runs by one number per task, in the same order of tasks; None without tasks.

    With `shares`, the numbers lie between 0 and 1, and the interval of the difference comes from Wilson's of both.
    Raises `ValueError` if the lengths differ.
    """
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if a.shape != b.shape:
        raise ValueError("a paired test needs as many values on both sides")
    if not a.size:
        return None
    gain = b - a
    resampled = _resampled(gain, lambda rows: rows.mean(axis=1), seed)
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if shares:
        low, high = _difference_of_shares(a, b)
    worse, better = int((gain < 0).sum()), int((gain > 0).sum())
    # Add one to both counts: a bootstrap cannot show a p-value below 1 / resamples.
    tail = (1 + min(int((resampled <= 0).sum()), int((resampled >= 0).sum()))) / (RESAMPLES + 1)
    return Paired(
        tasks=int(a.size),
        first=float(a.mean()),
        second=float(b.mean()),
        difference=float(gain.mean()),
        low=float(low),
        high=float(high),
        first_only=worse,
        second_only=better,
        p_exact=sign_test(worse, better),
        p_bootstrap=min(1.0, 2 * tail) if a.size >= LEAST_BOOTSTRAPPED else None,
    )


def _difference_of_shares(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Returns the interval of mean(b) - mean(a): Newcombe's for paired shares, from both intervals and a correlation.

    Newcombe 1998, "Improved confidence intervals for the difference between binomial proportions based on paired data"
    (method 10). Its correction for continuity keeps the interval of two equal runs from shrinking to a point.
    """
    one, other = share(list(a)), share(list(b))
    assert one is not None and other is not None
    varies = a.std() > 0 and b.std() > 0
    together = float(np.corrcoef(a, b)[0, 1]) if varies else 0.0
    if together > 0:
        together = max(0.0, together - 2 / a.size)
    down, up = other.value - other.low, other.high - other.value
    down_one, up_one = one.value - one.low, one.high - one.value
    difference = other.value - one.value
    below = math.sqrt(max(0.0, down**2 - 2 * together * down * up_one + up_one**2))
    above = math.sqrt(max(0.0, up**2 - 2 * together * up * down_one + down_one**2))
    return max(-1.0, difference - below), min(1.0, difference + above)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values adjusted by Holm's step-down method for a family of claims, in the same order."""
    order = sorted(range(len(p_values)), key=lambda k: p_values[k])
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, k in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[k]))
        adjusted[k] = largest
    return adjusted


def family(claims: Mapping[str, Paired | None]) -> dict[str, dict[str, float | int | None]]:
    """Returns the comparisons of one family of claims as plain data by name, each with its `p_holm` beside `p_exact`.

    Leaves out comparisons without tasks.
    """
    made = {name: found.plain() for name, found in claims.items() if found is not None}
    adjusted = holm([float(found.p_exact) for found in claims.values() if found is not None])
    return {name: {**row, "p_holm": p} for (name, row), p in zip(made.items(), adjusted, strict=True)}


def sign_test(first: int, second: int) -> float:
    """Returns the two-sided p-value of the exact sign test on `first` against `second` wins.

    With the counts of tasks that only one of two runs solved, this is McNemar's exact test.
    """
    count, fewer = first + second, min(first, second)
    if not count:
        return 1.0
    tail = sum(math.comb(count, i) for i in range(fewer + 1)) / 2**count
    return min(1.0, 2 * tail)
