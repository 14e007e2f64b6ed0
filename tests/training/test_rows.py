"""Rows as callers pass them: labels of any kind, arbitrary padding, numbers that are too large."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from kernelwright.errors import ConfigError
from kernelwright.training.rl.advantages import ADVANTAGES
from kernelwright.training.rl.filters import dynamic_sampling, profiling_rejection, shares, varied_groups
from kernelwright.training.rl.rows import as_numpy, numbered, read_rows

PAIRS: list[tuple[Any, Any]] = [
    (2**63 + 1, 2**63 + 2),  # of no more than 64 bits, but float64 beside a negative one
    (2**70, 2**70 + 1),
    (1, "1"),
    (True, "True"),
    (1, True),
    (1.0, 1),
    (2**60 + 1, float(2**60)),
    ("a", "a\0"),
    (b"a", "a"),
    (np.int64(3), "3"),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("column", ["group", "trajectory"])
def test_labels_are_told_apart_as_python_tells_them(one: Any, other: Any, column: str) -> None:
    labels = [one, one, other, other, -1, -1]
    for given in (labels, tuple(labels), np.fromiter(labels, dtype=object, count=6)):
        if column == "group":
            found = ADVANTAGES["mean"]([0, 1, 5, 7, 9, 9], given, [0, 1, 0, 1, 0, 1], [0] * 6)
            assert found.tolist() == [-0.5, 0.5, -1.0, 1.0, 0.0, 0.0]
        else:
            found = read_rows([0.0] * 6, [0] * 6, given, [0, 1] * 3, None).trajectory
            assert len(set(found.tolist())) == 3


def test_equal_labels_of_any_library_are_one() -> None:
    for labels in (
        [np.int64(1), 1, torch.tensor(1), 2],
        [np.str_("a"), "a", "a", "b"],
        [np.float32(0.5), 0.5, torch.tensor(0.5, dtype=torch.bfloat16), 1.5],
        np.array([1, 1, 1, 2], dtype=np.uint8),
        np.array(["a", "a", "a", "b"]),
        torch.tensor([7, 7, 7, 8]),
        [math.nan, float("nan"), math.nan, "x"],
    ):
        assert varied_groups([0.0, 0.0, 1.0, 2.0], labels).tolist() == [True, True, True, False]
        assert numbered(as_numpy(labels)).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("label", [(0, 1), [0], {"a": 1}])
def test_what_is_no_label_is_refused(label: Any) -> None:
    for name in ("mean", "trloo"):
        with pytest.raises(ConfigError, match="column group") as error:
            ADVANTAGES[name]([1.0, 0.0], [label, label], [0, 1], [0, 0])
        assert "a number or a name" in str(error.value.hint)
    with pytest.raises(ConfigError, match=type(label).__name__):
        dynamic_sampling([1.0, 0.0], [label, label], wanted=1)


def test_dynamic_sampling_tells_labels_apart() -> None:
    found = dynamic_sampling([0, 0, 1, 0, 3, 2], [1, 1, "1", "1", 2**70, 2**70], wanted=1)
    assert found.groups == ("1",) and found.sampled == 3 and found.missing == 0
    assert found.keep.tolist() == [False, False, True, True, False, False]
    large = [2**63 + 1, 2**63 + 1, 2**63 + 2, 2**63 + 2, -1, -1]
    more = dynamic_sampling([0, 1, 0, 2, 0, 0], large, wanted=2)
    assert more.groups == (2**63 + 1, 2**63 + 2) and more.keep.tolist() == [True] * 4 + [False] * 2
    assert shares(more.keep, large).tolist() == [1.0] * 4 + [0.0] * 2


@pytest.mark.parametrize("name", list(ADVANTAGES))
def test_padding_may_hold_anything(name: str) -> None:
    plain = ADVANTAGES[name]([1.0, 0.0, 0.5], [0, 0, 0], [0, 1, 2], [0, 0, 0]).tolist()
    odd: Sequence[tuple[int, Any]] = [
        *((0, score) for score in (math.inf, "none", 10**400)),
        *((1, label) for label in (None, math.nan, "x", (1, 2), [3])),
        *((2, label) for label in (None, math.nan, "x", (1, 2), [3])),
        *((3, turn) for turn in (None, math.nan, "x", 0.5, True, 2**80)),
    ]
    for column, value in odd:
        columns: list[list[Any]] = [[1.0, 0.0, 9.0, 0.5], [0, 0, 0, 0], [0, 1, 9, 2], [0, 0, 0, 0]]
        columns[column][2] = value
        found = ADVANTAGES[name](*columns, [True, True, False, True]).tolist()
        assert found == [*plain[:2], 0.0, plain[2]], (column, value)
    twice = ADVANTAGES[name]([1.0, 0.0, 7.0, 0.5], [0] * 4, [0, 1, 1, 2], [0] * 4, [True, True, False, True])
    assert twice.tolist() == [*plain[:2], 0.0, plain[2]]
    tensors = [torch.tensor(x) for x in ([1.0, 0.0, 9.0, 0.5], [0, 0, 0, 0], [0, 1, 9, 2], [0.0, 0.0, math.nan, 0.0])]
    assert ADVANTAGES[name](*tensors, torch.tensor([1, 1, 0, 1])).tolist() == pytest.approx([*plain[:2], 0, plain[2]])


@pytest.mark.parametrize("turn", [2**63, 1e300, math.inf, math.nan, True, None])
def test_a_turn_is_a_number_of_64_bits(turn: Any) -> None:
    with pytest.raises(ConfigError, match="turn"):
        ADVANTAGES["trloo"]([1.0, 0.0], [0, 0], [0, 1], [turn, 0])
    assert ADVANTAGES["trloo"]([1.0, 0.0], [0, 0], [0, 1], [3, 3.0]).tolist() == [1.0, -1.0]


def test_a_score_beyond_all_floats_is_refused() -> None:
    with pytest.raises(ConfigError, match="beyond float64"):
        ADVANTAGES["mean"]([10**400, 0], [0, 0], [0, 1], [0, 0])


@pytest.mark.parametrize("mask", [["False", "True"], [math.nan, 1.0], [[1], [0]], [0.5, 1], torch.tensor([2, 1])])
def test_a_mask_is_true_or_false(mask: Any) -> None:
    """Text, NaN and lists are true in Python, so masked rows would take part."""
    for name in ADVANTAGES:
        with pytest.raises(ConfigError, match="column mask"):
            ADVANTAGES[name]([1.0, 0.0], [0, 0], [0, 1], [0, 0], mask)
    for select in (varied_groups, functools.partial(dynamic_sampling, wanted=1)):
        with pytest.raises(ConfigError, match="column mask"):
            select([1.0, 0.0], [0, 0], mask)


@pytest.mark.parametrize(
    "mask", [[True, None, 1], [1.0, 0.0, True], np.array([1, 0, 1]), torch.tensor([1.0, 0.0, 1.0])]
)
def test_numbers_and_none_are_a_mask(mask: Any) -> None:
    assert ADVANTAGES["mean"]([1.0, 9.0, 0.0], [0] * 3, [0, 1, 2], [0] * 3, mask).tolist() == [0.5, 0.0, -0.5]


@pytest.mark.parametrize("column", [["a", 1.0], ["0.5", "1"], np.array(["0.5", "1"]), [1j, 0], [[1], [2]]])
def test_what_is_no_number_is_refused(column: Any) -> None:
    with pytest.raises(ConfigError, match="no number"):
        varied_groups(column, [0, 0])
    with pytest.raises(ConfigError, match="no number"):
        profiling_rejection(column, [True, True], 0)
