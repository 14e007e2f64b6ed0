"""The functional machine as a device: launches over the device process's blocks instead of this process's tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.evaluation.program.memory import DeviceMemory
from kernelwright.machine import Allocation
from kernelwright.machine.runtime import Runtime
from kernelwright.machine.sampled import SampledRuntime


def _no_builds(_request: BuildRequest) -> BuildResult:
    return BuildResult("compile_error", log="a device builds nothing")


class MachineRuntime(Runtime):
    """Runs every block of every launch."""

    def __init__(self, blocks: DeviceMemory) -> None:
        super().__init__(_no_builds)
        self.blocks = blocks

    def room(self) -> int:
        """Returns the address from which on memory is free."""
        return self.blocks.room()

    def allocations(self) -> list[Allocation]:
        """Returns all blocks of the candidate."""
        return self.blocks.table()


class RepeatingMachine(MachineRuntime):
    """Also launches again over the blocks that a launch had, some of which are freed by then."""

    _had: list[Allocation] | None = None

    def allocations(self) -> list[Allocation]:
        """Returns the blocks of the candidate: those at the first launch while one is repeated."""
        return super().allocations() if self._had is None else self._had

    def prepared(self, *where: Any, **how: Any) -> Callable[[], None]:
        """Returns a function that makes a launch again, given as to `launch`."""
        return functools.partial(self._again, self.allocations(), where, how)

    def _again(self, had: list[Allocation], where: tuple[Any, ...], how: dict[str, Any]) -> None:
        self._had = had
        try:
            self.launch(*where, **how)
        finally:
            self._had = None


class SampledMachine(SampledRuntime):
    """Runs a few blocks of each launch, over memory that is reserved on touch."""

    def __init__(self, blocks: DeviceMemory) -> None:
        super().__init__(_no_builds)
        self.blocks = blocks
        self.exact_blocks: set[int] = set()

    def room(self) -> int:
        """Returns the address from which on memory is free."""
        return self.blocks.room()

    def allocations(self) -> list[Allocation]:
        """Returns all blocks of the candidate."""
        return self.blocks.table()

    def cannot_steer(self, argument: bytes) -> bool:
        """Tells whether an argument points to no memory with unknown integers, which could be used as indices. Kernels
        reach variables without an argument."""
        if any(b.variable and b.shadow is not None and not b.shadow.complete() for b in self.blocks.blocks.values()):
            return False
        words = (int.from_bytes(argument[k : k + 8], "little") for k in range(0, len(argument) - 7, 8))
        found = [block for word in words if (block := self.blocks.at(word)) is not None]
        return all(block.address in self.exact_blocks or block.floating for block in found)


def label_stores(blocks: DeviceMemory, written: Iterable[tuple[int, int]], before: dict[int, int]) -> None:
    """Notes the blocks into which a launch has stored; `before` has the bytes stored earlier."""
    for address, nbytes in written:
        if nbytes > before.get(address, 0) and address in blocks.blocks:
            blocks.stored(address)
