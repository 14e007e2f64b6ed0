"""Device memory as its owner sees it: blocks, and the shadow that tells for each byte whether something has written it.

A block is poisoned when it is made. Uploads, fills, copies and kernels mark what they write; the shadow lasts as long
as its block, across launches. A launch reports reads of unwritten bytes by the shadow, whatever the bytes hold.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import as_strided

POISON = 0xFF
"""The byte in memory that nothing has written: NaN as floating-point numbers, -1 as integers."""


class ShadowEntry(ctypes.Structure):
    """The written bytes of one block; mirrors `KwShadow` of csrc/memory/shadow.h."""

    _fields_ = [("written", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("whole", ctypes.c_uint64)]


class Shadow:
    """The written bytes of `nbytes` bytes of memory; at first none. Takes as many bytes as the memory, committed by the
    system when they are first marked."""

    def __init__(self, nbytes: int) -> None:
        self._bytes = np.zeros(nbytes, np.uint8)
        self.entry = ShadowEntry(self._bytes.ctypes.data, nbytes, 0)
        """The structure that a launch reads and updates."""

    @property
    def nbytes(self) -> int:
        return len(self._bytes)

    def complete(self) -> bool:
        """Tells whether every byte is written. Bytes that were found written are not looked at again."""
        rest = self._bytes[self.entry.whole :]
        if len(rest):
            first = int(rest.view(np.bool_).argmin())  # stops at the first one
            self.entry.whole += len(rest) if rest[first] else first
        return self.entry.whole == self.nbytes

    def mark(self, offset: int, nbytes: int) -> None:
        """Notes that a range was written."""
        self._bytes[offset : offset + nbytes] = 1

    def copy_from(self, offset: int, marks: np.ndarray) -> None:
        """Sets the marks of a range to those of another one."""
        self._bytes[offset : offset + len(marks)] = marks
        self.entry.whole = min(self.entry.whole, offset)

    def marks(self, offset: int, nbytes: int) -> np.ndarray:
        """Returns the marks of a range, uint8, 1 where a byte is written: a copy."""
        return self._bytes[offset : offset + nbytes].copy()

    def unwritten(self, offset: int, nbytes: int) -> int:
        """Counts the bytes of a range that nothing has written."""
        return nbytes - int(np.count_nonzero(self._bytes[offset : offset + nbytes]))

    def elements(self, offset: int, sizes: Sequence[int], strides: Sequence[int], itemsize: int) -> np.ndarray:
        """Returns the marks of a tensor's elements as a view of shape (*sizes, itemsize), dtype uint8, which may be
        assigned to. `offset` is its first byte; `strides` count elements."""
        steps = [stride * itemsize for stride in strides]
        return as_strided(self._bytes[offset:], (*sizes, itemsize), (*steps, 1))


@dataclass(eq=False)
class DeviceBlock:
    """One block of device memory: `nbytes` bytes from `address` in this process, which stay valid while it is used."""

    address: int
    nbytes: int
    name: str
    writable: bool = True
    shadow: Shadow | None = None
    """None: every byte is written."""
    memory: object = field(default=None, repr=False)
    """Keeps the memory alive, if the block owns it."""

    @classmethod
    def fresh(cls, nbytes: int, name: str, poison: int = POISON) -> DeviceBlock:
        """Allocates a block; its bytes are poison, and none is written."""
        memory = np.empty(max(nbytes, 1) + ALIGNMENT, np.uint8)
        address = -(-memory.ctypes.data // ALIGNMENT) * ALIGNMENT
        return cls.over(address, nbytes, name, poison, memory)

    @classmethod
    def over(cls, address: int, nbytes: int, name: str, poison: int = POISON, memory: object = None) -> DeviceBlock:
        """Makes a block of memory that was allocated without contents, and poisons it."""
        ctypes.memset(address, poison, nbytes)
        return cls(address, nbytes, name, shadow=Shadow(nbytes) if nbytes else None, memory=memory)

    def mark(self, offset: int, nbytes: int) -> None:
        """Notes that something outside of a launch has written a range."""
        self._check(offset, nbytes)
        if self.shadow is not None:
            self.shadow.mark(offset, nbytes)
            self.settle()

    def settle(self) -> None:
        """Drops the shadow if every byte is written. Worth calling after a launch that wrote to the block."""
        if self.shadow is not None and self.shadow.complete():
            self.shadow = None

    def unwritten(self, offset: int, nbytes: int) -> int:
        """Counts the bytes of a range that nothing has written."""
        self._check(offset, nbytes)
        return self.shadow.unwritten(offset, nbytes) if self.shadow is not None else 0

    def upload(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Writes bytes of the host to a range."""
        view = np.frombuffer(data, np.uint8)
        self._check(offset, view.nbytes)
        ctypes.memmove(self.address + offset, view.ctypes.data, view.nbytes)
        self.mark(offset, view.nbytes)

    def fill(self, offset: int, nbytes: int, pattern: bytes) -> None:
        """Fills a range with a pattern of bytes, whose length divides `nbytes`."""
        self._check(offset, nbytes)
        if not pattern or nbytes % len(pattern):
            raise ValueError(f"a fill of {nbytes} bytes with a pattern of {len(pattern)}")
        self._view(offset, nbytes).reshape(-1, len(pattern))[:] = np.frombuffer(pattern, np.uint8)
        self.mark(offset, nbytes)

    def download(self, offset: int, nbytes: int) -> bytes:
        """Returns the bytes of a range."""
        self._check(offset, nbytes)
        return ctypes.string_at(self.address + offset, nbytes)

    def copy_from(self, offset: int, source: DeviceBlock, source_offset: int, nbytes: int) -> None:
        """Copies a range of another block, or of this one, with its marks: unwritten bytes stay unwritten."""
        self._check(offset, nbytes)
        source._check(source_offset, nbytes)
        ctypes.memmove(self.address + offset, source.address + source_offset, nbytes)
        if source.shadow is None:
            return self.mark(offset, nbytes)
        if self.shadow is None and source.unwritten(source_offset, nbytes):
            self.shadow = Shadow(self.nbytes)
            self.shadow.mark(0, self.nbytes)
        if self.shadow is not None:
            self.shadow.copy_from(offset, source.shadow.marks(source_offset, nbytes))
            self.settle()

    def _view(self, offset: int, nbytes: int) -> np.ndarray:
        return np.ctypeslib.as_array((ctypes.c_ubyte * nbytes).from_address(self.address + offset))

    def _check(self, offset: int, nbytes: int) -> None:
        """Raises `ValueError` for a range outside of the block."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{nbytes} bytes at {offset} of the {self.nbytes} bytes of {self.name}")


ALIGNMENT = 512
"""The alignment of allocated blocks, in bytes."""
