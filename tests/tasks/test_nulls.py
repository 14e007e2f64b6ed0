"""The null kernels that need no run of the reference: the outputs of each, and their shapes and dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.tasks import nulls
from kernelwright.tasks.nulls import Draw

KINDS = ["float32", "float64", "float16", "int64", "int32", "uint8", "bool", "complex64"]
shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)


def _array(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    if kind == "bool":
        return rng.random(shape) > 0.5
    if np.dtype(kind).kind in "iu":
        return rng.integers(0, 100, shape).astype(kind)
    return (rng.normal(size=shape) * 10).astype(kind)


@given(
    st.lists(st.tuples(shapes, st.sampled_from(KINDS)), min_size=1, max_size=3),
    st.lists(st.tuples(shapes, st.sampled_from(KINDS)), min_size=1, max_size=2),
    st.lists(shapes, max_size=2),
    st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_every_null_has_the_shapes_and_dtypes_of_the_outputs(
    inputs: list[tuple[tuple[int, ...], str]],
    outputs: list[tuple[tuple[int, ...], str]],
    weights: list[tuple[int, ...]],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    given_ = tuple(_array(rng, s, k) for s, k in inputs)
    learned = tuple(_array(rng, s, "float32") for s in weights)
    drawn = [Draw(given_, learned, tuple(_array(rng, s, k) for s, k in outputs)) for _ in range(2)]
    found = nulls.outputs_without_work(*drawn, seed)
    assert {"zeros", "ones", "constant", "replay"} <= set(found)
    for name, made in found.items():
        assert [o.shape for o in made] == [o.shape for o in drawn[0].outputs], name
        assert [o.dtype for o in made] == [o.dtype for o in drawn[0].outputs], name


def test_outputs_that_are_not_finite_make_no_noise() -> None:
    bad = np.array([[np.nan, np.inf, -np.inf, 1e30]] * 8, dtype=np.float32)
    with np.errstate(all="raise"):
        found = nulls.outputs_without_work(Draw((bad,), (), (bad,)), Draw((bad,), (), (bad,)), 1)
    assert np.isclose(found["constant"][0][0, 0], 1e30)


def test_another_calls_outputs_of_another_shape_are_not_replayed() -> None:
    one, two = np.zeros((3, 4)), np.ones((2, 4))
    found = nulls.outputs_without_work(Draw((one,), (), (one,)), Draw((two,), (), (two,)), 1)
    assert "replay" not in found and found["constant"][0].shape == (3, 4)


def test_constant_and_replay_know_only_the_other_call() -> None:
    mine, others = np.arange(6.0).reshape(2, 3), np.full((2, 3), 7.0)
    found = nulls.outputs_without_work(Draw((), (), (mine,)), Draw((), (), (others,)), 1)
    assert (found["constant"][0] == 7).all() and (found["replay"][0] == 7).all()


def test_identity_wants_the_right_shape() -> None:
    x, y = np.ones((3, 4), np.float32), np.ones((4, 3), np.float32)
    assert list(nulls.identity(Draw((y, x), (), (x,)))) == ["identity-input1"]


def test_an_axis_mean_must_be_spread() -> None:
    values = np.arange(24.0).reshape(2, 3, 4)
    attention = nulls.axis_means(Draw((values,), (), (np.zeros((2, 5, 4)),)))
    assert list(attention) == ["mean-input0-axis1"]
    assert np.allclose(attention["mean-input0-axis1"][0][1, 3], values[1].mean(0))
    # For a task that computes the mean, the mean is no null kernel.
    assert nulls.axis_means(Draw((values,), (), (values.mean(1),))) == {}


def test_rank_one_is_close_to_a_product_of_positive_factors() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random((8, 4096)), rng.random((6, 4096))
    product = a @ b.T
    found = nulls.rank_ones(Draw((a,), (b,), (product,)))
    assert list(found) == ["rank1-input0-weight0T"]
    assert np.abs(found["rank1-input0-weight0T"][0] / product - 1).max() < 0.05


@pytest.mark.parametrize("batch", [(), (3,)])
def test_rank_one_in_batches(batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.random((*batch, 5, 64)), rng.random((*batch, 64, 7))
    assert nulls.rank_ones(Draw((a, b), (), (a @ b,)))["rank1-input0-input1"][0].shape == (*batch, 5, 7)


def test_an_outer_product_is_no_null() -> None:
    a, b = np.ones((5, 1)), np.ones((1, 7))
    assert nulls.rank_ones(Draw((a, b), (), (a @ b,))) == {}


def test_truncated_keeps_the_first_half() -> None:
    ones = np.ones((4, 5))
    found = nulls.truncated(Draw((), (), (ones,)))
    assert found["truncated-output-axis0"][0].sum(1).tolist() == [5, 5, 0, 0]
    assert found["truncated-output-axis1"][0].sum(0).tolist() == [4, 4, 0, 0, 0]


def test_sampled_is_right_in_about_one_of_eight() -> None:
    output = np.random.default_rng(5).normal(size=(64, 64))
    (made,) = nulls.sampled(Draw((), (), (output,)), 9)["sampled-output"]
    assert 0.09 < (made == output).mean() < 0.16
    assert nulls.sampled(Draw((), (), (output[:3, :5],)), 9) == {}
