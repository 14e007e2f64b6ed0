"""Plainer classes compute the same under the same parameter names, and the library reads more tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from kernelwright import syntax
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions import write
from kernelwright.tasks import candidate_from_text
from kernelwright.tasks.normal_form.normal import normal_form
from kernelwright.tasks.normal_form.plain_classes import MOST, plain_classes

FILE = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from functools import partial

class Block(nn.Module):
    gain = 0.5
    def __init__(self, d, k=1.0, act=F.gelu, norm=None):
        super().__init__()
        inner = d
        self.fc = nn.Linear(inner, d)
        self.norm = norm if norm is not None else nn.Identity()
        self.act = act
        self.k = k
    def forward(self, x):
        return x + self.gain * self.k * self.act(self.norm(self.fc(x)))

class Wrap(nn.Module):
    def __init__(self, d, fn, after=None):
        super().__init__()
        if after is None:
            self.after = nn.LayerNorm(d)
        else:
            self.after = after
        self.fn = fn
        self.scale = nn.Parameter(torch.ones(d))
    def forward(self, x):
        return self.after(x + self.scale * self.fn(x))

class Twice(nn.Module):
    def __init__(self, d, fn):
        super().__init__()
        self.inner = Wrap(d, fn)
    def forward(self, x):
        return self.inner(self.inner(x))

class Sub(Block):
    gain = 0.25
    def __init__(self, d, p):
        inner = 3
        super().__init__(d, k=2.0 * p)
        self.ln = nn.LayerNorm(d, eps=1e-5 * inner)
    def forward(self, x):
        return self.ln(super().forward(x)) + self.shifted(x)
    def shifted(self, x):
        return x * self.gain

class SubSub(Sub):
    def forward(self, x):
        return super().forward(x) - 1.0

class Plain(Block):
    pass

class Model(nn.Module):
    def __init__(self, d=24):
        super().__init__()
BODY

def get_inputs():
    return [torch.randn(6, 24)]

def get_init_inputs():
    return []
"""

CASES = {
    "a module": ("self.w = Wrap(d, nn.Linear(d, d))", "self.w(x)"),
    "a module of the file": ("self.w = Wrap(d, Block(d, 2.0))", "self.w(x)"),
    "modules in modules": ("self.w = Wrap(d, fn=Wrap(d, Block(d)), after=nn.ReLU())", "self.w(x)"),
    "handed on": ("self.w = Twice(d, nn.Sequential(nn.Linear(d, 2 * d), nn.Tanh(), nn.Linear(2 * d, d)))", "self.w(x)"),
    "a function": ("self.w = Block(d, act=F.silu)", "self.w(x)"),
    "a partial function": ("self.w = Block(d, act=partial(F.leaky_relu, negative_slope=0.2))", "self.w(x)"),
    "a lambda": ("self.w = Block(d, act=lambda t: t * torch.sigmoid(1.5 * t))", "self.w(x)"),
    "a norm": ("self.w = Block(d, norm=nn.LayerNorm(d))", "self.w(x)"),
    "inherited": ("self.w = Sub(d, 1.5)", "self.w(x)"),
    "inherited twice": ("self.w = SubSub(d, 1.5)", "self.w(x)"),
    "all inherited": ("self.w = Plain(d)", "self.w(x)"),
    "a dictionary": ("self.w = nn.ModuleDict({'a': Block(d), 'b': nn.Linear(d, d)})", "self.w['b'](self.w['a'](x))"),
    "a partial attribute": (
        "self.f = partial(torch.clamp, min=-0.5); self.w = nn.Linear(d, d)",
        "self.f(self.w(x), max=1)",
    ),
    "dictionaries in a list": (
        "self.w = nn.ModuleList([nn.ModuleDict({'a': Block(d), 'b': nn.Linear(d, d)}) for _ in range(2)])",
        "self.w[1]['b'](self.w[0]['a'](x))",
    ),
    "in a loop": ("self.w = nn.ModuleList([Wrap(d, nn.Linear(d, d)) for _ in range(2)])", "self.w[1](self.w[0](x))"),
}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2, small_sizes=True), pool=pool) as made:
        yield made


def text(case: str) -> str:
    made, returned = CASES[case]
    return FILE.replace("BODY", f"        {made}\n    def forward(self, x):\n        return {returned}")


def outcome(source: str, state: Any = None) -> tuple[Any, Any]:
    space: dict[str, Any] = {}
    exec(compile(source, "task", "exec"), space)
    torch.manual_seed(0)
    model = space["Model"]()
    if state is not None:
        model.load_state_dict(state)
    torch.manual_seed(1)
    return model(*space["get_inputs"]()), model.state_dict()


@pytest.mark.parametrize("case", CASES)
def test_plainer_classes_compute_the_same(case: str) -> None:
    source = text(case)
    right, state = outcome(source)
    assert torch.equal(outcome(plain_classes(source), state)[0], right)
    assert torch.equal(outcome(plain_classes(normal_form(source)), state)[0], right)


@pytest.mark.parametrize("case", CASES)
def test_the_library_answers(case: str, evaluator: Evaluator) -> None:
    source = text(case)
    candidate = candidate_from_text(write(source), "test")
    found = evaluator.evaluate(Task(task_id="t", source=source), candidate)
    assert (found.verdict, found.reason) == ("correct", "")


def test_what_is_not_understood_stays() -> None:
    source = text("a module").replace("Wrap(d, nn.Linear(d, d))", "Wrap(*[d, nn.Linear(d, d)])")
    assert "Wrap(*[d, nn.Linear(d, d)])" in plain_classes(source)


def test_texts_cannot_ask_for_any_number_of_classes() -> None:
    nested = "nn.Linear(d, d)"
    for _ in range(12):
        nested = f"Wrap(d, Twice(d, {nested}))"
    many = " + ".join(f"Wrap(d, nn.Linear(d, {n}))" for n in range(1, 200))
    for made in (nested, many):
        source = FILE.replace("BODY", f"        self.w = {made}\n    def forward(self, x):\n        return self.w(x)")
        assert len(syntax.parse(plain_classes(source)).body) < MOST + 20
