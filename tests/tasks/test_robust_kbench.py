"""Folders in robust-kbench's format: loading, judging on both backends, and one clear line per mistake."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Command

from kernelwright.errors import TaskError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, Evaluation, SourceFile, Task
from kernelwright.tasks import candidate_from_text, load_candidate, load_suite, load_task

FOLDERS = Path(__file__).parent / "robust_kbench"


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", seed=3), pool=pool) as made:
        yield made


@pytest.fixture(scope="module")
def gpu_road(pool: Pool) -> Iterator[Evaluator]:
    options = EvalOptions(backend="gpu", seed=3, timing_seconds=0.2, trials=3, baselines=("eager",))
    with Evaluator(options, device="cpu", pool=pool) as made:
        yield made


def changed(file: Path, old: str, new: str) -> Candidate:
    text = file.read_text()
    assert old in text
    return candidate_from_text(text.replace(old, new), file.name, file.suffix)


CASES = [
    ("layer_norm", "forward", "* weight[i] + bias[i]", "* weight[i]"),
    ("layer_norm", "forward", "columns + eps)", "columns + 0.01f)"),
    ("mlp", "forward", "b1, true), w2", "b1, false), w2"),
    ("mlp", "forward", "k < inner", "k < 48"),
    ("softmax", "forward", "expf(row[i] - most) / total", "expf(row[i] - most) / (total + 0.01f)"),
    ("softmax", "backward", "(grad[start + i] - total)", "grad[start + i]"),
]


def named(folder: str, way: str) -> Task:
    return load_task(f"{FOLDERS / folder}:backward" if way == "backward" else FOLDERS / folder)


@pytest.mark.parametrize(("folder", "way"), sorted({case[:2] for case in CASES}))
def test_honest_candidates_pass(folder: str, way: str, evaluator: Evaluator, gpu_road: Evaluator) -> None:
    candidate = load_candidate(FOLDERS / folder / f"{way}.cu")
    result = evaluator.evaluate(named(folder, way), candidate)
    assert result.verdict == "correct", (result.reason, result.log)
    assert {w.scope for w in result.workloads} == {"declared"}
    result = gpu_road.evaluate(named(folder, way), candidate)
    assert result.verdict == "correct" and result.timing is not None, (result.reason, result.log)


@pytest.mark.parametrize(("folder", "way", "old", "new"), CASES)
def test_wrong_candidates_fail(
    folder: str, way: str, old: str, new: str, evaluator: Evaluator, gpu_road: Evaluator
) -> None:
    candidate = changed(FOLDERS / folder / f"{way}.cu", old, new)
    for judge in (evaluator, gpu_road):
        result = judge.evaluate(named(folder, way), candidate)
        assert result.verdict in ("wrong", "runtime_error"), (result.verdict, result.reason)


def test_settings_become_workloads() -> None:
    task = load_task(FOLDERS / "mlp")
    assert [(w.name, w.purpose, w.constants) for w in task.workloads] == [
        ("single", "functional", {}),
        ("multi-1", "functional", {"hidden": 33, "out_features": "(default)"}),
        ("multi-2", "functional", {"hidden": 17, "out_features": 5}),
        ("single", "timing", {}),
    ]
    assert "\nin_features = 48\n" in task.source and task.source.startswith(
        (FOLDERS / "mlp/func_forward.py").read_text()
    )
    norm = load_task(FOLDERS / "layer_norm")
    assert len(norm.workloads) == 6 and norm.description == "Layer normalisation over the last dimension."
    assert (norm.task_id, norm.function) == ("layer_norm", "forward")


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_settings_too_large_for_a_cpu_are_shrunk(way: str, tmp_path: Path, evaluator: Evaluator) -> None:
    shutil.copytree(FOLDERS / "softmax", tmp_path / "softmax")
    config = {"single_input_configs": [{"rows": 16384, "columns": 65536}], "multi_input_configs": [{"rows": 1 << 20}]}
    (tmp_path / "softmax" / f"config_{way}.json").write_text(json.dumps(config))
    task = load_task(f"{tmp_path / 'softmax'}:{way}")
    plan = evaluator.check_task(task)
    assert "workload 'single' is too large to run without a GPU" in plan.notes[0]
    result = evaluator.evaluate(task, load_candidate(FOLDERS / "softmax" / f"{way}.cu"))
    assert result.verdict == "correct", result.reason
    wrong = changed(FOLDERS / "softmax" / f"{way}.cu", "i += 64) sum +=", "i += 128) sum +=")
    assert evaluator.evaluate(task, wrong).verdict == "wrong"


def test_both_directions_are_tasks_of_a_suite() -> None:
    assert [t.task_id for t in load_suite(FOLDERS)] == ["layer_norm", "mlp", "softmax", "softmax-backward"]
    assert [t.task_id for t in load_suite(FOLDERS / "softmax")] == ["softmax", "softmax-backward"]
    assert [t.task_id for t in load_suite(f"{FOLDERS / 'softmax'}:backward")] == ["softmax-backward"]
    assert load_task(f"{FOLDERS / 'softmax'}:backward").function == "backward"


LINEAR = """
import torch
import torch.nn.functional as F

def forward_fn(x, weight, bias):
    return F.linear(x, weight, bias)

{backward}

class Model(torch.nn.Module):
    def __init__(self, features=5):
        super(Model, self).__init__()
        self.layer = torch.nn.Linear(features, 4)

    def forward(self, x, fn={fn}):
        return fn(x, self.layer.weight, self.layer.bias)

def get_inputs(rows=6, features=5):
    return {inputs}

input_names = ["x"]
"""
FUNCTION = """
class LinearFunction(torch.autograd.Function):
    backward_fn = None

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(weight, x)
        return forward_fn(x, weight, bias)

    @staticmethod
    def backward(ctx, grad_output):
        weight, x = ctx.saved_tensors
        {body}
"""
BODIES = {
    "placeholder": ("return LinearFunction.backward_fn(grad_output, x, weight)", "g @ w", "g.T @ x", "g.sum(0)"),
    "inline": (
        "return grad_output @ weight, grad_output.T @ x, grad_output.sum(0)",
        "g @ x",  # saved in the other order
        "g.T @ w",
        "g.sum(0)",
    ),
}
PYTHON = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, g, x, w):
        return {0}, {1}, {2}
"""


def folder(path: Path, text: str, config: object, way: str = "backward") -> Path:
    path.mkdir()
    (path / f"func_{way}.py").write_text(text)
    (path / f"config_{way}.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return path


def linear(backward: str, fn: str = "forward_fn", inputs: str = "[torch.randn(rows, features)]") -> str:
    return LINEAR.format(backward=backward, fn=fn, inputs=inputs)


def judged(evaluator: Evaluator, task: Task, text: str) -> Evaluation:
    source = SourceFile(path="candidate.py", content=text)
    return evaluator.evaluate(task, Candidate(sources=(source,), language="torch"))


@pytest.mark.parametrize("name", BODIES)
def test_backward_is_called_as_the_function_calls_it(name: str, tmp_path: Path, evaluator: Evaluator) -> None:
    body, *gradients = BODIES[name]
    text = linear(FUNCTION.format(body=body), "LinearFunction.apply")
    config = {"multi_shared_configs": [{"features": 7}, {"features": 64}], "single_input_configs": {"rows": 9}}
    task = load_task(f"{folder(tmp_path / 'linear', text, config)}:backward", policy="libraries")
    result = judged(evaluator, task, PYTHON.format(*gradients))
    assert result.verdict == "correct", (result.reason, result.log)
    result = judged(evaluator, task, PYTHON.format(gradients[0], gradients[1] + " * 1.01", gradients[2]))
    assert result.verdict == "wrong" and "output 1" in result.reason


@pytest.mark.parametrize("backward", ["", "def backward_fn(grad_output, x, weight, bias): ..."])
def test_backward_without_a_function(backward: str, tmp_path: Path, evaluator: Evaluator) -> None:
    task = load_task(f"{folder(tmp_path / 'linear', linear(backward), {})}:backward", policy="libraries")
    text = PYTHON.replace("g, x, w)", "g, x, w, b)").format("g @ w", "g.T @ x", "g.sum(0)")
    assert judged(evaluator, task, text).verdict == "correct"


def test_a_backward_that_disagrees_with_autograd_is_no_reference(tmp_path: Path, evaluator: Evaluator) -> None:
    shutil.copytree(FOLDERS / "softmax", tmp_path / "softmax")
    file = tmp_path / "softmax" / "func_backward.py"
    file.write_text(file.read_text().replace("return y * (grad_output -", "return 2 * y * (grad_output -"))
    with pytest.raises(TaskError, match="backward_fn and autograd of forward_fn disagree"):
        evaluator.check_task(load_task(f"{tmp_path / 'softmax'}:backward"))


GOOD = linear("")
BROKEN = [
    ("[1, 2", GOOD, "is not JSON"),
    ("[1, 2]", GOOD, "is not a JSON object"),
    ({"single_inputs_configs": []}, GOOD, "unknown key 'single_inputs_configs'"),
    ({"single_input_configs": [3]}, GOOD, "is no list of objects"),
    ({"single_input_configs": [{"rows": {"a": 1}}]}, GOOD, "rows in single_input_configs is"),
    ('{"single_input_configs": [{"rows": NaN}]}', GOOD, "rows in single_input_configs is nan"),
    ({"single_input_configs": [{"lambda": 1}]}, GOOD, "'lambda'"),
    ({"multi_init_configs": [{}] * 9, "multi_input_configs": [{}] * 8}, GOOD, "gives 72 settings"),
    ({}, GOOD.replace("def forward_fn", "def forwards"), "defines no forward_fn"),
    ({}, GOOD.replace("class Model", "class Modell"), "no Model"),
    ({}, GOOD.replace("def get_inputs", "def inputs"), "no get_inputs"),
    ({}, "def (", "is not Python"),
    ({}, " ", "is empty"),
]


@pytest.mark.parametrize(("config", "text", "message"), BROKEN)
def test_what_cannot_be_read_is_one_line_with_a_hint(config: object, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError) as caught:
        load_task(folder(tmp_path / "task", text, config, "forward"))
    assert message in str(caught.value) and "\n" not in str(caught.value) and caught.value.hint


FAILING = [
    ({"single_init_configs": [{"colour": 3}]}, GOOD, "unexpected keyword argument 'colour'"),
    ({"single_input_configs": [{"rows": -1}]}, GOOD, "'single' cannot be used"),
    ({"multi_init_configs": [{"features": 4}]}, GOOD, "'multi' cannot be used"),
    ({}, GOOD.replace("return fn(", "return 2 + fn("), "must call fn once"),
    ({}, GOOD.replace("return fn(", "return F.relu(x) if x is None else x  # ("), "must call fn once"),
]


@pytest.mark.parametrize(("config", "text", "message"), FAILING)
def test_what_does_not_run_is_one_line_with_a_hint(
    config: object, text: str, message: str, tmp_path: Path, evaluator: Evaluator
) -> None:
    task = load_task(folder(tmp_path / "task", text, config, "forward"))
    with pytest.raises(TaskError) as caught:
        evaluator.check_task(task)
    assert message in str(caught.value) and "\n" not in str(caught.value) and caught.value.hint


def test_a_missing_configuration_or_direction(tmp_path: Path) -> None:
    path = folder(tmp_path / "task", GOOD, {}, "forward")
    with pytest.raises(TaskError, match="has no func_backward.py") as caught:
        load_task(f"{path}:backward")
    assert caught.value.hint == f"name its other task: {path}:forward"
    (path / "config_forward.json").unlink()
    with pytest.raises(TaskError, match="configuration"):
        load_task(path)
    with pytest.raises(TaskError, match="has no func_backward.py"):
        load_task(f"{tmp_path}:backward")


def test_from_the_command_line(kernelwright: Command) -> None:
    softmax = FOLDERS / "softmax"
    done = kernelwright("eval", f"{softmax}:backward", softmax / "backward.cu", "--backend", "cpu", "--seed", "1")
    assert done.returncode == 0 and done.stdout.startswith("correct"), done.stdout + done.stderr
    done = kernelwright("tasks", "check", softmax)
    assert done.returncode == 0, done.stdout + done.stderr
    done = kernelwright("eval", f"{FOLDERS / 'mlp'}:backward", softmax / "backward.cu")
    assert done.returncode == 2 and done.stderr.startswith("error:") and "hint:" in done.stderr
