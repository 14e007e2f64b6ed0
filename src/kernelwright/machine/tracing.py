"""A runtime that notes launches and runs none: what a call asks of the device, to be asked again elsewhere.

Arguments that are addresses are noted as places in the memory that the call was given or has made, so that a launch can
be repeated with other memory in their place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.machine import Program
from kernelwright.machine.runtime import Runtime, three

MOST_LAUNCHES = 1000


class Untraceable(RuntimeError):
    """A call does something that repeating its launches would not do."""


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch. `code` names the device code by its PTX (`code_name`); `args` are the parameters' bytes in hex, with
    zeros for addresses; `places` says where those were: (parameter, offset in it, buffer, bytes into the buffer).
    """

    code: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    args: tuple[str, ...]
    places: tuple[tuple[int, int, int, int], ...]


def code_name(ptx: str) -> str:
    """What a launch calls the device code of a build."""
    return hashlib.sha256(ptx.encode()).hexdigest()


class TracingRuntime(Runtime):
    """Notes the launches of a call. `find(address)` says which buffer holds an address, and where in it; it raises
    `Untraceable` for memory of the device that is neither given nor made in the call."""

    def __init__(self, build: Callable[[BuildRequest], BuildResult]) -> None:
        super().__init__(build)
        self.launches: list[RecordedLaunch] = []
        self.find: Callable[[int], tuple[int, int] | None] = lambda _address: None
        self._names: dict[int, str] = {}

    def program(self, result: BuildResult) -> Program:
        """As ever; and remembers what a launch is to call it."""
        program = super().program(result)
        self._names[id(program)] = code_name(result.ptx or "")
        return program

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
        """Notes a launch. Raises `Untraceable` for one of another form than <<<grid, block, bytes>>>."""
        if cooperative or cluster or not own_shared or id(program) not in self._names:
            raise Untraceable(f"{kernel} is launched in a way that is not noted")
        if len(self.launches) >= MOST_LAUNCHES:
            raise Untraceable(f"a call has more than {MOST_LAUNCHES} launches")
        places = [
            (index, offset, *found)
            for index, value in enumerate(args)
            for offset in range(0, len(value) - 7, 8)
            if (found := self.find(int.from_bytes(value[offset : offset + 8], "little"))) is not None
        ]
        plain = [bytearray(value) for value in args]
        for index, offset, _, _ in places:
            plain[index][offset : offset + 8] = bytes(8)
        hexes = tuple(value.hex() for value in plain)
        code = self._names[id(program)]
        self.launches.append(
            RecordedLaunch(code, kernel, three(grid), three(block), shared_bytes, hexes, tuple(places))
        )
