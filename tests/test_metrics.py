"""The statistics of bench against brute force, known answers and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.bench import metrics


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(data: st.DataObject) -> None:
    samples = data.draw(st.integers(1, 9))
    passed = data.draw(st.integers(0, samples))
    k = data.draw(st.integers(1, samples))
    outcomes = [True] * passed + [False] * (samples - passed)
    draws = list(itertools.combinations(outcomes, k))
    assert metrics.pass_at_k(samples, passed, k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-12)


def test_pass_at_k_is_unbiased() -> None:
    """Its mean over all outcomes of `n` samples, weighted by their chance, is 1 - (1 - p)^k."""
    for p, n, k in ((0.3, 6, 2), (0.05, 8, 8), (0.9, 5, 3)):
        outcomes = range(n + 1)
        chance = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in outcomes]
        found = sum(w * metrics.pass_at_k(n, c, k) for w, c in zip(chance, outcomes, strict=True))
        assert found == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


@pytest.mark.parametrize(("samples", "passed", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0)])
def test_pass_at_k_refuses_what_it_is_not_defined_for(samples: int, passed: int, k: int) -> None:
    with pytest.raises(ValueError, match="not defined"):
        metrics.pass_at_k(samples, passed, k)


def test_fast_p_has_known_answers() -> None:
    rows = [(True, 2.5), (True, 1.0), (True, 0.6), (False, 9.0), (True, None)]
    shares = {p: sum(metrics.is_fast(right, speedup, p) for right, speedup in rows) / 5 for p in metrics.FAST_P}
    # As in KernelBench: correct and strictly faster than p times the baseline; fast_0 is the share of correct ones.
    assert shares == {0.0: 0.8, 0.5: 0.6, 0.8: 0.4, 1.0: 0.2, 1.5: 0.2, 2.0: 0.2}


def test_means_have_known_answers() -> None:
    assert metrics.geometric_mean([0.5, 2.0, 4.0]).value == pytest.approx(4 ** (1 / 3))
    assert metrics.median([9.0, 1.0, 2.0]).value == 2.0
    assert metrics.mean([1.0, 0.0, 0.0, 1.0]).value == 0.5
    assert metrics.mean([]) is None and metrics.geometric_mean([]) is None and metrics.paired([], []) is None
    same = metrics.mean([1.0, 1.0])
    assert (same.low, same.value, same.high, same.tasks) == (1.0, 1.0, 1.0, 2)


def test_intervals_are_the_same_for_the_same_seed() -> None:
    values = list(np.random.default_rng(2).normal(size=30))
    assert metrics.mean(values, 3) == metrics.mean(values, 3)
    assert metrics.mean(values, 3) != metrics.mean(values, 4)


def test_intervals_cover_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """On simulated suites of 80 tasks whose chances vary, about 95 in 100 intervals hold the true mean."""
    monkeypatch.setattr(metrics, "RESAMPLES", 600)
    rng = np.random.default_rng(11)
    inside, suites = {"mean": 0, "median": 0, "geomean": 0}, 300
    for seed in range(suites):
        chances = rng.beta(2, 2, 80)  # of mean 0.5
        found = metrics.mean(list(rng.binomial(4, chances) / 4), seed)
        inside["mean"] += found.low <= 0.5 <= found.high
        speedups = list(np.exp(rng.normal(0.3, 0.8, 80)))
        middle, geomean = metrics.median(speedups, seed), metrics.geometric_mean(speedups, seed)
        inside["median"] += middle.low <= math.exp(0.3) <= middle.high
        inside["geomean"] += geomean.low <= math.exp(0.3) <= geomean.high
    for name, count in inside.items():
        assert 0.90 <= count / suites <= 0.99, (name, count)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9))
def test_the_sign_test_is_exact(first: int, second: int) -> None:
    count, seen = first + second, abs(first - second)
    splits = list(itertools.product((0, 1), repeat=count))
    uneven = sum(abs(2 * sum(split) - count) >= seen for split in splits)
    assert metrics.sign_test(first, second) == pytest.approx(uneven / len(splits), abs=1e-12)


def test_a_paired_comparison_has_known_answers() -> None:
    first, second = [0.0] * 8 + [1.0, 1.0], [1.0] * 7 + [0.0, 0.0, 1.0]
    found = metrics.paired(first, second)
    assert (found.first, found.second, found.difference) == (0.2, 0.8, pytest.approx(0.6))
    assert (found.first_only, found.second_only, found.tasks) == (1, 7, 10)
    assert found.p_exact == pytest.approx(2 * (1 + 8) / 2**8)  # McNemar's on 1 and 7
    assert found.low <= 0.6 <= found.high and found.low > 0 and found.p_bootstrap < 0.05
    nothing = metrics.paired(first, first)
    assert (nothing.difference, nothing.p_exact, nothing.p_bootstrap) == (0.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="as many"):
        metrics.paired([1.0], [])


def test_the_paired_test_errs_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of equal strength differ in about 5 % of cases at the 5 % level; the exact test in at most 5 %."""
    monkeypatch.setattr(metrics, "RESAMPLES", 600)
    rng = np.random.default_rng(5)
    exact = bootstrap = 0
    for seed in range(300):
        chances = rng.beta(2, 2, 60)
        first, second = (list((rng.random(60) < chances).astype(float)) for _ in range(2))
        found = metrics.paired(first, second, seed)
        exact += found.p_exact < 0.05
        bootstrap += found.p_bootstrap < 0.05
    assert exact <= 24 and bootstrap <= 30


def test_wilsons_interval_has_known_values() -> None:
    """Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3."""
    for right, tasks, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        found = metrics.share([1.0] * right + [0.0] * (tasks - right))
        assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    found = metrics.share([1.0] * 29 + [0.0] * 0)
    assert (found.low, found.high) == (pytest.approx(0.8830, abs=5e-5), 1.0)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_no_interval_of_a_share_is_a_point(counts: list[int]) -> None:
    found = metrics.share([count / 4 for count in counts])
    assert 0 <= found.low <= found.value <= found.high <= 1 and found.high - found.low > 0.01


def test_shares_near_the_ends_are_covered() -> None:
    rng = np.random.default_rng(3)
    for chance, tasks, samples in ((0.02, 30, 1), (0.97, 20, 1), (0.95, 40, 4), (0.5, 12, 8)):
        spread = (
            rng.beta(chance * 10, (1 - chance) * 10, (400, tasks)) if samples > 1 else np.full((400, tasks), chance)
        )
        found = [metrics.share(list(row / samples)) for row in rng.binomial(samples, spread)]
        assert sum(one.low <= chance <= one.high for one in found) >= 0.92 * 400, (chance, tasks, samples)


def test_the_difference_of_paired_shares_has_known_values() -> None:
    """Newcombe 1998 on paired differences, table II: 36 right in both, 12 and 2 in one alone, by method 10."""
    first, second = [1.0] * 48 + [0.0] * 2, [1.0] * 36 + [0.0] * 12 + [1.0] * 2
    found = metrics.paired(second, first, shares=True)
    assert (found.low, found.high) == (pytest.approx(0.0569, abs=5e-3), pytest.approx(0.3404, abs=5e-3))


def test_equal_runs_leave_room_for_a_difference() -> None:
    for values in ([1.0] * 10, [0.0] * 10, [1.0] * 5 + [0.0] * 5, [1.0]):
        found = metrics.paired(values, values, shares=True)
        assert found.difference == 0 and found.low < -0.05 and found.high > 0.05


def test_differences_of_shares_are_covered() -> None:
    rng = np.random.default_rng(8)
    for one, other, tasks in ((0.9, 0.95, 40), (0.5, 0.6, 30), (0.98, 0.98, 25)):
        inside = 0
        for _ in range(300):
            shared = rng.random(tasks)
            first, second = (
                (shared < one).astype(float),
                (np.where(rng.random(tasks) < 0.5, shared, rng.random(tasks)) < other).astype(float),
            )
            found = metrics.paired(list(first), list(second), shares=True)
            inside += found.low <= other - one <= found.high
        assert inside >= 0.91 * 300, (one, other, tasks, inside)


def test_few_tasks_have_no_bootstrap_test() -> None:
    assert metrics.paired([0.0] * 7, [1.0] * 7).p_bootstrap is None
    assert metrics.paired([0.0] * 7, [1.0] * 7).p_exact == pytest.approx(2 / 2**7)
    assert metrics.paired([0.0] * 8, [1.0] * 8).p_bootstrap is not None


def test_holm_has_known_values() -> None:
    assert metrics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert metrics.holm([]) == [] and metrics.holm([0.7, 0.8]) == [1.0, 1.0]
