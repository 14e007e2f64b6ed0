"""Pure statistics over tasks and samples: pass@k, fast_p, means, bootstrap intervals, paired tests. numpy only.

pass@k: Chen et al. 2021, "Evaluating Large Language Models Trained on Code". fast_p: Ouyang et al. 2025, "KernelBench".
Intervals resample tasks, since samples of one task are not independent. Every function is seeded, so that a run's
table is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 4000
LEVEL = 0.95
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
    these counts (with one sample per task, McNemar's test); `p_bootstrap` is the bootstrap test.
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
    p_bootstrap: float

    def plain(self) -> dict[str, float | int]:
        """Plain data, for JSON."""
        return dict(self.__dict__)


def paired(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Paired | None:
    """Compares two runs by one number per task, in the same order of tasks; None without tasks.

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
    worse, better = int((gain < 0).sum()), int((gain > 0).sum())
    # Add one to both counts: a bootstrap cannot show a p-value below 1 / resamples.
    share = (1 + min(int((resampled <= 0).sum()), int((resampled >= 0).sum()))) / (RESAMPLES + 1)
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
        p_bootstrap=min(1.0, 2 * share),
    )


def sign_test(first: int, second: int) -> float:
    """Returns the two-sided p-value of the exact sign test on `first` against `second` wins.

    With the counts of tasks that only one of two runs solved, this is McNemar's exact test.
    """
    count, fewer = first + second, min(first, second)
    if not count:
        return 1.0
    tail = sum(math.comb(count, i) for i in range(fewer + 1)) / 2**count
    return min(1.0, 2 * tail)
