"""Reasons of verdicts are in the words of the task's author, and the deciding finding is no warning."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.compare.on_host import describe
from kernelwright.records import Candidate, SourceFile, Task
from kernelwright.tasks.reference import sizes_in_words

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0
def get_inputs():
    rows = 128
    return [torch.randn(rows, 4096)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    "source, constants, said",
    [
        (TASK, {"get_inputs:7:11": 157}, "rows=157"),
        (TASK, {"get_inputs:8:30": 157}, "157 for 4096 on line 8"),
        ("rows = 128\n", {"rows": 3}, "rows=3"),
        ("def get_inputs():\n    return make(size=64)\n", {"get_inputs:2:21": 9}, "size=9"),
        ('SIZES = {"n": 640, "f": make()}\n', {"SIZES:1:14": 9}, "n=9"),
        ("def get_inputs(n=64):\n    return [n]\n", {"get_inputs:1:17": 9}, "n=9"),
        (TASK, {}, "the task's own size"),
    ],
)
def test_sizes_have_the_names_of_the_source(source: str, constants: dict[str, int], said: str) -> None:
    assert sizes_in_words(source, constants) == said


@pytest.mark.parametrize("step, word", [(2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (21, "21st")])
def test_places_are_counted_in_english(step: int, word: str) -> None:
    wrong = np.zeros(step * 4, dtype=bool)
    wrong[::step] = True
    assert f"every {word} index of dimension 0" in describe(wrong)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu")) as made:
        yield made


def _judged(evaluator: Evaluator, kernel: str, launch: str) -> dict[str, object]:
    text = f'''
import torch
from kernelwright.cuda import Module
m = Module(r"""{kernel}""")
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        {launch}
        return y
'''
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")
    return evaluator.evaluate(Task(task_id="twice", source=TASK), candidate).model_dump()


RACE = """
template <int N> __global__ void twice(const float* x, float* y, int n) {
    __shared__ float s[N];
    int i = blockIdx.x * N + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0.0f;
    float v = s[N - 1 - threadIdx.x];
    if (i < n) y[i] = s[threadIdx.x] * 2 + v * 0;
}
"""
OUTSIDE = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    y[i < n - 1 ? i : i + (1 << 26)] = x[i] * 2;
}
"""


@pytest.mark.parametrize(
    "kernel, name, rule",
    [(RACE, 'get("twice<256>")', "data-race"), (OUTSIDE, "twice", "out-of-bounds-write")],
    ids=["race", "outside"],
)
def test_the_deciding_finding_is_first_and_no_warning(evaluator: Evaluator, kernel: str, name: str, rule: str) -> None:
    found = _judged(evaluator, kernel, f"m.{name}[((x.numel() + 255) // 256,), (256,)](x, y, x.numel())")
    findings = found["findings"]
    assert isinstance(findings, tuple) and findings[0]["rule"] == rule
    assert findings[0]["severity"] == "fault" and findings[0]["evidence"][:100] in str(found["reason"])
    assert {"no-own-kernel", "unwritten-output"}.isdisjoint(f["rule"] for f in findings)
    assert len({(f["rule"], f["evidence"]) for f in findings}) == len(findings)


def test_both_errors_are_named(evaluator: Evaluator) -> None:
    wrong = OUTSIDE.replace("y[i < n - 1 ? i : i + (1 << 26)] = x[i] * 2", "if (i < n) y[i] = x[i] * 2.1f")
    reason = str(_judged(evaluator, wrong, "m.twice[((x.numel() + 255) // 256,), (256,)](x, y, x.numel())")["reason"])
    assert "absolute error" in reason and "relative to |expected| + RMS of its row" in reason
