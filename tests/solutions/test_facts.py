"""Shapes and dtypes that the text declares for a constructor's tensors are torch's own, or unknown."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.solutions.read.facts import read_facts
from kernelwright.solutions.read.reading import read

TEXT = """
import torch
import torch.nn as nn

def distance(n: int, slope: float = 0.5, *, start=0) -> torch.Tensor:
    \"\"\"Falls with the distance.\"\"\"
    position = torch.arange(start, n, dtype=torch.float32)
    return -slope * (position[:, None] - position[None, :]).abs()

def twice(n):
    return distance(n, 2.0)

def endless(n):
    return endless(n)

class Model(nn.Module):
    def __init__(self, n, depth):
        super().__init__()
        i = torch.arange(n)
        grid = torch.randn(4, n, 6)
        self.register_buffer("made", {made})

    def forward(self, x):
        return x * self.made

def get_inputs():
    return [torch.randn(3)]

def get_init_inputs():
    return [10, 2]
"""
KINDS = {torch.float32: "float", torch.int64: "long", torch.bool: "bool"}


def declared(made: str) -> Any:
    reference = read(TEXT.format(made=made))
    return read_facts(reference).tensors.get("made")


@pytest.mark.parametrize(
    "made",
    [
        "(i[None, :] - i[:, None] >= -3) & (i[:, None] < 5)",
        "distance(n)",
        "distance(n, slope=1.0)",
        "twice(n + depth)",
        "grid[0]",
        "grid[:, 1:7:2]",
        "grid[..., -1]",
        "grid[1, ..., None]",
        "grid[None, ..., 2:, 0]",
        "grid[:2, :, None]",
        "torch.arange(0, n, 3)",
        "torch.arange(n, dtype=torch.float32).view(1, -1, 1)",
        "torch.arange(0.0, 1.0, 0.25)",
        "torch.linspace(0, 1, n)",
        "grid.reshape(-1, 12)",
        "torch.stack([i, i], dim=1)",
        "torch.cat((grid, grid[:, :3]), dim=1)",
        "torch.triu(torch.ones(n, n, dtype=torch.bool), diagonal=1)",
        "(i.float() + 1).log().mul(grid[0, :, :1]).clamp_(min=-1)",
        "torch.outer(i, i)",
        "torch.stack(torch.meshgrid(i, torch.arange(4), indexing='ij')).flatten(1)",
        "(i[:, None] - i[None, :]).clamp(min=0) * 0.5",
        "i / 2",
        "(i + 0.5).sin().sum()",
        "torch.tril(0.9 ** (i[:, None] - i).abs())",
        "grid.repeat(2, 1, 1)",
        "grid.flatten()",
    ],
)
def test_shapes_are_those_that_torch_makes(made: str) -> None:
    names: dict[str, Any] = {}
    exec(TEXT.format(made=made), names)
    real = names["Model"](10, 2).made
    found = declared(made)
    assert found is not None and found.shape == tuple(real.shape) and found.dtype == KINDS[real.dtype]


@pytest.mark.parametrize(
    "made",
    ["grid[i > 3]", "grid[unknown]", "grid[0, 0, 0, 0]", "endless(n)", "torch.arange(0, n, 0)", "torch.kron(i, i)"],
)
def test_what_the_text_does_not_tell_is_not_known(made: str) -> None:
    assert declared(made) is None
