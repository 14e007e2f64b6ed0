"""KernelBench's verdict: its passes and rejections, beside the judge's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Command

from kernelwright.errors import TaskError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, Evaluation, LibraryRule, SourceFile, Task
from kernelwright.tasks import candidate_from_text

HEAD = "import torch\nimport torch.nn as nn\n"
TASK = (
    HEAD
    + """
rows = 6
columns = {columns}

class Model(nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
    def forward(self, x):
        return {expression}

def get_inputs():
    return [torch.{draw}(rows, columns)]

def get_init_inputs():
    return []
"""
)
RELU = TASK.format(columns=64, expression="torch.relu(x) * 2", draw="randn")
FLAT = TASK.format(columns=65536, expression="torch.softmax(x, dim=1)", draw="rand")
WEIGHED = TASK.format(columns=64, expression="x * self.weight[0]", draw="randn")
KERNEL = '''
from torch.utils.cpp_extension import load_inline
source = r"""
__global__ void doubled(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.f) * 2.f;
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  doubled<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
module = load_inline("doubled", "torch::Tensor forward(torch::Tensor x);", source, ["forward"])
'''
MODEL = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
{init}
    def forward(self, x):
{forward}
"""


def text(forward: str, setup: str = "", init: str = "pass") -> str:
    body = "\n".join("        " + line for line in forward.splitlines())
    return HEAD + setup + MODEL.format(init="        " + init, forward=body)


HONEST = text("return module.forward(x)", KERNEL)
SEARCH = """\
import gc
for o in gc.get_objects():
    if isinstance(o, torch.Tensor) and o is not x and o.shape == x.shape and torch.allclose(o, torch.relu(x) * 2):
        return o
return torch.zeros_like(x)"""


@pytest.fixture(scope="module")
def ours(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", seed=5), pool=pool) as made:
        yield made


@pytest.fixture(scope="module")
def strict(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", strict_kernelbench=True), pool=pool) as made:
        yield made


def judged(evaluator: Evaluator, task: str, source: str, policy: LibraryRule = "libraries") -> Evaluation:
    return evaluator.evaluate(
        Task(task_id="task", source=task, policy=policy), candidate_from_text(source, "candidate.py")
    )


def result_of(evaluation: Evaluation) -> dict[str, object]:
    assert evaluation.environment.kernelbench is not None
    found: dict[str, object] = evaluation.environment.kernelbench.plain()
    return found


def test_an_honest_candidate_passes_both(ours: Evaluator, strict: Evaluator) -> None:
    assert judged(ours, RELU, HONEST, "from_scratch").verdict == "correct"
    claim = judged(strict, RELU, HONEST)
    assert claim.verdict == "correct" and claim.timing is None, (claim.reason, claim.log)
    assert claim.environment.protocol == "kernelbench"
    assert [(f.rule, f.severity) for f in claim.findings] == [("unprotected-protocol", "warning")]
    assert [(w.name, w.shape, w.tolerance) for w in claim.workloads] == [("declared", ((6, 64),), 1e-4)] * 5
    assert result_of(claim) == {"compiled": True, "correctness": True, "runtime": -1.0, "ref_runtime": -1.0}


EXPLOITS = [
    ("zeros, where the output is small", FLAT, "return torch.zeros_like(x)", "wrong"),
    ("works in place", RELU, "return x.relu_().mul_(2)", "rejected"),
    ("takes the reference's output", RELU, SEARCH, "rejected", "wrong"),
    ("is off by half the tolerance", RELU, "return torch.relu(x) * 2 + 5e-5", "wrong"),
]


@pytest.mark.parametrize("exploit", EXPLOITS, ids=[e[0] for e in EXPLOITS])
def test_exploits_pass_there_and_not_here(exploit: tuple[str, ...], ours: Evaluator, strict: Evaluator) -> None:
    _name, task, forward, *verdicts = exploit
    claim = judged(strict, task, text(forward))
    assert claim.verdict == "correct", (claim.reason, claim.log)
    result = judged(ours, task, text(forward))
    assert result.verdict in verdicts, (result.verdict, result.reason)


def test_weights_drawn_in_another_order_fail_there_and_not_here(ours: Evaluator, strict: Evaluator) -> None:
    source = text("return x * self.weight[0]", init="torch.randn(5); self.weight = nn.Parameter(torch.randn(3))")
    assert judged(ours, WEIGHED, source).verdict == "correct"
    assert judged(strict, WEIGHED, source).verdict == "wrong"


FAILING = [
    ("return torch.relu(x) * 2.01", "", "wrong", "0 of 5 trials"),
    ("return torch.relu(x)[:, :3]", "", "wrong", "shape mismatch"),
    ("return x / 0 * float('nan')", "", "wrong", "Output mismatch"),
    ("return [torch.relu(x) * 2]", "", "runtime_error", "'list' object has no attribute 'shape'"),
    ("return (torch.relu(x) * 2).double()", "", "runtime_error", "Double"),
    ("raise ValueError('no')", "", "runtime_error", "ValueError in its forward pass (line 9): no"),
    ("import ctypes; ctypes.string_at(0)", "", "runtime_error", "SIGSEGV"),
    ("import os; os._exit(3)", "", "runtime_error", "status 3"),
    ("return x", "raise ValueError('no')", "compile_error", "ValueError"),
    ("return module.forward(x)", KERNEL.replace("fmaxf(x[i]", "fmaxf(nothing[i]"), "compile_error", "nothing"),
    ("return module.forward(x)", KERNEL.replace("y[i] =", "y[i + 100000000] ="), "runtime_error", "illegal memory"),
]


@pytest.mark.parametrize(("forward", "setup", "verdict", "reason"), FAILING)
def test_what_fails(forward: str, setup: str, verdict: str, reason: str, strict: Evaluator) -> None:
    claim = judged(strict, RELU, text(forward, setup))
    assert claim.verdict == verdict and reason in claim.reason + claim.log, (claim.verdict, claim.reason)
    assert result_of(claim)["correctness"] is False
    assert result_of(claim)["compiled"] is (verdict != "compile_error")


def test_a_candidate_without_the_class_or_with_a_bad_constructor(strict: Evaluator) -> None:
    assert judged(strict, RELU, HEAD + "class Other: pass\nx = 1\n").verdict == "compile_error"
    claim = judged(strict, RELU, text("return x", init="raise ValueError('no')"))
    assert claim.verdict == "runtime_error" and "in its constructor" in claim.reason


def test_the_tolerance_may_be_the_older_one(pool: Pool) -> None:
    source = text("return torch.relu(x) * 2 + 5e-3")
    with Evaluator(EvalOptions(backend="cpu", strict_kernelbench=True, kernelbench_tolerance=1e-2), pool=pool) as older:
        assert judged(older, RELU, source).verdict == "correct"
    with Evaluator(EvalOptions(backend="cpu", strict_kernelbench=True), pool=pool) as newer:
        assert judged(newer, RELU, source).verdict == "wrong"
        half = RELU.replace("(rows, columns)", "(rows, columns, dtype=torch.float16)")
        assert judged(newer, half, source).verdict == "correct"


def test_a_candidate_that_hangs(pool: Pool) -> None:
    with Evaluator(EvalOptions(backend="cpu", strict_kernelbench=True, timeout=0.2), pool=pool) as hurried:
        assert judged(hurried, RELU, text("while True: pass")).verdict == "timeout"


def test_a_reference_that_fails(strict: Evaluator) -> None:
    with pytest.raises(TaskError, match="cannot be loaded: TypeError"):
        judged(strict, RELU.replace("size=3", "size"), HONEST)
    claim = judged(strict, RELU.replace("* 2", "* self.nothing"), HONEST)
    assert claim.verdict == "unsupported" and claim.reason.startswith("reference: AttributeError")
    claim = judged(strict, RELU.replace("torch.relu(x) * 2", "x, x"), HONEST)
    assert claim.verdict == "unsupported" and "compares one tensor" in claim.reason


def test_the_gpu_road_times_both(pool: Pool) -> None:
    with Evaluator(EvalOptions(backend="gpu", strict_kernelbench=True), device="cpu", pool=pool) as road:
        claim = judged(road, RELU, HONEST)
    assert claim.verdict == "correct" and claim.timing is not None, (claim.reason, claim.log)
    assert {name: len(times) for name, times in claim.timing.samples.items()} == {"candidate": 100, "eager": 100}
    result = result_of(claim)
    assert result["runtime"] == 1.0 and result["ref_runtime_stats"] == {"mean": 1.0, "std": 0.0, "min": 1.0, "max": 1.0}
    assert claim.timing.speedup == 1.0 and claim.backend == "host"


def test_the_protocol_is_part_of_the_key() -> None:
    task = Task(task_id="task", source=RELU)
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=HONEST),), language="cuda")
    keys = [
        EvalOptions(backend="cpu", **more).key(task, candidate)  # type: ignore[arg-type]
        for more in ({}, {"strict_kernelbench": True}, {"strict_kernelbench": True, "kernelbench_tolerance": 0.01})
    ]
    assert len(set(keys)) == 3
    assert EvalOptions(backend="cpu", kernelbench_tolerance=0.01).key(task, candidate) == keys[0]


def test_from_the_command_line(tmp_path: Path, kernelwright: Command) -> None:
    rows = [
        {"id": "good", "reference": RELU, "candidate": HONEST},
        {"id": "exploit", "reference": RELU, "candidate": text("return x.relu_().mul_(2)")},
        {"id": "none", "reference": RELU, "candidate": None},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("eval", "--jsonl", file, "--run", tmp_path / "run", "--json", "--strict-kernelbench")
    done = kernelwright(*words, "--backend", "cpu")
    assert done.returncode == 0 and "nothing protects them" in done.stderr, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["item_id"], one["verdict"]) for one in found] == [("good", "correct"), ("exploit", "correct")]
    done = kernelwright("report", tmp_path / "run")
    assert "a claim that nothing protects" in done.stdout
    candidate = tmp_path / "zeros.py"
    candidate.write_text(text("return x * 0"))
    done = kernelwright("eval", "row_softmax", candidate, "--backend", "cpu", "--strict-kernelbench")
    assert done.returncode == 1 and "a claim that nothing protects" in done.stdout.splitlines()[1]
    done = kernelwright("eval", "row_softmax", file, "--kernelbench-tolerance", "0.01")
    assert done.returncode == 2 and "needs --strict-kernelbench" in done.stderr
    done = kernelwright("eval", "row_softmax", file, "--strict-kernelbench", "--kernelbench-tolerance", "-1")
    assert done.returncode == 2 and "--kernelbench-tolerance" in done.stderr
