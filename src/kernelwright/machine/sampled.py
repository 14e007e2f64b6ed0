"""A runtime that runs a few blocks of each launch, for sizes too large to run in full, over mostly unwritten memory.

It reports faults that do not depend on the values in memory: launches that exceed a limit, indices that overflow
32 bits, and accesses out of bounds. All other faults of a sampled launch are recorded as dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.errors import DeviceError
from kernelwright.machine import Fault, LaunchAttributes, LaunchOptions, LaunchReport, MachineFault, Program
from kernelwright.machine.runtime import ERRORS, LaunchRecord, Runtime, three
from kernelwright.machine.work import SampledWork

if TYPE_CHECKING:
    import torch

_PLAIN = LaunchAttributes()
BLOCKS = 16
"""Blocks run per launch: the first four, the last four, and others between."""
GROUPS, GROUP_BLOCKS = 4, 64
"""Further samples of a launch, and the blocks of each, that show whether its blocks store equally much."""
MOST_REPEATED = 100_000_000
"""The bound on thread instructions of these samples together."""
EQUAL = 0.02
"""The most by which estimates from these samples may differ."""
MOST_RECORDS = 1000
BUDGET = 600_000_000
"""The bound on thread instructions of all launches together."""
AT_ANY_VALUE = frozenset(("invalid-launch", "index-overflow"))
AT_KNOWN_VALUES = frozenset(("out-of-bounds-read", "out-of-bounds-write", "misaligned-access"))
"""Reported only if no memory that the arguments point to could have affected an address."""


DROPPED = "dropped"
"""The severity of a fault that values which a sample does not know may have caused."""


class SampledRuntime(Runtime):
    """Runs samples of launches. `launched` and `blocks_launched` count launches and their blocks, `cut` launches over
    budget."""

    def __init__(self, build: Any) -> None:
        super().__init__(build)
        self.left = BUDGET
        self.launched = self.blocks_launched = self.cut = 0
        self.faulted = 0
        """Launches that ended with a fault, whether or not it would occur in a whole launch."""
        self.atomics = 0
        """Atomic operations of all launches."""
        self.unknown_reads = 0
        """Launches that have read memory which nothing has written."""
        self.sound = False
        """True if inputs hold values that the task could give, so that a launch which reads written memory alone faults
        on a GPU, too."""
        self._guessed = False
        self.even_stores: float | None = None
        """The factor from what the last launch's sample has stored to what all its blocks store, if these store equally
        much; None where that cannot be told."""
        self._floating: dict[int, bool] = {}
        self._exact: set[int] = set()
        self._work = SampledWork()
        self.doubt: Callable[[], bool] = lambda: False
        """Tells whether host code branched on values that a sample cannot get right; then no launch is blamed."""

    def register(self, tensor: torch.Tensor) -> None:
        """Registers a tensor and records whether all tensors over its storage are floating-point."""
        super().register(tensor)
        address = tensor.untyped_storage().data_ptr()
        floating = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        self._floating[address] = floating and self._floating.get(address, True)

    def exact(self, tensor: torch.Tensor) -> None:
        """Marks a tensor whose values are the same as in a full call."""
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
        attributes: LaunchAttributes = _PLAIN,
    ) -> None:
        """Runs a sample of the blocks. Raises a GPU's RuntimeError for a fault that is certain to occur there too."""
        table = self._named(self.allocations(), program, kernel, args)
        total = grid[0] * three(grid)[1] * three(grid)[2]
        self.launched += 1
        self.blocks_launched += total

        def run(sample: int, seed: int) -> LaunchReport:
            options = LaunchOptions(
                budget=max(self.left, 1),
                detect_races=False,
                seed=seed,
                textures=tuple(self.textures.values()),
                watch=True,
                poison=0,
                sample=sample,
                attributes=attributes,
            )
            report = program.launch(kernel, three(grid), three(block), list(args), shared_bytes, table, options)
            self.left -= report.instructions
            self.unknown_reads += any(w.kind == "uninitialised-read" for w in report.warnings)
            return report

        self.even_stores = None
        try:
            report = run(BLOCKS, self.launched)
            if total > BLOCKS:
                self.even_stores = _even_stores(run, report, total, min(self.left, MOST_REPEATED))
        except MachineFault as caught:
            self.left -= caught.instructions
            self._record(kernel, caught.instructions)
            self.faulted += 1
            self._guessed = any(w.kind == "uninitialised-read" for w in caught.warnings)
            self.cut += caught.fault.kind == "instruction-budget"
            if self._sure(caught.fault, args):
                self._blame(caught.fault, total)
            self._find(caught.fault, DROPPED)
            return
        self.atomics += report.counters.get("atomics", 0)
        for nbytes, allocation in zip(report.written, table, strict=True):
            if nbytes:
                written = self._facts.written
                written[allocation.address] = written.get(allocation.address, 0) + nbytes
        self._work.add(self._facts.launches, kernel, (grid, block, shared_bytes), report, table)

    def _record(self, kernel: str, instructions: int) -> None:
        if len(self._facts.launches) < MOST_RECORDS:
            self._facts.launches.append(LaunchRecord(kernel, 1, instructions))

    def _sure(self, fault: Fault, args: Sequence[bytes]) -> bool:
        """Tells whether a fault would also occur with the right values in memory."""
        if self.doubt():
            return False
        if fault.kind in AT_ANY_VALUE:
            return True
        known = self.sound and not self._guessed
        return fault.kind in AT_KNOWN_VALUES and (known or all(self.cannot_steer(a) for a in args))

    def cannot_steer(self, argument: bytes) -> bool:
        """Tells whether an argument points to no memory with unknown integers, which could be used as indices."""
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
        raise DeviceError(f"CUDA error: {text} ({fault.message})")


def _even_stores(run: Callable[[int, int], LaunchReport], first: LaunchReport, total: int, left: int) -> float | None:
    """Returns the bytes that all blocks of a launch store, divided by those that its first sample has stored; None if
    samples disagree, or if the launch cannot be repeated: it costs too much, uses atomics, or reads what it stores to.
    """
    repeatable = not first.counters.get("atomics") and not any(
        w and r for w, r in zip(first.written, first.read, strict=True)
    )
    wanted = GROUPS * GROUP_BLOCKS
    if not repeatable or total < 2 * wanted or first.instructions * wanted > left * BLOCKS or not sum(first.written):
        return None
    stored = [sum(run(GROUP_BLOCKS, group + 1).written) for group in range(GROUPS)]
    if max(stored) > (1 + EQUAL) * min(stored):
        return None
    return sum(stored) / wanted * total / sum(first.written)
