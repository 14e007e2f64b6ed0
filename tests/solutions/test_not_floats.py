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
    "x * (x > -1).all(dim=1).unsqueeze(1)",
    "x.masked_fill((x > 1).any(1, keepdim=True).expand(-1, 3), 0.0).sum(0)",
    "(x > -1).all(1).float().cumsum(0)",
    "torch.bmm((x > 0).any(1).type_as(x).view(1, 1, -1), x.unsqueeze(0))",
    "x.masked_fill(t > 2, 0.0).sum(0)",
    "torch.where(t.bool(), x, 0.5).sum(0)",
    "(x > 0).sum(1, dtype=torch.float32)",
    "(x > 0).sum(1, dtype=torch.int64)",
    "torch.mean(t, dim=1, dtype=torch.float32)",
    "torch.softmax(x, 1, dtype=x.dtype)",
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
    "(x > 0).sum(1, dtype=torch.int32)",
    "x.sum(1, dtype=torch.float64)",
    "x.sum(1, dtype=torch.int64)",
    "x.cumsum(1, dtype=torch.float64)",
    "x.to(t.dtype)",
    "torch.softmax(x.half(), 1, dtype=torch.float32)",
    "(x.half() * 2).float().sum()",
)
MANY = """def many(n):
    while n % 5:
        n += 1
    return n


"""
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


@pytest.mark.parametrize(
    ("forward", "x", "t"),
    [
        ("(x > 0).sum((1, 2))", (3, 64, 256), (1,)),
        ("x.masked_fill(t > 2, 0.0).sum(1), x.masked_fill(t > 2, 1.0).sum(-1)", (3, 33, 70), (33, 70)),
        ("torch.where(t > 2, x, torch.zeros_like(x)).sum(-1)", (3, 33, 70), (33, 70)),
    ],
)
def test_truths_of_larger_rows(forward: str, x: tuple[int, ...], t: tuple[int, ...], evaluator: Evaluator) -> None:
    source = text(forward).replace("torch.randn(37, 3)", f"torch.randn{x}")
    source = source.replace("torch.randint(0, 5, (37, 3))", f"torch.randint(0, 5, {t})")
    for as_given in (source, source.replace("(0, 5, ", "(0, 2, ").replace("t > 2", "t.bool()")):
        for schedule in (CANONICAL, TUNED):
            assert verdict(evaluator, as_given, schedule) == ("correct", "")


def test_a_truth_of_a_buffer_is_read_at_its_place(evaluator: Evaluator) -> None:
    init = "self.register_buffer('band', torch.ones(33, 70).tril() > 0)"
    source = text("torch.where(self.band, x, torch.zeros_like(x)).sum(-1)", init)
    source = source.replace("torch.randn(37, 3)", "torch.randn(3, 33, 70)")
    for schedule in (CANONICAL, TUNED):
        assert verdict(evaluator, source, schedule) == ("correct", "")


def test_channels_that_the_text_does_not_give(evaluator: Evaluator) -> None:
    init = "self.a = nn.Conv2d(3, many(8), 1)\n        self.b = nn.Conv2d(many(8), 3, 1)"
    source = text("self.b(self.a(x).relu())", init).replace("class Model", MANY + "class Model")
    source = source.replace("torch.randn(37, 3)", "torch.randn(2, 3, 9, 9)")
    for schedule in (CANONICAL, TUNED):
        assert verdict(evaluator, source, schedule) == ("correct", "")


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
