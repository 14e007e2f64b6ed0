"""Advantages against exact gradients of small problems, and against their formulas in plain Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.errors import ConfigError
from kernelwright.training.rl.advantages import ADVANTAGES, load_advantage

# The toy: in state 0 the policy stops (probability p) or goes on to state 1, where it goes up (probability q) or down.
# A trajectory is a list of (parameter that acted, d log pi / d parameter, score of the turn).
Trajectory = list[tuple[int, float, float]]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def toy(theta: Sequence[float], scores: Sequence[float] = (1.0, 0.2, 2.0, -0.5)) -> list[tuple[float, Trajectory]]:
    """Returns all trajectories with their probabilities, and the scores of stop, go on, up, down."""
    p, q = sigmoid(theta[0]), sigmoid(theta[1])
    stop, on, up, down = scores
    return [
        (p, [(0, 1 - p, stop)]),
        ((1 - p) * q, [(0, -p, on), (1, 1 - q, up)]),
        ((1 - p) * (1 - q), [(0, -p, on), (1, -q, down)]),
    ]


def exact_gradient(theta: Sequence[float]) -> list[float]:
    def objective(values: Sequence[float]) -> float:
        return sum(p * sum(s for _, _, s in trajectory) for p, trajectory in toy(values))

    step = 1e-5
    gradient = []
    for i in range(2):
        low, high = list(theta), list(theta)
        low[i] -= step
        high[i] += step
        gradient.append((objective(high) - objective(low)) / (2 * step))
    return gradient


Estimator = Callable[[list[Trajectory]], list[list[float]]]


def expected_gradient(theta: Sequence[float], number: int, estimate: Estimator) -> list[float]:
    """Returns the mean over all groups of `number` trajectories of `1/number sum A d log pi`."""
    gradient = [0.0, 0.0]
    for chosen in itertools.product(toy(theta), repeat=number):
        probability = math.prod(p for p, _ in chosen)
        group = [trajectory for _, trajectory in chosen]
        for trajectory, advantages in zip(group, estimate(group), strict=True):
            for (parameter, slope, _), advantage in zip(trajectory, advantages, strict=True):
                gradient[parameter] += probability * advantage * slope / number
    return gradient


def by_table(name: str, **parameters: Any) -> Estimator:
    """Turns an estimator of the table into one of lists of trajectories."""

    def estimate(group: list[Trajectory]) -> list[list[float]]:
        columns = [(s, n, t) for n, trajectory in enumerate(group) for t, (_, _, s) in enumerate(trajectory)]
        score, trajectory, turn = (list(column) for column in zip(*columns, strict=True))
        flat = ADVANTAGES[name](score, [0] * len(score), trajectory, turn, None, **parameters).tolist()
        return [[flat.pop(0) for _ in trajectory] for trajectory in group]

    return estimate


def turn_normalised(group: list[Trajectory]) -> list[list[float]]:
    """Returns a biased estimate: scores centred by turn number, then summed to go."""
    means = []
    for t in range(2):
        here = [trajectory[t][2] for trajectory in group if len(trajectory) > t]
        means.append(sum(here) / len(here) if here else 0.0)
    centred = [[s - means[t] for t, (_, _, s) in enumerate(trajectory)] for trajectory in group]
    return [[sum(row[t:]) for t in range(len(row))] for row in centred]


THETAS = [(0.3, -0.4), (-1.0, 1.2), (1.5, 0.0)]


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize(
    ("name", "parameters"),
    [("trloo", {"single": "zero_baseline"}), ("prefix_free", {}), ("prefix_free", {"single": "zero_baseline"})],
)
@pytest.mark.parametrize("number", [2, 3, 4])
def test_the_gradient_is_exact_where_rollouts_may_stop(
    theta: tuple[float, float], name: str, parameters: dict[str, Any], number: int
) -> None:
    found = expected_gradient(theta, number, by_table(name, **parameters))
    assert found == pytest.approx(exact_gradient(theta), abs=1e-8)


@pytest.mark.parametrize("theta", THETAS)
def test_skipping_lonely_turns_shrinks_their_gradient_by_how_often_they_are_alone(theta: tuple[float, float]) -> None:
    exact, stop = exact_gradient(theta), sigmoid(theta[0])
    found = expected_gradient(theta, 3, by_table("trloo", single="skip"))
    assert found[0] == pytest.approx(exact[0], abs=1e-8)
    assert found[1] == pytest.approx(exact[1] * (1 - stop**2), abs=1e-8)


def test_centring_scores_by_turn_is_biased_where_rollouts_may_stop() -> None:
    """The biased estimator must fail the check, or the check shows nothing."""
    theta = (0.3, -0.4)
    found = expected_gradient(theta, 3, turn_normalised)
    scaled = [value * 3 / 2 for value in found]  # its own sample is in the mean
    assert max(abs(a - b) for a, b in zip(scaled, exact_gradient(theta), strict=True)) > 0.05


@pytest.mark.parametrize("number", [2, 3, 5])
def test_the_mean_of_a_single_turn_shrinks_the_gradient_by_one_nth(number: int) -> None:
    outcomes = [(0.2, 1.0), (0.5, 0.0), (0.3, 4.0)]  # softmax over three actions
    baseline = sum(p * s for p, s in outcomes)
    exact = [p * (s - baseline) for p, s in outcomes]
    for name, factor in (("mean", 1 - 1 / number), ("trloo", 1.0), ("prefix_free", 1.0)):
        found = [0.0] * 3
        for chosen in itertools.product(range(3), repeat=number):
            probability = math.prod(outcomes[a][0] for a in chosen)
            score = [outcomes[a][1] for a in chosen]
            advantages = ADVANTAGES[name](score, [0] * number, list(range(number)), [0] * number, None)
            for action, advantage in zip(chosen, advantages, strict=True):
                for i, (p, _) in enumerate(outcomes):
                    found[i] += probability * advantage * ((i == action) - p) / number
        assert found == pytest.approx([factor * x for x in exact], abs=1e-10)


# The formulas, written out.

Rows = list[tuple[int, int, int, float | None, bool]]  # group, trajectory, turn, score, real


@st.composite
def rows(draw: Callable[..., Any]) -> Rows:
    found: Rows = []
    for group in range(draw(st.integers(1, 3))):
        for trajectory in range(draw(st.integers(1, 4))):
            for turn in range(draw(st.integers(1, 3))):
                score = draw(st.one_of(st.none(), st.floats(-3, 3), st.sampled_from([0.0, 1.0])))
                found.append((group, trajectory, turn, score, draw(st.integers(0, 4)) > 0))
    return draw(st.permutations(found))


def compute(name: str, data: Rows, **parameters: Any) -> list[float]:
    group, trajectory, turn, score, real = (list(column) for column in zip(*data, strict=True))
    return list(ADVANTAGES[name](score, group, trajectory, turn, real, **parameters).tolist())


def returns(data: Rows, gamma: float, aggregate: str, missing: str = "unknown") -> list[float | None]:
    result: list[float | None] = []
    for group, trajectory, turn, own, real in data:
        if not real or own is None:
            result.append(None)
            continue
        terms: list[float] = []
        known = True
        for g, n, t, s, r in data:
            if (g, n) == (group, trajectory) and r and t >= turn:
                if s is None:
                    known = known and missing == "skip"
                else:
                    terms.append(gamma ** (t - turn) * s)
        result.append((sum(terms) if aggregate == "sum" else max(terms)) if known else None)
    return result


def standardised(data: Rows, values: list[float | None], ddof: int, eps: float, std: bool = True) -> list[float]:
    result = []
    for (group, *_), value in zip(data, values, strict=True):
        peers = [v for (g, *_), v in zip(data, values, strict=True) if g == group and v is not None]
        if value is None:
            result.append(0.0)
            continue
        centre = sum(peers) / len(peers)
        spread = math.sqrt(sum((v - centre) ** 2 for v in peers) / max(len(peers) - ddof, 1))
        result.append((value - centre) / (spread + eps) if std else value - centre)
    return result


@settings(max_examples=80, deadline=None)
@given(rows(), st.sampled_from([0.0, 0.4, 1.0]), st.sampled_from(["sum", "max"]), st.sampled_from(["unknown", "skip"]))
def test_values_are_those_of_the_formulas(data: Rows, gamma: float, aggregate: str, missing: str) -> None:
    own = [s if real else None for *_, s, real in data]
    assert compute("grpo", data) == pytest.approx(standardised(data, own, 1, 1e-4), abs=1e-6)
    assert compute("grpo", data, ddof=0, eps=1e-3) == pytest.approx(standardised(data, own, 0, 1e-3), abs=1e-6)
    assert compute("mean", data) == pytest.approx(standardised(data, own, 0, 0.0, std=False), abs=1e-9)
    to_go = returns(data, gamma, aggregate, missing)
    found = compute("kevin", data, gamma=gamma, aggregate=aggregate, missing=missing)
    assert found == pytest.approx(standardised(data, to_go, 1, 1e-4), abs=1e-6)


@settings(max_examples=80, deadline=None)
@given(rows(), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from(["skip", "zero_baseline"]))
def test_leave_one_out_is_the_return_less_the_mean_of_the_others(data: Rows, gamma: float, single: str) -> None:
    to_go = returns(data, gamma, "sum")
    expected = []
    for (group, trajectory, turn, *_), value in zip(data, to_go, strict=True):
        others = [
            v
            for (g, n, t, *_), v in zip(data, to_go, strict=True)
            if (g, t) == (group, turn) and n != trajectory and v is not None
        ]
        if value is None:
            expected.append(0.0)
        elif others:
            expected.append(value - sum(others) / len(others))
        else:
            expected.append(value if single == "zero_baseline" else 0.0)
    assert compute("trloo", data, gamma=gamma, single=single) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(rows(), st.sampled_from([0.5, 1.0]))
def test_prefix_free_gives_all_turns_their_trajectory_less_the_others(data: Rows, gamma: float) -> None:
    to_go = returns(data, gamma, "sum")
    whole: dict[tuple[int, int], float | None] = {}
    for (group, trajectory, turn, _, real), value in zip(data, to_go, strict=True):
        earlier = [t for g, n, t, _, r in data if (g, n) == (group, trajectory) and r and t < turn]
        if real and not earlier:
            whole[group, trajectory] = value
    found = compute("prefix_free", data, gamma=gamma)
    for (group, trajectory, _, score, real), advantage in zip(data, found, strict=True):
        own = whole.get((group, trajectory))
        others = [v for (g, n), v in whole.items() if g == group and n != trajectory and v is not None]
        if not real or score is None or own is None or not others:
            assert advantage == 0.0
        else:
            assert advantage == pytest.approx(own - sum(others) / len(others), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(rows(), st.sampled_from(list(ADVANTAGES)), st.floats(-5, 5), st.floats(0.5, 3))
def test_shifts_scales_order_and_padding(data: Rows, name: str, shift: float, scale: float) -> None:
    base = compute(name, data)
    assert all(math.isfinite(a) for a in base)
    assert all(a == 0.0 for a, row in zip(base, data, strict=True) if not row[4] or row[3] is None)
    assert compute(name, data[::-1])[::-1] == pytest.approx(base, abs=1e-9)
    padded = [*data, (0, 99, 0, 123.0, False), (0, 98, 0, None, True)]
    assert compute(name, padded)[: len(data)] == pytest.approx(base, abs=1e-9)
    renamed = [(g + 7, 100 - n, t, s, r) for g, n, t, s, r in data]
    assert compute(name, renamed) == pytest.approx(base, abs=1e-9)
    if name in ("grpo", "mean"):
        moved = [(g, n, t, None if s is None else s + shift, r) for g, n, t, s, r in data]
        assert compute(name, moved) == pytest.approx(base, abs=1e-4)
    if name in ("mean", "trloo", "prefix_free"):
        larger = [(g, n, t, None if s is None else scale * s, r) for g, n, t, s, r in data]
        assert compute(name, larger) == pytest.approx([scale * a for a in base], abs=1e-9)


def test_kevin_on_four_turns_by_hand() -> None:
    score = [0.0, 0.3, 1.3, 0.0, 0.0, 0.0]
    columns = ([0] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2])
    to_go = [0.3 * 0.4 + 1.3 * 0.16, 0.3 + 0.4 * 1.3, 1.3, 0.0, 0.0, 0.0]
    found = ADVANTAGES["kevin"](score, *columns, None, eps=0.0, ddof=0)
    centred = np.array(to_go) - np.mean(to_go)
    assert found == pytest.approx(centred / np.std(to_go))
    best = ADVANTAGES["kevin"](score, *columns, None, gamma=0.8, aggregate="max", eps=0.0, ddof=0)
    peaks = np.array([0.64 * 1.3, 0.8 * 1.3, 1.3, 0, 0, 0])
    assert best == pytest.approx((peaks - peaks.mean()) / peaks.std())


def test_a_fault_of_ours_charges_nobody() -> None:
    score = [0.0, None, 1.0, 1.0, 0.0, 0.0]
    columns = ([0] * 6, [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1])
    found = ADVANTAGES["trloo"](score, *columns)
    assert found.tolist() == [0.0, 0.0, 2.0, 1.0, -2.0, -1.0]
    # With the fault taken for a zero, the first turn would have been blamed for it.
    charged = ADVANTAGES["trloo"]([0.0 if s is None else s for s in score], *columns)
    assert charged[0] == -1.0
    left_out = ADVANTAGES["trloo"](score, *columns, missing="skip")
    assert left_out[0] == -1.0 and left_out[1] == 0.0


def test_a_fault_in_the_first_turn_saves_no_discount() -> None:
    columns = ([0] * 6, [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1])
    for aggregate in ("sum", "max"):
        given = {"gamma": 0.5, "aggregate": aggregate, "missing": "skip"}
        found = ADVANTAGES["prefix_free"]([None, 1.0, 0.0, 1.0, 0.0, 0.0], *columns, **given)
        assert found.tolist() == [0.0, 0.25, 0.25, 0.25, -0.5, -0.5]  # both are worth 0.5 at their beginning
        nothing = ADVANTAGES["prefix_free"]([None, None, 0.0, 1.0, 0.0, 0.0], *columns, **given)
        assert nothing.tolist() == [0.0, 0.0, 0.5, 0.5, -0.5, -0.5]


def test_equal_scores_give_exact_zeros() -> None:
    for name in ADVANTAGES:
        found = ADVANTAGES[name]([0.1] * 3, [0] * 3, [0, 1, 2], [0] * 3, None)
        assert found.tolist() == [0.0, 0.0, 0.0], name


@pytest.mark.parametrize("scale", [2.0**1000, 1e200, 1e100, 1e-200, 5e-324])
def test_scores_of_any_size_are_credited_alike(scale: float) -> None:
    """The squares overflow or underflow float64."""
    columns = ([0] * 6, [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1])
    usual = [1.0, 3.0, 0.0, 2.0, 0.0, 0.0]
    for name in ADVANTAGES:
        parameters = {"eps": 0.0} if name in ("grpo", "kevin") else {}
        if name == "kevin":
            parameters["gamma"] = 1.0
        factor = 1.0 if parameters else scale
        expected = [factor * a for a in ADVANTAGES[name](usual, *columns, **parameters)]
        found = ADVANTAGES[name]([scale * s for s in usual], *columns, **parameters)
        assert found.tolist() == pytest.approx(expected, rel=1e-12, abs=5e-324), name


def test_groups_of_other_sizes_are_not_touched() -> None:
    columns = ([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0])
    for name in ADVANTAGES:
        alone = ADVANTAGES[name]([1.0, 0.0], [1, 1], [0, 1], [0, 0]).tolist()
        assert ADVANTAGES[name]([1e300, 0.0, 1.0, 0.0], *columns).tolist()[2:] == alone, name


def test_returns_may_pass_the_range_on_the_way_but_not_in_the_end() -> None:
    score, columns = [1e308, 1e308, 1e308, 0.9e308], ([0] * 4, [0, 0, 1, 1], [0, 1, 0, 1])
    for name in ("trloo", "prefix_free"):
        assert ADVANTAGES[name](score, *columns)[0] == pytest.approx(1e307)
    for name in ("trloo", "prefix_free"):
        with pytest.raises(ConfigError, match="beyond the range of float64") as error:
            ADVANTAGES[name]([1e308, -1e308, 1e308], [0] * 3, [0, 1, 2], [0] * 3)
        assert error.value.hint


def test_half_precision_is_computed_in_full() -> None:
    score, columns = [60000.0, -60000.0, 0.0], ([0] * 3, [0, 1, 2], [0] * 3)
    half = torch.tensor(score, dtype=torch.float16)
    for name in ADVANTAGES:
        full = ADVANTAGES[name](score, *columns)
        assert ADVANTAGES[name](np.float16(score), *columns).tolist() == full.tolist()
        if name in ("trloo", "prefix_free"):  # 90,000, which float16 has not
            with pytest.raises(ConfigError, match=r"beyond the range of torch.float16"):
                ADVANTAGES[name](half, *columns)
        else:
            assert ADVANTAGES[name](half, *columns).tolist() == pytest.approx(full.tolist(), rel=1e-3)


@pytest.mark.parametrize("name", list(ADVANTAGES))
def test_tensors_come_back_as_tensors(name: str) -> None:
    score = torch.tensor([0.0, 1.0, float("nan"), 3.0])
    ids = [torch.tensor(x) for x in ([0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 0, 0])]
    mask = torch.tensor([True, True, True, False])
    found = ADVANTAGES[name](score, *ids, mask)
    assert isinstance(found, torch.Tensor) and found.dtype == torch.float32
    plain = ADVANTAGES[name](score.numpy(), *[x.numpy() for x in ids], mask.numpy())
    assert isinstance(plain, np.ndarray) and found.tolist() == pytest.approx(plain.tolist())
    half = ADVANTAGES[name](score.bfloat16(), *ids, mask.bfloat16())  # numpy has no such numbers
    assert half.dtype == torch.bfloat16 and half.tolist() == pytest.approx(found.tolist(), rel=1e-2)


@pytest.mark.parametrize("name", list(ADVANTAGES))
def test_no_rows_and_rows_without_scores(name: str) -> None:
    assert ADVANTAGES[name]([], [], [], [], None).tolist() == []
    assert ADVANTAGES[name]([None, None], [0, 0], [0, 1], [0, 0], None).tolist() == [0.0, 0.0]
    assert ADVANTAGES[name]([1.0, 2.0], ["a", "b"], [0, 0], [0, 0], [False, False]).tolist() == [0.0, 0.0]


def test_a_turns_number_mixes_no_groups() -> None:
    for turns in ([0, 0, -1, -1], [1, 1, 0, 0], [0, 0, 7, 7]):
        found = ADVANTAGES["trloo"]([1, 0, 5, 7], ["a", "a", "b", "b"], [0, 1, 0, 1], turns)
        assert found.tolist() == [1.0, -1.0, -2.0, 2.0]


@pytest.mark.parametrize("name", list(ADVANTAGES))
@pytest.mark.parametrize(
    ("column", "values"),
    [
        (0, ["high", 0.0]),
        (0, ["1", "0"]),
        (1, [None, 0]),
        (2, [None, None]),
        (3, ["first", "second"]),
        (3, ["0", "1"]),
        (3, [0.5, 1.0]),
    ],
)
def test_a_column_of_the_wrong_kind_is_named(name: str, column: int, values: list[Any]) -> None:
    columns: list[list[Any]] = [[1.0, 0.0], [0, 0], [0, 1], [0, 0]]
    columns[column] = values
    with pytest.raises(ValueError, match=("score", "group", "trajectory", "turn")[column]) as error:
        ADVANTAGES[name](*columns)
    assert isinstance(error.value, ConfigError) and error.value.hint


def test_numbers_of_any_library_are_numbers() -> None:
    for score in ([np.float32(1), None, 0], [np.int64(1), None, False], np.array([1, None, 0], dtype=object)):
        assert ADVANTAGES["mean"](score, [0, 0, 0], [0, 1, 2], [0.0, 0.0, 0.0]).tolist() == [0.5, 0.0, -0.5]


def test_what_is_wrong_with_rows_is_said() -> None:
    for parameters in ({"eps": -1.0}, {"eps": math.nan}, {"ddof": -1}):
        with pytest.raises(ConfigError):
            ADVANTAGES["grpo"]([1.0], [0], [0], [0], None, **parameters)
    with pytest.raises(ConfigError, match="twice"):
        ADVANTAGES["trloo"]([1.0, 2.0], [0, 0], [0, 0], [1, 1], None)
    with pytest.raises(ConfigError, match="infinite"):
        ADVANTAGES["mean"]([1.0, math.inf], [0, 0], [0, 1], [0, 0], None)
    with pytest.raises(ConfigError, match="trajectory"):
        ADVANTAGES["mean"]([1.0, 2.0], [0, 0], [0], [0, 0], None)
    for parameters in ({"gamma": 1.5}, {"aggregate": "last"}, {"missing": "zero"}):
        with pytest.raises(ConfigError):
            ADVANTAGES["kevin"]([1.0], [0], [0], [0], None, **parameters)
    with pytest.raises(ConfigError):
        ADVANTAGES["trloo"]([1.0], [0], [0], [0], None, single="maybe")
    with pytest.raises(ConfigError) as unknown:
        load_advantage("trlo")
    assert "trloo" in str(unknown.value.hint)
