"""Filters: the rows that they keep and the rows that they must not drop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kernelwright.errors import ConfigError
from kernelwright.training.rl.filters import (
    dynamic_sampling,
    mismatch_rejection,
    profiling_rejection,
    shares,
    varied_groups,
    widened,
)


def test_rows_are_kept_where_sampler_and_trainer_agree() -> None:
    base = np.full((5, 4), -1.0)
    moved = base.copy()
    moved[1] += 0.0009  # a geometric mean of 1.0009
    moved[2] += 0.0011
    moved[3, 0] += math.log(1e-4) - 0.01  # one token that the trainer finds impossible,
    moved[3, 1] -= math.log(1e-4) - 0.01  # made up for by another
    mask = np.ones((5, 4), bool)
    mask[4] = False
    moved[4] = 50.0
    found = mismatch_rejection(moved, base, mask)
    assert found.keep.tolist() == [True, True, False, False, True]
    assert found.vetoed.tolist() == [False, False, False, True, False]
    assert found.ratio[:3] == pytest.approx([1.0, math.exp(0.0009), math.exp(0.0011)])
    assert found.rejected_share == pytest.approx(0.4)
    tensors = mismatch_rejection(torch.tensor(moved), torch.tensor(base), torch.tensor(mask))
    assert tensors.keep.tolist() == found.keep.tolist()


def test_tokens_outside_the_mask_do_not_count_and_broken_ones_reject() -> None:
    base = np.full((2, 3), -1.0)
    moved = base.copy()
    moved[0, 2] = math.nan
    moved[1, 0] = -math.inf
    found = mismatch_rejection(moved, base, np.array([[True, True, False], [True, True, True]]))
    assert found.keep.tolist() == [True, False]


def test_bounds_widen_only_when_most_rows_go() -> None:
    assert widened(0.999, 1.001, 0.6) == (0.999, 1.001)
    assert widened(0.999, 1.001, 0.61) == pytest.approx((0.998, 1.002))
    low, high = 0.999, 1.001
    for _ in range(30):
        low, high = widened(low, high, 1.0)
    assert 0 < low < 1 < high


def test_a_share_of_the_lazy_kernels_is_kept_and_every_wrong_one() -> None:
    n = 20000
    ratio = np.tile([0.1, 0.33, 0.37, 0.9], n // 4)
    keep = profiling_rejection(ratio, np.ones(n, bool), seed=3)
    for value, chance in ((0.1, 0.0), (0.33, 0.3), (0.37, 0.7), (0.9, 1.0)):
        assert keep[ratio == value].mean() == pytest.approx(chance, abs=0.02)
    assert profiling_rejection(ratio, np.zeros(n, bool), seed=3).all()
    assert (profiling_rejection(ratio, np.ones(n, bool), seed=3) == keep).all()
    assert (profiling_rejection(ratio, np.ones(n, bool), seed=4) != keep).any()
    with pytest.raises(ConfigError, match="seed = -1"):
        profiling_rejection(ratio, np.ones(n, bool), seed=-1)


def test_what_was_not_profiled_or_is_fast_is_kept() -> None:
    assert profiling_rejection([None, 0.0], [True, True], 0).tolist() == [True, False]
    fast = profiling_rejection([0.0, 0.0, 0.0], [True] * 3, 0, keep_speedup=2.0, speedup=[2.5, 1.0, None])
    assert fast.tolist() == [True, False, False]


def test_groups_of_one_score_are_skipped() -> None:
    score = [0.0, 0.0, 1.0, 0.0, 5.0, None, 2.0, 3.0]
    group = ["a", "a", "b", "b", "c", "c", "d", "d"]
    mask = [True] * 7 + [False]
    assert varied_groups(score, group, mask).tolist() == [False, False, True, True, False, False, False, False]
    assert varied_groups([], []).tolist() == []


def test_dynamic_sampling_tells_labels_apart_by_type_and_leaves_padding_out() -> None:
    group = [1, 1, "1", "1", True, True, None]
    found = dynamic_sampling([0.0, 1.0, 2.0, 2.0, 3.0, 4.0, 9.0], group, [1, 1, 1, 1, 1, 1, 0], wanted=3)
    assert (found.groups, found.missing, found.sampled) == ((1, True), 1, 3)
    assert [type(label) for label in found.groups] == [int, bool]
    assert found.keep.tolist() == [True, True, False, False, True, True, False]


def test_dynamic_sampling_takes_groups_in_order_and_says_what_is_missing() -> None:
    score = [0.0, 0.0, 1.0, 0.0, 3.0, 2.0, 0.0, 7.0]
    group = [9, 9, 4, 4, 7, 7, 1, 1]
    found = dynamic_sampling(score, group, wanted=2)
    assert found.groups == (4, 7) and found.missing == 0 and found.sampled == 4
    assert found.keep.tolist() == [False, False, True, True, True, True, False, False]
    more = dynamic_sampling(score, group, wanted=5)
    assert more.groups == (4, 7, 1) and more.missing == 2
    assert dynamic_sampling([0.0], ["a"], wanted=1).missing == 1
    assert shares(found.keep, group).tolist() == [0, 0, 1, 1, 1, 1, 0, 0]


def test_long_answers_in_half_precision_are_summed_in_full() -> None:
    there = np.full((1, 8000), -18.0, dtype=np.float16)
    found = mismatch_rejection(there + np.float16(9.0), there, np.ones((1, 8000)), high=1e4)
    assert found.keep.tolist() == [True] and found.ratio[0] == pytest.approx(np.exp(9.0))


def test_verdicts_are_not_taken_for_right_answers() -> None:
    with pytest.raises(ConfigError, match="column correct"):
        profiling_rejection([0.0, 0.0], ["wrong", "correct"], 0)
    assert profiling_rejection([0.0, 0.0, 0.0], [None, 0, 1], 0).tolist() == [True, True, False]


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ConfigError):
        mismatch_rejection(np.zeros((1, 2)), np.zeros((1, 3)), np.zeros((1, 2)))
    with pytest.raises(ConfigError):
        mismatch_rejection(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 2)), low=1.1)
    with pytest.raises(ConfigError):
        profiling_rejection([0.1], [True, False], 0)
    with pytest.raises(ConfigError):
        profiling_rejection([0.1], [True], 0, scale=0.0)
    with pytest.raises(ConfigError):
        profiling_rejection([0.1], [True], 0, keep_speedup=1.0)
    for wrong in (
        {"scale": np.nan},
        {"scale": np.inf},
        {"tau": np.nan},
        {"keep_speedup": 1.0, "speedup": [2.0]},
        {"keep_speedup": np.nan, "speedup": [2.0, 2.0]},
    ):
        with pytest.raises(ConfigError):
            profiling_rejection([0.1, 0.1], [True, True], 0, **wrong)
    for veto in (0.0, -1.0, np.nan, 1.5):
        with pytest.raises(ConfigError, match="veto"):
            mismatch_rejection(np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2)), veto=veto)
    with pytest.raises(ConfigError):
        dynamic_sampling([0.1], [1], wanted=0)
    with pytest.raises(ConfigError, match="seed"):
        profiling_rejection([0.1], [True], 0.5)  # type: ignore[arg-type]
    for rows in ([[-1.0], [-1.0, -2.0]], [["x"], ["y"]]):
        with pytest.raises(ConfigError, match="several lengths"):
            mismatch_rejection(rows, rows, rows)
    with pytest.raises(ConfigError):
        varied_groups([0.1], [1, 2])
    with pytest.raises(ConfigError, match="mask of 1"):
        varied_groups([0.1, 0.2], [1, 1], [True])
