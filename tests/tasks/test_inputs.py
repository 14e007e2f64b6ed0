"""The judge's inputs, weights and reference runs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_modules import HEAD, RUNS

from kernelwright.errors import TaskError
from kernelwright.tasks import inputs as task_inputs
from kernelwright.tasks import reference_runs
from kernelwright.tasks.distributions import DISTRIBUTIONS, HARDENING, examine_distributions, usable_distributions
from kernelwright.tasks.draws import draw_key
from kernelwright.tasks.inputs import make_inputs
from kernelwright.tasks.workloads import Workload, derive, instantiate

NN = torch.nn


def task(get_inputs: str, forward: str = "return x", init: str = "") -> dict[str, Any]:
    """Returns a namespace with one-line `get_inputs` and `forward`."""
    return instantiate(
        HEAD
        + f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init or 'pass'}\n"
        + f"    def forward(self, x, *rest):\n        {forward}\n"
        + f"def get_inputs():\n    {get_inputs}\ndef get_init_inputs():\n    return []\n"
    )


EVERY = (*DISTRIBUTIONS, *HARDENING)
STRUCTURED = {"far_below", "far_above", "tied_rows", "scaled_rows"}


def first(namespace: dict[str, Any], kind: Any, seed: int = 1) -> torch.Tensor:
    return make_inputs(namespace, kind, seed)[0]


@cache
def least(name: str) -> Workload:
    """Returns the smallest of a reference's sizes."""
    return derive(RUNS[name]).workloads[-1]


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("name", sorted(RUNS))
def test_equal_seeds_give_equal_bits_and_others_do_not(name: str, kind: Any) -> None:
    source, workload = RUNS[name], least(name)
    namespace = instantiate(source, workload.constants)
    torch.manual_seed(99)
    a = task_inputs.tensors_in(make_inputs(namespace, kind, 7))
    torch.manual_seed(5)
    b = task_inputs.tensors_in(make_inputs(instantiate(source, workload.constants), kind, 7))
    c = task_inputs.tensors_in(make_inputs(namespace, kind, 8))
    own = task_inputs.tensors_in(make_inputs(namespace, "own", 7))
    assert [t.dtype for t in a] == [t.dtype for t in own] and [t.shape for t in a] == [t.shape for t in own]
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert any(not torch.equal(x, y) for x, y in zip(a, c, strict=True))


def test_two_draws_of_one_call_differ() -> None:
    namespace = task("return [torch.randn(64), torch.randn(64)]")
    for kind in EVERY:
        a, b = make_inputs(namespace, kind, 3)  # type: ignore[arg-type]
        assert not torch.equal(a, b) or kind == "constant_rows"


def test_a_task_that_seeds_itself_still_follows_the_judge() -> None:
    namespace = task("torch.manual_seed(0); return [torch.rand(100)]")
    assert not torch.equal(first(namespace, "own", 1), first(namespace, "own", 2))


def test_distributions_have_their_shape() -> None:
    namespace = task("return [torch.rand(64, 500)]")
    own, uniform = first(namespace, "own"), first(namespace, "uniform")
    assert own.min() >= 0 and uniform.min() >= 0 and uniform.max() < 1
    normal, heavy = first(namespace, "normal"), first(namespace, "heavy_tail")
    assert abs(normal.mean()) < 0.05 and 0.95 < normal.std() < 1.05
    assert heavy.abs().max() > 40 and heavy.abs().max() <= 1e3 and heavy.abs().median() < 2
    assert heavy.flatten()[-32000 // 64 :].abs().max() > 40, "an outlier lies near the end"
    assert heavy.max() > 100, "one is too large for an exponential that nobody has kept small"
    rows = first(namespace, "constant_rows")
    assert (rows == rows[:, :1]).all() and len(rows[:, 0].unique()) > 4 and rows.min() > 0
    signed = task("return [torch.randn(64, 500)]")
    assert first(signed, "uniform").min() < -0.9
    assert first(signed, "constant_rows").min() < 0 and first(signed, "constant_rows").abs().min() >= 0.25


def test_harder_distributions_have_their_shape() -> None:
    for draw in ("torch.rand(64, 500)", "torch.randn(64, 500)"):
        namespace = task(f"return [{draw}]")
        peaked = first(namespace, "peaked").abs().sort(dim=1)[0]
        assert (peaked[:, -1] >= 4).all() and (peaked[:, -2] < 1).all()
        sizes = first(namespace, "wide").square().mean(1).sqrt()
        assert sizes.max() > 40 * sizes.min() and sizes.max() < 20
        means = first(namespace, "shifted").mean(1)
        assert means.min() < -2 and means.max() > 2
        near = first(namespace, "near_one")
        assert 0.8 < near.abs().min() and near.abs().max() < 1.2 and 0.4 < (near > 0).double().mean() < 0.6
    for kind in HARDENING:
        for shape in ("()", "(0,)", "(3, 0)", "(7,)"):
            assert first(task(f"return [torch.randn({shape})]"), kind).isfinite().all()


@pytest.mark.parametrize(
    "draw",
    [
        "torch.randn(40, 50)",
        "torch.rand((40, 50), requires_grad=True)",
        "torch.empty(40, 50).normal_(1.0, 2.0)",
        "torch.empty(40, 50).uniform_(-3, 3)",
        "torch.normal(0.0, 1.0, size=(40, 50))",
        "torch.zeros(40, 50, dtype=torch.float64).normal_()",
        "torch.rand_like(torch.empty(40, 50))",
        "torch.randn(40, 50, generator=torch.Generator().manual_seed(1))",
        "nn.init.xavier_normal_(torch.empty(40, 50))",
        "torch.distributions.Normal(0.0, 1.0).sample((40, 50))",
        "torch.randn(50, 40, dtype=torch.bfloat16, device='cuda').T",
    ],
)
def test_every_way_to_draw_is_replaced(draw: str) -> None:
    namespace = task(f"return [{draw}]")
    own, heavy = first(namespace, "own"), first(namespace, "heavy_tail")
    assert own.shape == heavy.shape == (40, 50) and own.dtype == heavy.dtype and not heavy.requires_grad
    assert heavy.float().abs().max() > 5 * own.float().abs().max()
    assert not torch.equal(own, first(namespace, "own", 2)) and torch.equal(own, first(namespace, "own", 1))


def test_structure_made_after_the_draw_survives() -> None:
    namespace = task(
        "A = torch.rand(30, 30); return [(A + A.T) / 2, torch.randn(9, 9).softmax(-1), torch.rand(50).sort()[0]]"
    )
    for kind in EVERY:
        a, p, s = make_inputs(namespace, kind, 4)  # type: ignore[arg-type]
        assert torch.equal(a, a.T)
        assert torch.allclose(p.sum(-1), torch.ones(9)) and (p >= 0).all()
        assert (s.diff() >= 0).all()
    assert first(namespace, "normal", 4).min() < 0


def test_integers_and_masks_keep_dtype_and_range() -> None:
    namespace = task(
        "return [torch.randint(3, 9, (200,)), torch.randint(0, 2, (50,)).bool(), torch.randperm(20), "
        "torch.arange(5), torch.randint(0, 2, (64,)).float() * 2 - 1, torch.rand(100) > 0.5, "
        "torch.bernoulli(torch.full((64,), 0.5))]"
    )
    for kind in EVERY:
        ints, mask, perm, steps, signs, drawn, coins = make_inputs(namespace, kind, 2)  # type: ignore[arg-type]
        assert ints.dtype == torch.int64 and mask.dtype == torch.bool
        assert 3 <= ints.min() and ints.max() <= 8
        alike = kind == "far_below"  # all integers of a draw are one value
        assert alike or (ints.min() == 3 and ints.max() == 8 and mask.any() and not mask.all())
        assert torch.equal(perm.sort()[0], torch.arange(20)) and torch.equal(steps, torch.arange(5))
        assert set(signs.tolist()) <= {-1.0, 1.0} and drawn.dtype == torch.bool
        assert set(coins.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("get_inputs", "forward", "dropped"),
    [
        ("return [torch.rand(20, 30)]", "return torch.relu(x)", set()),
        ("return [torch.rand(20, 30) + 0.1]", "return torch.log(x)", {"normal", "heavy_tail"}),
        ("return [torch.randn(20, 30)]", "return torch.exp(x.amax())", {"heavy_tail"}),
        ("return [torch.randn(20, 30).softmax(-1)]", "return torch.log(x)", set()),
        ("x = torch.rand(20, 30); return [x / x.sum(-1, keepdim=True)]", "return x", {"normal", "heavy_tail"}),
        ("return [torch.rand(20, 30)]", "return F.binary_cross_entropy(x, x)", {"normal", "heavy_tail"}),
        ("return [torch.randn(20, 30)]", "return x.argmax(0)", {"constant_rows"}),
        ("return [torch.randn(20, 30)]", "return x.argmax(1)", {"constant_rows"}),
        ("return [torch.randint(0, 9, (20,))]", "return x * 2", {"uniform", "normal", "heavy_tail", "constant_rows"}),
        ("return [(torch.rand(20) * 8).long()]", "return torch.arange(8)[x]", {"normal", "heavy_tail"}),
        ("return [torch.rand(64)]", "return x[x > 0]", {"normal", "heavy_tail"}),
    ],
)
def test_preconditions_drop_distributions(get_inputs: str, forward: str, dropped: set[str]) -> None:
    reasons = examine_distributions(task(get_inputs, forward), seed=3)
    assert reasons["own"] == ""
    missing = {d for d, reason in reasons.items() if reason} - STRUCTURED
    assert dropped <= missing <= dropped | {"heavy_tail", "constant_rows"}, reasons
    assert usable_distributions(task(get_inputs, forward), seed=3)[0] == "own"


def test_bad_tasks_are_refused_in_one_line() -> None:
    with pytest.raises(TaskError, match="defines no get_inputs"):
        make_inputs({}, "own", 1)
    with pytest.raises(TaskError, match="returns a Tensor, not a list"):
        make_inputs(task("return torch.rand(3)"), "own", 1)
    with pytest.raises(TaskError, match="defines no Model"):
        task_inputs.construct({}, 1)
    with pytest.raises(TaskError, match="returns a str"):
        reference_runs.flatten_outputs(["x"])


class Layers(NN.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = NN.Conv2d(3, 8, 3)
        self.bn = NN.BatchNorm2d(8)
        self.prelu = NN.PReLU()
        self.zero = NN.Parameter(torch.zeros(8, 1, 1))
        self.positive = NN.Parameter(0.5 + torch.rand(8, 1, 1))
        self.register_buffer("mask", torch.tril(torch.ones(4, 4)))
        self.plain = torch.full((1,), 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.prelu(self.bn(self.conv(x))) * self.positive * self.plain + self.zero


def test_weights_get_real_values_of_their_own_scale() -> None:
    torch.manual_seed(0)
    model = Layers()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = task_inputs.randomise_weights(model, 5)
    assert set(state) == set(before)
    for name in ("conv.weight", "conv.bias", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "zero"):
        assert not torch.equal(state[name], before[name]) and state[name].std() > 0.01, name
    assert 0.5 < state["conv.weight"].std() / before["conv.weight"].std() < 2
    assert (state["bn.running_var"] > 0.4).all() and (state["positive"] > 0.4).all()
    assert state["bn.num_batches_tracked"] == 0 and torch.equal(state["mask"], before["mask"])
    again = Layers()
    torch.manual_seed(0)
    again.load_state_dict(before)
    assert all(torch.equal(v, state[k]) for k, v in task_inputs.randomise_weights(again, 5).items())
    assert not torch.equal(task_inputs.randomise_weights(again, 6)["zero"], state["zero"])
    assert task_inputs.randomise_weights(object(), 1) == {}


def test_reference_runs_leave_model_and_inputs_alone() -> None:
    model = Layers()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    x = torch.randn(2, 3, 9, 9)
    copy = x.clone()
    (exact,) = reference_runs.reference_outputs(model, [x], torch.float64)
    (honest,) = reference_runs.reference_outputs(model, [x])
    assert exact.dtype == torch.float64 and honest.dtype == torch.float32
    assert 0 < (exact - honest).abs().max() < 1e-5
    assert torch.equal(x, copy) and all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert model.plain.dtype == torch.float32


@pytest.mark.parametrize(
    "forward",
    [
        "return x.float() * 2",
        "return x.to(torch.float32).sum(-1, dtype=torch.float32)",
        "return x + torch.ones(x.shape[-1], dtype=torch.float32) / 3",
        "return torch.zeros_like(x) + x.half().float()",
        "return x.masked_fill(x > 0, torch.finfo(x.dtype).min).softmax(-1)",
        "return torch.linspace(0, 1, x.shape[-1]) * x",
    ],
)
def test_float64_is_float64_whatever_forward_names(forward: str) -> None:
    namespace = task("return [torch.randn(4, 33)]", forward)
    model = task_inputs.construct(namespace, 1)
    values = make_inputs(namespace, "own", 1)
    assert [t.dtype for t in reference_runs.reference_outputs(model, values, torch.float64)] == [torch.float64]
    assert torch.get_default_dtype() == torch.float32
    if "half" not in forward:
        exact = reference_runs.reference_outputs(model, reference_runs.to_float64(values), torch.float64)[0]
        assert (exact - exact.float().double()).abs().max() > 0 or "float()" in forward


def test_outputs_of_any_structure_are_flattened_in_order() -> None:
    value = {"a": torch.ones(2), "b": (None, [torch.zeros(1), 3, 0.5]), "c": True}
    flat = reference_runs.flatten_outputs(value)
    assert [t.dtype for t in flat] == [torch.float32, torch.float32, torch.int64, torch.float32, torch.bool]
    assert reference_runs.structure(value) == "{a: tensor, b: (NoneType, [tensor, int, float]), c: bool}"


def test_low_precision_rounds_to_the_next_dtype_below() -> None:
    x = torch.randn(10_000)
    x = x[x.abs() > 1e-4]  # below, float16 has fewer significant bits
    assert torch.equal(reference_runs.round_significant(x), x.half().float())
    wide = torch.randn(10_000, dtype=torch.float64)
    assert torch.equal(reference_runs.round_significant(wide), wide.float().double())
    narrow = torch.randn(1000).bfloat16()
    relative = ((reference_runs.round_significant(narrow) - narrow).float() / narrow.float()).abs().max()
    assert 0.02 < relative <= 2**-5
    ints = torch.arange(5)
    assert reference_runs.round_significant(ints) is ints


def test_the_ruler_lies_between_honest_and_useless() -> None:
    namespace = task("return [torch.randn(32, 64)]", "return self.w(x), x.argmax(-1)", "self.w = nn.Linear(64, 16)")
    model = task_inputs.construct(namespace, 1)
    state = task_inputs.randomise_weights(model, 2)
    values = make_inputs(namespace, "normal", 1)
    exact = reference_runs.reference_outputs(model, values, torch.float64)
    low = reference_runs.low_precision_error(model, state, values, exact)
    assert low[1] is None and low[0] is not None and 3e-4 < low[0] < 5e-3


def test_the_widened_honest_run_shows_cancellation() -> None:
    namespace = task("return [torch.randn(4, 4096)]", "return (x - x.mean()).sum()")
    model = task_inputs.construct(namespace, 1)
    values = make_inputs(namespace, "own", 1)
    exact = reference_runs.reference_outputs(model, values, torch.float64)
    honest = reference_runs.reference_outputs(model, values)
    wide = reference_runs.widen_honest(model, {}, values, exact, honest)
    assert wide[0].dtype == honest[0].dtype
    assert abs(wide[0] - exact[0]) >= abs(honest[0] - exact[0])
    assert abs(wide[0] - exact[0]) > 1e-6 > abs(exact[0])


@settings(max_examples=40, deadline=None)
@given(st.integers(-(2**70), 2**70), st.integers(0, 1000))
def test_any_integer_is_a_seed(seed: int, call: int) -> None:
    key = draw_key(seed, call)
    assert 0 <= key < 2**63
    np.random.seed(seed % (1 << 32))
    assert len(make_inputs(task("return [torch.rand(3)]"), "normal", seed)) == 1


def test_draws_within_an_initialiser_come_from_the_seed() -> None:
    """A function mode does not see the draws of torch.nn.init."""
    namespace = task("return [nn.Linear(8, 8).weight, torch.randn(3)]")
    torch.manual_seed(1)
    one = make_inputs(namespace, "own", 5)
    torch.manual_seed(2)
    again, other = make_inputs(namespace, "own", 5), make_inputs(namespace, "own", 6)
    assert torch.equal(one[0], again[0]) and torch.equal(one[1], again[1])
    assert not torch.equal(one[0], other[0])
