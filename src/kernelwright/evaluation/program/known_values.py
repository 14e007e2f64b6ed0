"""Tells which bytes of a sampled call hold what a whole call would leave there, and picks known elements of outputs.

A byte is known if the shadow of its block marks it. A launch of which only some blocks ran leaves known bytes where
these blocks stored, if they read known bytes alone, used no atomics, and wrote where no other launch had written. An
operator leaves known values if it ran, on known ones.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch

from kernelwright.evaluation.program import memory
from kernelwright.evaluation.program.forms import Place, dtype_of
from kernelwright.evaluation.program.memory import Block, DeviceMemory
from kernelwright.machine.device_memory import Shadow

MOST_PICKED = 1 << 15
"""The most elements of one output that are picked, in runs of `RUN` neighbours."""
RUN = 64
MOST_VARIABLE = 1 << 24
"""The most bytes of a variable whose contents stay known in a launch that may store into it."""
_BEFORE = 3
"""The label of a variable's bytes that were known before a launch: kernels give another one to what they store."""
_MOST_SCANNED = 1 << 28
"""The bytes of touched shadow that are looked through."""


def known(blocks: DeviceMemory, places: Iterable[Place]) -> bool:
    """Tells whether every byte at the places is known."""
    for place in places:
        block = blocks.at(place[0]) if 0 not in place[2] else None
        if block is not None and block.shadow is not None and not _marks(block, place).all():
            return False
    return True


def note(blocks: DeviceMemory, places: Iterable[Place], sure: bool) -> None:
    """Notes that something has written the elements at the places; what it wrote is known if `sure`."""
    for place in places:
        block = blocks.at(place[0]) if 0 not in place[2] else None
        if block is None:
            continue
        if not sure:
            blocks.forget(block)
        elif block.shadow is not None:
            _marks(block, place)[...] = 1


def carry(blocks: DeviceMemory, to: int, source: int, nbytes: int) -> None:
    """Notes that a range of bytes was copied, and that a byte of the copy is known where its source is."""
    given, taken = blocks.holding(source, nbytes), blocks.holding(to, nbytes)
    if given.shadow is None:
        return
    marks = given.shadow.marks(source - given.address, nbytes)
    if taken.shadow is None:
        taken.shadow = Shadow(taken.nbytes, sparse=True)
        taken.shadow.mark(0, taken.nbytes)
    taken.shadow.copy_from(to - taken.address, marks)
    blocks.changed()


def _marks(block: Block, place: Place) -> np.ndarray:
    assert block.shadow is not None
    size = dtype_of(place[1]).itemsize
    first = place[0] - block.address + place[4] * size
    return block.shadow.elements(first, place[2], place[3], size)


@dataclass
class PartialLaunch:
    """The blocks before a launch of which only some thread blocks run.

    Constants (a cleared output) are set aside: where the launch does not store, its other blocks may have. Variables of
    device code are read by what they were: a table that is no `const` is seldom written.
    """

    blocks: DeviceMemory
    aside: dict[int, Shadow | None] = field(default_factory=dict)
    written_before: set[int] = field(default_factory=set)

    @classmethod
    def begin(cls, blocks: DeviceMemory) -> PartialLaunch:
        """Sets constants aside, and notes blocks that something else has written."""
        launch = cls(blocks)
        for block in blocks.blocks.values():
            if block.constant:
                continue
            if block.label == memory.CONSTANT and not block.given:
                launch.aside[block.address] = block.shadow
                if block.variable and block.nbytes <= MOST_VARIABLE:
                    block.shadow = _before(block)
                    blocks.changed()
                else:
                    blocks.forget(block)
            elif block.label != memory.UNWRITTEN:
                launch.written_before.add(block.address)
        return launch

    def end(self, written: set[int], sure: bool) -> None:
        """Notes what is known after the launch, which has stored into the blocks at some addresses."""
        for address, shadow in self.aside.items():
            block = self.blocks.blocks[address]
            if address not in written:
                block.shadow = shadow
            elif block.variable and block.shadow is not None:
                block.shadow = _relabelled(block.shadow, {1: 1})
        self.blocks.changed()
        spoil(self.blocks, written if not sure else self.written_before & written)


def _before(block: Block) -> Shadow:
    """Returns a shadow in which what a variable is known to hold has a label of its own."""
    if block.shadow is not None:
        return _relabelled(block.shadow, {1: _BEFORE})
    whole = Shadow(block.nbytes)
    whole.fold(_BEFORE)
    return whole


def _relabelled(shadow: Shadow, labels: dict[int, int]) -> Shadow:
    """Returns a copy of a shadow with other labels; bytes with labels that are not given are unknown."""
    table = np.zeros(256, np.uint8)
    table[list(labels)] = list(labels.values())
    changed = Shadow(shadow.nbytes)
    changed.copy_from(0, table[shadow.marks(0, shadow.nbytes)])
    return changed


def spoil(blocks: DeviceMemory, addresses: Iterable[int]) -> None:
    """Notes that nothing of some blocks is known."""
    for address in addresses:
        blocks.forget(blocks.blocks[address])


def pick(blocks: DeviceMemory, place: Place) -> tuple[np.ndarray, torch.Tensor]:
    """Returns flat indices (int64, ascending) of known elements of an output, at most `MOST_PICKED`, and their values.

    Nothing is picked from an output that is not contiguous, or no memory of its own.
    """
    kind = dtype_of(place[1])
    block = blocks.at(place[0]) if 0 not in place[2] else None
    if block is None or block.given or place[5] or place[3] != list(_dense(place[2])):
        return np.zeros(0, np.int64), torch.empty(0, dtype=kind)
    first = place[0] - block.address + place[4] * kind.itemsize
    indices = _spread(_indices(block, first, math.prod(place[2]), kind.itemsize))
    address = block.address + first
    raw = b"".join(
        ctypes.string_at(address + int(run[0]) * kind.itemsize, len(run) * kind.itemsize) for run in _runs(indices)
    )
    values = torch.frombuffer(bytearray(raw), dtype=kind) if raw else torch.empty(0, dtype=kind)
    return indices, values


def _dense(sizes: list[int]) -> tuple[int, ...]:
    return torch.empty(tuple(sizes), device="meta").stride()


def _indices(block: Block, first: int, count: int, size: int) -> np.ndarray:
    """Returns the flat indices of an output's known elements, all of them; the output begins `first` bytes into its
    block."""
    if block.shadow is None:
        return np.arange(count, dtype=np.int64) if count <= _MOST_SCANNED else np.zeros(0, np.int64)
    found, scanned, high = [np.zeros(0, np.int64)], 0, 0
    for begin, end in block.shadow.touched():
        low = max(high, max(0, begin - first) // size)  # an element may lie in two ranges
        high = min(count, -(-max(0, end - first) // size))
        scanned += end - begin
        if low >= high or scanned > _MOST_SCANNED:
            continue
        marks = block.shadow.marks(first + low * size, (high - low) * size).reshape(-1, size)
        found.append(np.flatnonzero(marks.all(axis=1)) + low)
    return np.concatenate(found)


def _spread(indices: np.ndarray) -> np.ndarray:
    """Returns at most `MOST_PICKED` of the indices: runs of neighbours, evenly spread, the last ones included."""
    if len(indices) <= MOST_PICKED:
        return indices
    starts = np.linspace(0, len(indices) - RUN, MOST_PICKED // RUN).astype(np.int64)
    return indices[np.unique((starts[:, None] + np.arange(RUN)).reshape(-1))]


def _runs(indices: np.ndarray) -> list[np.ndarray]:
    """Returns the indices in groups of neighbours."""
    return np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1) if len(indices) else []
