"""A runtime that runs a few blocks of each launch: for sizes too large to run, over memory that is mostly empty.

It looks for what can be told without right values: launches that exceed a limit, indices that overflow 32 bits, and
accesses out of bounds. Whatever else a sampled launch does wrong says nothing about the kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.machine import Fault, MachineFault, Program
from kernelwright.machine.runtime import ERRORS, LaunchRecord, Runtime, three

if TYPE_CHECKING:
    import torch

BLOCKS = 16
"""Blocks of a launch that run: the first and the last four, and others between."""
BUDGET = 600_000_000
"""Thread instructions of all launches together."""
AT_ANY_VALUE = frozenset(("invalid-launch", "index-overflow"))
AT_KNOWN_VALUES = frozenset(("out-of-bounds-read", "out-of-bounds-write", "misaligned-access"))
"""Told only of launches to which no pointer leads whose contents could have steered an address."""


class SampledRuntime(Runtime):
    """Runs samples. `launched` and `blocks` count launches and their blocks, `cut` those that ran out of budget."""

    def __init__(self, build: Any) -> None:
        super().__init__(build)
        self.left = BUDGET
        self.launched = self.blocks = self.cut = 0
        self._floating: dict[int, bool] = {}
        self._exact: set[int] = set()
        self.doubt: Callable[[], bool] = lambda: False
        """Whether the host has decided by values that a sample cannot have right; then no launch is blamed."""

    def register(self, tensor: torch.Tensor) -> None:
        """As ever; and notes whether all that is known of the memory are floating-point tensors."""
        super().register(tensor)
        address = tensor.untyped_storage().data_ptr()
        floating = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        self._floating[address] = floating and self._floating.get(address, True)

    def exact(self, tensor: torch.Tensor) -> None:
        """Says that a tensor holds the values that it would hold in a whole call."""
        self._exact.add(tensor.untyped_storage().data_ptr())

    def launch(
        self,
        program: Program,
        kernel: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int,
        args: Sequence[bytes],
        *,
        own_shared: bool = True,
        cooperative: bool = False,
        cluster: tuple[int, int, int] | None = None,
    ) -> None:
        """Runs some blocks. Raises the RuntimeError that a GPU would give, for what is sure to happen on one."""
        table = self._named(self.allocations(), program, kernel, args)
        total = grid[0] * three(grid)[1] * three(grid)[2]
        self.launched += 1
        self.blocks += total
        try:
            report = program.launch(
                kernel,
                three(grid),
                three(block),
                list(args),
                shared_bytes,
                table,
                budget=max(self.left, 1),
                detect_races=False,
                seed=self.launched,
                textures=tuple(self.textures.values()),
                watch=True,
                poison=0,
                cooperative=cooperative,
                cluster=cluster,
                sample=BLOCKS,
            )
        except MachineFault as caught:
            self.left -= caught.instructions
            self.cut += caught.fault.kind == "instruction-budget"
            if self._sure(caught.fault, args):
                self._blame(caught.fault, total)
            return
        self.left -= report.instructions
        if len(self._facts.launches) < 1000:
            self._facts.launches.append(LaunchRecord(kernel, 1, report.instructions))

    def _sure(self, fault: Fault, args: Sequence[bytes]) -> bool:
        """Whether a fault would be there with right values in memory, too."""
        if self.doubt():
            return False
        if fault.kind in AT_ANY_VALUE:
            return True
        return fault.kind in AT_KNOWN_VALUES and all(self._cannot_steer(a) for a in args)

    def _cannot_steer(self, argument: bytes) -> bool:
        """Whether no memory to which an argument points holds integers that are not known."""
        words = (int.from_bytes(argument[k : k + 8], "little") for k in range(0, len(argument) - 7, 8))
        for word in words:
            inside = next((a for a in self.allocations() if a.address <= word < a.address + a.nbytes), None)
            if inside and inside.address not in self._exact and not self._floating.get(inside.address, False):
                return False
        return True

    def _blame(self, fault: Fault, total: int) -> None:
        self.faults.append(fault)
        some = f"; {min(BLOCKS, total)} of {total} blocks were run" if fault.kind != "invalid-launch" else ""
        self._find(dataclasses.replace(fault, message=fault.message + some), "fault")
        text = ERRORS.get(fault.kind, "an illegal memory access was encountered")
        raise RuntimeError(f"CUDA error: {text} ({fault.message})")
