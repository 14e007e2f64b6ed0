"""Integers, booleans and half precision in forward: candidates are correct, or none is written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions import CANONICAL, Schedule, write
from kernelwright.solutions.kernels.schedule import TUNED
from kernelwright.solutions.read.reading import Unreadable
from kernelwright.tasks import candidate_from_text

FILE = """
import torch
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, d=3):
        super().__init__()
        INIT
    def forward(self, x, t):
        return FORWARD
def get_inputs():
    return [torch.randn(37, 3), torch.randint(0, 5, (37, 3))]
def get_init_inputs():
    return []
"""
RIGHT = (
    "t.float()",
    "t.to(x.dtype)",
    "t[1:].float()",
    "t[1:].to(torch.float32) * x[1:]",
    "t.t().float()",
    "t.transpose(0, 1).float().relu()",
    "t.view(-1)[3:].float()",
    "(t > 2)[1:].float()",
    "(x > 0).t().float()",
    "torch.flip(x > 0, [0]).float()",
    "t.flip(0).float()",
    "t.sum(1)",
    "t.argmax(1)",
    "(x > 0).sum()",
    "x.half() + x",
    "torch.where(t > 2, x, 0.0)",
    "(t % 3).float() / 2",
)
REFUSED = (
    "t + 1",
    "t[1:]",
    "t.flip(0)",
    "t.flip(0)[1:]",
    "t.max()",
    "t.cumsum(1)",
    "t.clamp(0, 3)",
    "torch.where(t > 2, t, 0)",
    "torch.roll(t, 1, 0)",
    "torch.gather(t, 1, t % 3)",
    "torch.cat([t, t]).float()",
    "t.repeat(2, 1).float()",
    "torch.cat([x > 0, x > 1]).float()",
    "x.half().float()",
    "(x.half() * 2).float().sum()",
)
LISTS = (
    "self.layers = nn.ModuleList()\n        for _ in range(2):\n            self.layers.append(nn.Linear(d, d))",
    "self.layers = nn.ModuleList([nn.Linear(d, d)])\n        self.layers.append(nn.Tanh())",
    'self.layers = nn.Sequential(nn.Linear(d, d))\n        self.layers.add_module("a", nn.Tanh())',
    "self.layers = nn.ModuleList([nn.Linear(d, d)])\n        self.layers.extend([nn.Tanh()])",
    "self.layers = nn.ModuleList([nn.Linear(d, d)])\n        self.layers += [nn.Tanh()]",
    "self.layers = nn.ModuleList([nn.Linear(d, d), nn.ReLU()])\n        self.layers[1] = nn.Tanh()",
    "self.layers = nn.ModuleList([nn.Linear(d, d), nn.ReLU()])\n        self.layers.insert(0, nn.Tanh())",
    "self.layers = nn.ModuleList([nn.Linear(d, d), nn.ReLU()])\n        del self.layers[1]",
    "self.layers = nn.ModuleList([nn.Linear(d, d), nn.ReLU()])\n        self.layers.pop(1)",
)


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2, small_sizes=True), pool=pool) as made:
        yield made


def verdict(evaluator: Evaluator, source: str, schedule: Schedule) -> tuple[str, str]:
    candidate = candidate_from_text(write(source, schedule), "test")
    found = evaluator.evaluate(Task(task_id="t", source=source), candidate)
    return found.verdict, found.reason


def text(forward: str, init: str = "pass") -> str:
    return FILE.replace("FORWARD", forward).replace("INIT", init)


@pytest.mark.parametrize("forward", RIGHT)
def test_answers_are_right(forward: str, evaluator: Evaluator) -> None:
    for schedule in (CANONICAL, TUNED):
        assert verdict(evaluator, text(forward), schedule) == ("correct", "")


def test_bounds_that_are_tensors(evaluator: Evaluator) -> None:
    lines = ("self.register_buffer('lo', torch.arange(d) - 1.5)", "self.register_buffer('hi', torch.ones(37, 1))")
    init = "\n        ".join(lines)
    for forward in ("x.clamp(max=self.hi, min=self.lo)", "torch.clamp(x, self.lo)"):
        for schedule in (CANONICAL, TUNED):
            assert verdict(evaluator, text(forward, init), schedule) == ("correct", "")


@pytest.mark.parametrize("forward", REFUSED)
def test_what_float32_is_not_is_refused(forward: str) -> None:
    for schedule in (CANONICAL, TUNED):
        with pytest.raises(Unreadable):
            write(text(forward), schedule)


@pytest.mark.parametrize("init", LISTS)
def test_lists_of_layers_that_change(init: str, evaluator: Evaluator) -> None:
    lines = ["self.run(x).mean(1)", "    def run(self, x):", "        for l in self.layers:", "            x = l(x)"]
    forward = "\n".join([*lines, "        return x"])
    try:
        found = verdict(evaluator, text(forward, init), CANONICAL)
    except Unreadable:
        return
    assert found == ("correct", "")
