"""Sizes that a task states and that are beyond the usual trials: what is compared there, and what the verdict says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sets.declared import ORIGINALS, Mutant, Original

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.judge import declared_sizes
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, Evaluation, SourceFile, Task, Workload

LARGE = """
import torch
import torch.nn as nn

batch_size = 8192
dim = 393216

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(batch_size, dim)]

def get_init_inputs():
    return []
"""
TWICE = '''
import torch
import torch.nn as nn
from kernelwright.cuda import Module

module = Module("""
extern "C" __global__ void twice(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2;
}
""")

class ModelNew(nn.Module):
    def forward(self, x):
        CHECK
        y = torch.empty_like(x)
        module.twice[(x.numel() + 255) // 256, 256](x, y, x.numel())
        return y
'''
BY_NAME = {o.name: o for o in ORIGINALS}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2, seed=3), pool=pool) as shared:
        yield shared


def judged(evaluator: Evaluator, original: Original, mutant: Mutant | None = None) -> Evaluation:
    return evaluator.evaluate(original.task(), original.candidate(mutant))


def twice(evaluator: Evaluator, check: str = "", **options: bool) -> Evaluation:
    text = TWICE.replace("CHECK", check)
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")
    wanted = EvalOptions(backend="cpu", trials=2, seed=3, **options)
    return evaluator.evaluate(Task(task_id="t", source=LARGE), candidate, wanted)


@pytest.mark.parametrize("name", ["relu", "row-sum", "histogram"])
def test_a_bug_of_the_declared_size_alone(evaluator: Evaluator, name: str) -> None:
    original = BY_NAME[name]
    right = judged(evaluator, original)
    assert right.verdict == "correct", right.reason
    assert right.coverage is not None and right.coverage.values == "all", right.coverage
    for mutant in original.mutants:
        result = judged(evaluator, original, mutant)
        assert result.verdict == "wrong", (mutant.name, result.reason)


def test_each_dimension_is_run_at_its_declared_length(evaluator: Evaluator) -> None:
    matmul = BY_NAME["matmul"]
    depth = next(m for m in matmul.mutants if m.name == "depth-capped")
    result = judged(evaluator, matmul, depth)
    assert result.verdict == "wrong"
    failed = next(w for w in result.workloads if not w.passed)
    assert failed.name == "long-K" and (2, 3000) in failed.shape


def test_a_size_too_large_to_compare_is_said(evaluator: Evaluator) -> None:
    result = twice(evaluator)
    assert result.verdict == "correct" and result.coverage is not None
    (line,) = result.coverage.told()
    assert line.startswith("declared 8192x393216: ")
    assert result.coverage.lengths == ("long-batch_size", "long-dim")


def test_an_exception_of_its_own_at_the_declared_size(evaluator: Evaluator) -> None:
    result = twice(evaluator, 'if x.shape[0] > 8000 and x.shape[1] > 8000: raise ValueError("too large for me")')
    assert result.verdict == "runtime_error"
    assert "at the task's own size" in result.reason and "too large for me" in result.reason


def test_an_exception_after_a_question_decides_nothing(evaluator: Evaluator) -> None:
    ask = "if x.numel() > 1e9 and x[0, 0].item() != 5: raise ValueError('no')"
    result = twice(evaluator, ask)
    assert result.verdict == "correct" and result.coverage is not None
    assert result.coverage.values == "none" and "not decided" in result.coverage.sizes[0].reason


def test_values_of_sampled_blocks_are_compared(evaluator: Evaluator) -> None:
    huge = BY_NAME["huge-scale"]
    right = judged(evaluator, huge)
    assert right.verdict == "correct" and right.coverage is not None
    assert right.coverage.values == "sampled" and right.coverage.sizes[0].compared > 1000
    for mutant in huge.mutants:
        result = judged(evaluator, huge, mutant)
        assert result.verdict == "wrong" and "output 0 differs at [65538, " in result.reason, mutant.name


def test_values_of_sampled_blocks_follow_from_weights(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared_sizes, "SECONDS", 0.0)
    result = judged(evaluator, BY_NAME["convolution"])
    assert result.verdict == "correct" and result.coverage is not None
    assert result.coverage.values == "sampled", result.coverage.told()


CHANGES = """
import torch
import torch.nn as nn

N = 6291456

class Model(nn.Module):
    def forward(self, x):
        x.mul_(2)
        RETURN

def get_inputs():
    return [torch.randn(N)]

def get_init_inputs():
    return []
"""
DOUBLES = TWICE.replace("if (i < n) y[i] = x[i] * 2;", "if (i < n) { y[i] = OTHER; ((float*)x)[i] *= 2; }")


@pytest.mark.parametrize(
    ("returned", "other", "verdict", "compared"),
    [
        ("return None", "7.0f", "correct", False),
        ("return x + 1", "2 * x[i] + 1", "correct", True),
        ("return x + 1", "i > 4194300 ? 2 * x[i] : 2 * x[i] + 1", "wrong", True),
    ],
)
def test_what_the_reference_returns_is_compared(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch, returned: str, other: str, verdict: str, compared: bool
) -> None:
    monkeypatch.setattr(declared_sizes, "SECONDS", 0.0)
    text = DOUBLES.replace("CHECK", "pass").replace("OTHER", other)
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")
    result = evaluator.evaluate(Task(task_id="t", source=CHANGES.replace("RETURN", returned)), candidate)
    assert result.verdict == verdict, result.reason
    assert result.coverage is not None and bool(result.coverage.sizes[0].compared) == compared


def test_a_grid_that_ends_before_the_output_does(evaluator: Evaluator) -> None:
    text = TWICE.replace("CHECK", "").replace("(x.numel() + 255) // 256", "min((x.numel() + 255) // 256, 10_000_000)")
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")
    result = evaluator.evaluate(Task(task_id="t", source=LARGE), candidate)
    assert result.verdict == "wrong" and result.reason.startswith("unwritten-output"), result.reason


def test_a_read_out_of_bounds_where_all_that_was_read_is_known(evaluator: Evaluator) -> None:
    task = LARGE.replace("x * 2", "(x > 0).to(torch.int8)")
    text = TWICE.replace("CHECK", "").replace("float* y", "signed char* y")
    text = text.replace("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.int8)")
    wrong = text.replace("y[i] = x[i] * 2", "y[i] = x[(int)(i >> 6) << 6 | (int)(i & 63)] > 0")
    for source, verdict in ((text.replace("x[i] * 2", "x[i] > 0"), "correct"), (wrong, "runtime_error")):
        candidate = Candidate(sources=(SourceFile(path="candidate.py", content=source),), language="cuda")
        assert evaluator.evaluate(Task(task_id="t", source=task), candidate).verdict == verdict


def test_a_whole_run_may_be_asked_for(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared_sizes, "SECONDS", 0.0)
    relu = BY_NAME["relu"]
    sampled = evaluator.evaluate(relu.task(), relu.candidate())
    whole = evaluator.evaluate(relu.task(), relu.candidate(), EvalOptions(backend="cpu", trials=2, full_size=True))
    assert [r.coverage.values for r in (sampled, whole) if r.coverage] == ["sampled", "all"]


def test_small_sizes_compare_nothing_larger(evaluator: Evaluator) -> None:
    result = twice(evaluator, small_sizes=True)
    assert result.coverage is not None and result.coverage.values == "none"
    assert "only small sizes" in result.coverage.told()[0]


def test_the_estimate_grows_with_elements_and_flops() -> None:
    work = [(Workload(name="small", elements=1000, flops=1000), 40_000)]
    same, larger = (Workload(name="w", elements=n, flops=n) for n in (10**6, 10**8))
    assert 99 < declared_sizes.seconds(work, larger) / declared_sizes.seconds(work, same) < 101
    assert declared_sizes.seconds(work, Workload(name="unknown")) == float("inf")
