"""Respelt tasks compute the same; programs run and use every value."""

from __future__ import annotations

import ast
import re
from random import Random
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from kernelwright.generate import generate
from kernelwright.generate.spelling import functional, gathered, respelt

SOURCE = """import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, c=6):
        super().__init__()
        self.conv = nn.Conv2d(4, c, (3, 2), stride=2, padding=1, groups=2)
        self.norm = nn.GroupNorm(2, c)

    def forward(self, x):
        y = self.conv(x)
        y = torch.clamp(self.norm(y), min=-0.5, max=0.5)
        y = F.leaky_relu(y, negative_slope=0.2)
        y = y.mean(dim=1, keepdim=True) + torch.logsumexp(y, 1, True)
        return torch.sum(y, dim=(2, 3))

def get_inputs():
    return [torch.rand(2, 4, 9, 8)]

def get_init_inputs():
    return [6]
"""


def model(source: str) -> tuple[Any, Any]:
    space: dict[str, Any] = {}
    exec(source, space)
    torch.manual_seed(0)
    return space["Model"](*space["get_init_inputs"]()), space["get_inputs"]()


def test_other_words_compute_the_same() -> None:
    seen = set()
    for seed in range(40):
        text = gathered(respelt(SOURCE, Random(seed)), Random(seed))
        if "self.conv" not in text and "Parameter" in text:
            continue  # weights of its own: below
        seen.add(text)
        (one, inputs), (other, _) = model(SOURCE), model(text)
        values = list(one.state_dict().values())
        other.load_state_dict(dict(zip(other.state_dict(), values, strict=True)))
        assert torch.allclose(one(*inputs), other(*inputs), atol=1e-6), text
    assert len(seen) > 5


@pytest.mark.parametrize("seed", range(6))
def test_a_layer_as_a_function_of_weights_computes_the_same(seed: int) -> None:
    text = functional(SOURCE, Random(seed))
    assert "F.conv2d(x, self." in text and "nn.Conv2d" not in text
    (one, inputs), (other, _) = model(SOURCE), model(text)
    own = dict(zip(other.state_dict(), one.state_dict().values(), strict=True))
    other.load_state_dict(own)
    assert torch.allclose(one(*inputs), other(*inputs), atol=1e-6)


def test_every_line_of_a_program_is_read() -> None:
    for task in generate(4, 80, families=["program"]):
        forward = next(n for n in ast.walk(ast.parse(task.source)) if getattr(n, "name", "") == "forward")
        assert isinstance(forward, ast.FunctionDef)
        names = [n for n in ast.walk(forward) if isinstance(n, ast.Name)]
        made = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        read = {n.id for n in names if isinstance(n.ctx, ast.Load)}
        inputs = {a.arg for a in forward.args.args[1:]}
        assert made | inputs <= read, task.source


def test_programs_run_at_small_sizes() -> None:
    ran = 0
    for task in generate(8, 120, families=["program"]):
        space: dict[str, Any] = {}
        exec(task.source, space)
        if max(map(int, re.findall(r"\b\d+\b", task.source)), default=0) > 4096:
            continue
        made = space["Model"](*space["get_init_inputs"]())
        with torch.device("meta"):
            inputs = space["get_inputs"]()
            out = made.to("meta")(*inputs)
        assert out.dtype in (torch.float32, torch.int64, torch.bool)
        ran += 1
    assert ran > 20
