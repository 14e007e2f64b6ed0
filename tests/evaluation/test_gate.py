"""The null-kernel gate on tasks that cannot detect null kernels, one for each null kernel, and on sound tasks."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.judge import null_kernel_gate
from kernelwright.evaluation.judge.null_kernel_gate import GATE_PROTOCOL
from kernelwright.machine import library
from kernelwright.records import Candidate, SourceFile, Task, Workload


def _task(forward: str, inputs: str, name: str = "degenerate", constructor: str = "pass") -> Task:
    source = f"""import torch
import torch.nn as nn

rows = 32
cols = 96


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {constructor}

    def forward(self, x, y=None, z=None):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
    return Task(task_id=name, source=source)


X = "torch.randn(rows, cols)"
DEGENERATE = {
    "zeros": _task("torch.relu(-1 - x.abs())", X),
    "ones": _task("(x.abs() >= 0).float()", X),
    "constant": _task("3.7 + 1e-7 * torch.sigmoid(x)", X),
    "replay": _task(
        "(self.weight * 2).expand(x.shape[0], 96) + 1e-9 * torch.tanh(x)",
        X,
        constructor="self.weight = nn.Parameter(torch.randn(96))",
    ),
    "identity-input0": _task("x + 1e-7 * x.sin()", X),
    "mean-input2-axis1": _task(
        "torch.softmax(torch.tanh(x @ y.transpose(1, 2)) * 1e-7, -1) @ z",
        "torch.randn(2, rows, 16), torch.randn(2, cols, 16), torch.randn(2, cols, 16)",
    ),
    "rank1-input0-input1": _task("x @ y", "torch.rand(rows, cols), torch.ones(cols, rows)"),
    "sampled-output": _task("(x * 0.25).cos() * 1e-7 + 2", X),
    "truncated-output-axis1": _task("torch.cat([x, torch.zeros_like(x)], 1)", X),
    "truncated-input0-dim1": _task("x[:, : x.shape[1] // 2].sum(1)", X),
    "sampled-input0-dim1": _task("torch.stack([x[:, : x.shape[1] // 4].amax(1), x[:, 0]])", X),
    "fp16": _task("x * 2", "torch.randint(0, 64, (rows, cols)).float()"),
}
SOUND = {
    "zeros on its own values only": _task("torch.relu(x)", "-torch.rand(rows, cols)"),
    "identity on its own values only": _task("torch.relu(x)", "torch.rand(rows, cols)"),
    "copy transposed": _task("x.t().contiguous()", X),
    "mean": _task("x.mean(1)", X),
    "softmax": _task("torch.softmax(x, 1)", "torch.rand(rows, 8192)"),
    "matmul": _task("x @ y", "torch.rand(rows, 2048), torch.rand(2048, rows)"),
    "integers out": _task("x.argmax(1)", X),
    "two outputs": _task("(x.amax(1), x.sum(0))", X),
    "outer product": _task("x[:, None] * y[None]", "torch.randn(cols), torch.randn(rows)"),
    "layer": _task("self.layer(x)", X, constructor="self.layer = nn.Linear(96, 64)"),
}
PRODUCT = _task("torch.cumprod(x, 1)", "torch.randn(8, 4000)", "long-product")


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    with pytest.MonkeyPatch.context() as patch:
        built = library.build()
        patch.setenv("KERNELWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        shutil.copy(built, library.path())  # a new cache, but not for what takes a minute to build
        with Evaluator(EvalOptions(backend="cpu", policy="libraries", seed=5)) as made:
            yield made


@pytest.mark.parametrize("null", DEGENERATE)
def test_a_task_that_a_null_passes_is_quarantined(null: str, evaluator: Evaluator) -> None:
    checked = evaluator.check_gate(DEGENERATE[null])
    assert checked.gate.state == "quarantined", checked.gate
    tally = next(t for t in checked.tallies if t.name == null)
    assert tally.passed and not tally.failed
    assert "largest error" in checked.gate.reason and "passes everywhere" in checked.gate.reason


def test_a_task_whose_indices_hang_on_rounding_is_quarantined(evaluator: Evaluator) -> None:
    """Saturated values of a row are all equal in float32 and all different in float64."""
    saturated = _task("(1 - torch.exp(-(20 + x.abs()))).argmin(1)", X)
    found = evaluator.check_gate(saturated).gate
    assert found.state == "quarantined" and "hang on rounding" in found.reason
    squashed = _task("torch.sigmoid(x).argmax(1)", "torch.randn(rows, 4000)")  # saturates on heavy-tailed values only
    assert evaluator.check_gate(squashed).gate.state == "sound"


@pytest.mark.parametrize("expression", ["x / 0", "x * float('nan')"])
def test_a_reference_of_nothing_finite_is_quarantined(expression: str, evaluator: Evaluator) -> None:
    """References may give NaN and infinities, but a task of nothing else tells no kernel from another."""
    checked = evaluator.check_gate(_task(expression, X))
    assert checked.gate.state == "quarantined", checked.gate
    assert any(note.startswith("not-finite") for note in checked.gate.notes)


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_task_is_sound(name: str, evaluator: Evaluator) -> None:
    checked = evaluator.check_gate(SOUND[name])
    assert (checked.gate.state, checked.gate.reason, checked.gate.distributions) == ("sound", "", ())
    assert {t.name for t in checked.tallies if not t.failed} <= null_kernel_gate.LAX | {"fp16"}


def test_what_passes_on_some_values_is_told_from_what_fails_on_others(evaluator: Evaluator) -> None:
    checked = evaluator.check_gate(SOUND["zeros on its own values only"])
    zeros = next(t for t in checked.tallies if t.name == "zeros")
    assert any(place.endswith("/own") for place in zeros.passed)
    assert {place.rpartition("/")[2] for place in zeros.failed} >= {"far_below", "heavy_tail"}
    assert any(text.startswith("zeros: ") for text in checked.gate.passed)


def test_harder_values_are_recorded_and_used(evaluator: Evaluator) -> None:
    """A product of thousands of normal values vanishes after a few hundred: a kernel that stops there is correct."""
    before = evaluator.check_task(PRODUCT)
    checked = evaluator.check_gate(PRODUCT)
    assert checked.gate.state == "hardened" and checked.gate.distributions == ("near_one",)
    assert "near_one" not in before.distributions and "near_one" in evaluator.check_task(PRODUCT).distributions
    result = evaluator.evaluate(PRODUCT, _candidate("torch.cat([torch.cumprod(x[:, :2000], 1), 0 * x[:, 2000:]], 1)"))
    assert result.verdict == "wrong" and "near_one" in result.reason


def _candidate(expression: str) -> Candidate:
    text = f"""import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {expression}
"""
    return Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="torch")


def test_an_evaluation_on_a_quarantined_task_says_so(evaluator: Evaluator) -> None:
    task = DEGENERATE["zeros"]
    evaluator.check_gate(task)
    result = evaluator.evaluate(task, _candidate("torch.zeros_like(x)"))
    (found,) = [f for f in result.findings if f.rule == "quarantined-task"]
    assert found.severity == "warning" and "zeros" in found.evidence
    untouched = evaluator.evaluate(SOUND["matmul"], _candidate("x"))
    assert not [f for f in untouched.findings if f.rule == "quarantined-task"]


def test_a_null_at_the_tasks_own_extents_counts(evaluator: Evaluator) -> None:
    """Reduced sizes catch it, since nothing vanishes there; at the size that a GPU times, zeros would pass."""
    product = _task("torch.prod(0.8 + 0.03 * torch.sigmoid(x), 1)", "torch.randn(rows, 512)", "own-extents")
    checked = evaluator.check_gate(product)
    zeros = next(t for t in checked.tallies if t.name == "zeros")
    assert checked.gate.state == "quarantined" and zeros.failed
    assert "passes at the task's own extents" in checked.gate.reason


def test_precision_that_cannot_be_told_is_a_note(evaluator: Evaluator) -> None:
    state = evaluator.check_gate(_task("(x > 0).sum(1)", X)).gate
    assert state.state == "sound"
    assert [n for n in state.notes if n.startswith("lax-tolerance: ") and "fp16" in n]


def test_the_gate_is_deterministic(evaluator: Evaluator) -> None:
    one, two = (evaluator.check_gate(SOUND["matmul"]).gate.plain() for _ in range(2))
    assert {**one, "seconds": 0} == {**two, "seconds": 0}


def test_a_state_is_for_one_task_and_one_protocol(evaluator: Evaluator, tmp_path: Path) -> None:
    task = SOUND["mean"]
    state = evaluator.check_gate(task).gate
    null_kernel_gate.store(state, task, tmp_path)
    assert null_kernel_gate.stored(task, tmp_path) == state
    renamed = task.changed(task_id="other", policy="libraries")
    assert null_kernel_gate.stored(renamed, tmp_path) == state
    assert null_kernel_gate.stored(Task(task_id="other", source=task.source + "\n"), tmp_path) is None
    kept = task.changed(gate=state)
    assert null_kernel_gate.stored(kept, tmp_path / "nowhere") == state and kept.content_hash == task.content_hash
    old = state.changed(protocol=GATE_PROTOCOL - 1)
    assert null_kernel_gate.stored(task.changed(gate=old), tmp_path / "nowhere") is None
    null_kernel_gate._path(task, tmp_path).write_text("{")
    assert null_kernel_gate.stored(task, tmp_path) is None


def test_a_hardened_folder_has_results_of_its_own(evaluator: Evaluator) -> None:
    state = evaluator.check_gate(PRODUCT).gate
    hard = PRODUCT.changed(gate=state)
    options, candidate = EvalOptions(seed=1), _candidate("x")
    assert options.key(hard, candidate) != options.key(PRODUCT, candidate)
    easy = PRODUCT.changed(gate=state.changed(state="sound", distributions=()))
    assert options.key(easy, candidate) == options.key(PRODUCT, candidate)


def test_declared_sizes_are_tried_too(evaluator: Evaluator) -> None:
    sizes = (Workload(name="odd", constants={"rows": 7}), Workload(name="even", constants={"rows": 8}))
    task = SOUND["softmax"].changed(workloads=sizes)
    checked = evaluator.check_gate(task)
    places = {place.split("/")[0] for t in checked.tallies for place in (*t.passed, *t.failed)}
    assert {"odd", "even"} <= places and checked.gate.state == "sound"


def test_a_plan_keeps_its_own_distributions_when_hardened(evaluator: Evaluator) -> None:
    plan = evaluator.check_task(SOUND["mean"])
    harder = null_kernel_gate.hardened(plan, ["wide", "normal"])
    assert harder.distributions == [*plan.distributions, "wide"]
    assert dataclasses.replace(harder, distributions=plan.distributions) == plan
