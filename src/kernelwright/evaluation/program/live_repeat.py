"""The log of a live call, and the memory before it: what it takes to time the call again without its messages.

A call that waits for values contains the messages to the candidate's process. Its log repeats what the device did, for
the same inputs: launches, operators and copies, and each download as a copy that the host waits for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.evaluation.program.live_memory import LiveMemory
from kernelwright.evaluation.program.memory import Block

MOST_ACTIONS = 10_000
"""The most actions of a call that is repeated."""
MOST_KEPT_BYTES = 2 << 30
"""The most memory that is copied before a call. Calls on more take so long that messages do not matter."""
_HEAP = re.compile(r"\.extern\s+\.func\b[^;{]*\bmalloc\b")


def allocates(ptx: str) -> bool:
    """Tells whether device code allocates memory by itself, which keeps its contents where nothing restores them."""
    return _HEAP.search(ptx) is not None


class CallLog:
    """The actions of one call on the device, in their order."""

    def __init__(self) -> None:
        self.whole = False
        """True while everything that the call did is in the log."""
        self.waiting = False
        """True while a record is executed for whose result the host waits."""
        self._actions: list[tuple[Callable[[], Any], bool]] = []

    def begin(self, wanted: bool) -> None:
        """Begins the log of a call, if it is wanted."""
        self.whole = wanted
        self._actions.clear()

    def add(self, action: Callable[[], Any]) -> None:
        """Adds an action that has been executed."""
        if self.whole:
            self._actions.append((action, self.waiting))
            self.whole = len(self._actions) <= MOST_ACTIONS

    def drop(self) -> None:
        """Gives the log up: the call has done what cannot be repeated."""
        self.begin(False)

    def run(self) -> float:
        """Executes all actions; returns the seconds for which the host has waited for results."""
        waited = 0.0
        for action, waits in self._actions:
            if waits:
                began = time.perf_counter()
                action()
                waited += time.perf_counter() - began
            else:
                action()
        return waited


class Before:
    """The memory of a candidate as it was when a call began, without the bytes of the call's inputs."""

    def __init__(self, memory: LiveMemory, inputs: list[Block]) -> None:
        """Copies all blocks but inputs. Raises torch.OutOfMemoryError and `DeviceError`."""
        self._memory = memory
        self._spans = [(block.address, block.nbytes) for block in memory.in_order()]
        given = {block.address for block in inputs}
        self._copies = [(address, nbytes) for address, nbytes in self._spans if nbytes and address not in given]
        ends = [0]
        for _, nbytes in self._copies:
            ends.append(ends[-1] + -(-nbytes // 16) * 16)
        self._ends = ends
        self._kept = torch.empty(max(1, ends[-1]), dtype=torch.uint8, device=memory.device)
        for (address, nbytes), at in zip(self._copies, ends, strict=False):
            memory.copy(self._kept.data_ptr() + at, address, nbytes)

    @staticmethod
    def nbytes(memory: LiveMemory, inputs: list[Block]) -> int:
        """Returns the bytes that `Before` would copy."""
        return sum(block.nbytes for block in memory.blocks.values()) - sum(block.nbytes for block in inputs)

    def restore(self) -> None:
        """Writes the blocks back, and poisons all other memory."""
        self._memory.poison_beside(self._spans)
        for (address, nbytes), at in zip(self._copies, self._ends, strict=False):
            self._memory.copy(address, self._kept.data_ptr() + at, nbytes)
