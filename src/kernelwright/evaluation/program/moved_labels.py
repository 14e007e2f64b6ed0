"""Moves the labels of bytes as an operator moves the bytes, so that each result keeps who made it, element by element.

Unwritten elements stay unwritten, and what a kernel has stored stays a kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernelwright.evaluation.program import glue_table, memory, origins
from kernelwright.evaluation.program.forms import Place
from kernelwright.evaluation.program.memory import DeviceMemory


@dataclass(frozen=True)
class Execution:
    """An operator that ran: its arguments, and what it returned."""

    plain: list[Any]
    named: dict[str, Any]
    made: Any


@dataclass(frozen=True)
class Move:
    """A move that ran: the operator's name and function, its positional arguments as recorded, the places of its device
    arguments, and their labels."""

    name: str
    function: Any
    args: list[Any]
    call: Execution
    places: list[Place]
    labels: list[int]
    """The strongest label at each place."""


def result(blocks: DeviceMemory, move: Move, sizes: list[int]) -> torch.Tensor | None:
    """Returns the labels of a move's new tensor of the given sizes; None where they are all one, or where the operator
    does not work on labels."""
    plain, named = move.call.plain, move.call.named
    padded = move.name == "constant_pad_nd"
    if move.name not in glue_table.CARRIES or (_alike(blocks, move) and not padded):
        return None
    if sum(1 for _ in _tensors([*plain, *named.values()])) != len(move.places):
        return None  # tensors of the host are among them
    queue = iter(move.places)

    def swapped(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _moved(blocks, next(queue))
        return [swapped(v) for v in value] if isinstance(value, list) else value

    arguments = [swapped(v) for v in plain]
    if padded:
        arguments[2:] = [memory.CONSTANT]
    kept = {k: v for k, v in named.items() if k not in ("dtype", "layout")}
    try:
        made = move.function(*arguments, **kept)
    except Exception:
        return None
    fits = isinstance(made, torch.Tensor) and made.dtype is torch.uint8 and list(made.shape) == sizes
    return made if fits else None


def in_place(blocks: DeviceMemory, move: Move, place: Place) -> torch.Tensor | int:
    """Returns the labels of what a move has written in place: one for each element, or one for all."""
    others = [lab for p, lab in zip(move.places, move.labels, strict=True) if p is not place]
    worst = memory.strongest(others or [memory.CONSTANT])
    label = memory.AFTER_MOVE.get(worst, worst)
    plain, sizes = move.call.plain, tuple(place[2])
    if move.name == "copy_" and len(others) == 1:
        return label if _alike(blocks, move, but=place) else _moved(blocks, move.places[1]).expand(sizes)
    if move.name in ("index_put_", "_index_put_impl_"):
        labels = blocks.labels(place).clone()
        source = next(origins.places(move.args[2]), None)  # indices and values may be of the host
        values = _moved(blocks, source) if source is not None else torch.tensor(label, dtype=torch.uint8)
        return torch.ops.aten.index_put_(labels, plain[1], values, False)
    return label


def _alike(blocks: DeviceMemory, move: Move, but: Place | None = None) -> bool:
    """Tells whether all arguments, or all but one, have the same one label everywhere."""
    read = [(p, lab) for p, lab in zip(move.places, move.labels, strict=True) if p is not but]
    return all(blocks.uniform(p) is not None for p, _ in read) and len({lab for _, lab in read}) <= 1


def _moved(blocks: DeviceMemory, place: Place) -> torch.Tensor:
    """Returns the labels at a place after a move."""
    return torch.from_numpy(moved(blocks.labels(place).numpy()))


def moved(labels: np.ndarray | int) -> Any:
    """Returns labels after a move, in the form in which they are given."""
    if isinstance(labels, int):
        return memory.AFTER_MOVE.get(labels, labels)
    for before, after in memory.AFTER_MOVE.items():
        labels[labels == before] = after
    return labels


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
