"""A runtime that records launches instead of running them, so that they can be replayed elsewhere.

Arguments that are addresses are recorded as offsets into buffers that the call was given or has allocated, so that a
launch can be replayed with other buffers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.machine import LaunchAttributes, Program
from kernelwright.machine.runtime import Runtime, three

_PLAIN = LaunchAttributes()
MOST_LAUNCHES = 1000


class Untraceable(RuntimeError):
    """Raised when replaying a call's launches would not reproduce its work."""


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch. `code` is the device code's name (`code_name`). `args` are the parameters' bytes in hex, with zeros
    for addresses. `places` lists the addresses: (parameter, offset in it, buffer, byte offset into the buffer).
    """

    code: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    args: tuple[str, ...]
    places: tuple[tuple[int, int, int, int], ...]


def code_name(ptx: str) -> str:
    """Returns the name of device code: the SHA-256 of its PTX."""
    return hashlib.sha256(ptx.encode()).hexdigest()


class TracingRuntime(Runtime):
    """Records the launches of a call. `find(address)` returns the buffer that contains an address and the offset in it,
    or None. It raises `Untraceable` for device memory that was neither given to the call nor allocated in it."""

    def __init__(self, build: Callable[[BuildRequest], BuildResult]) -> None:
        super().__init__(build)
        self.launches: list[RecordedLaunch] = []
        self.find: Callable[[int], tuple[int, int] | None] = lambda _address: None
        self._names: dict[int, str] = {}

    def program(self, result: BuildResult) -> Program:
        """Loads the device code of a build and stores its name."""
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
        attributes: LaunchAttributes = _PLAIN,
    ) -> None:
        """Records a launch. Raises `Untraceable` for launches other than plain <<<grid, block, bytes>>>."""
        if attributes.cooperative or attributes.cluster or not own_shared or id(program) not in self._names:
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
