"""Tells who made an output: kernels of the candidate, operators of torch, the host, or nobody."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from kernelwright.evaluation.program import memory
from kernelwright.evaluation.program.forms import Place
from kernelwright.evaluation.program.memory import DeviceMemory

FEW = 256
"""A bound on the elements that the host may read unreported: sizes, offsets, small tables."""


def of(blocks: DeviceMemory, place: Place) -> dict[str, int]:
    """Returns the number of an output's elements by label."""
    count = math.prod(place[2])
    uniform = blocks.uniform(place)
    if not count or uniform is not None:
        return {memory.LABELS[uniform]: count} if count and uniform is not None else {}
    totals = torch.bincount(blocks.labels(place).reshape(-1).to(torch.int64))
    return {memory.LABELS[label]: n for label, n in enumerate(totals.tolist()) if n}


def places(value: Any) -> Iterator[Place]:
    """Yields the places in an operator's encoded arguments."""
    if isinstance(value, dict):
        if "t" in value:
            yield value["t"]
        else:
            for item in value.values():
                yield from places(item)
    elif isinstance(value, list):
        for item in value:
            yield from places(item)
