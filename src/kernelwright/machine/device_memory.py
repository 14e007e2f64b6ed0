"""The shadow of a block of device memory: for each byte, a label of who has written it.

The owner of the memory fills a block with `POISON` when it is allocated, and makes its shadow. Uploads, fills, copies
and kernels mark what they write; the shadow lasts as long as its block, across launches. A launch reports reads of
unwritten bytes by the shadow, whatever the bytes hold, and labels the bytes that it stores.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

POISON = 0xFF
"""The byte in memory that nothing has written: NaN as floating-point numbers, -1 as integers."""


_NORESERVE = 0x4000


@cache
def _libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mincore.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
    return library


class ShadowEntry(ctypes.Structure):
    """The labels of one block; mirrors `KwShadow` of csrc/memory/shadow.h."""

    _fields_ = [("written", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("whole", ctypes.c_uint64)]


class Shadow:
    """The labels of `nbytes` bytes of memory: 0 for a byte that nothing has written since the shadow began, 1 for one
    that a kernel has stored, another odd number as the owner likes. Takes as many bytes as the memory, committed by the
    system when they are first marked; a `sparse` one may be larger than the machine's memory."""

    def __init__(self, nbytes: int, sparse: bool = False) -> None:
        if sparse:
            room = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
            self._bytes = np.frombuffer(room, np.uint8)
        else:
            self._bytes = np.zeros(nbytes, np.uint8)
        self.entry = ShadowEntry(self._bytes.ctypes.data, nbytes, 0)
        """The structure that a launch reads and updates; its `whole` counts the first bytes, all stored by kernels."""

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

    def stored(self) -> bool:
        """Tells whether kernels have stored every byte, as far as launches have told."""
        return bool(self.entry.whole == self.nbytes)

    def mark(self, offset: int, nbytes: int) -> None:
        """Notes that a range was written."""
        self._bytes[offset : offset + nbytes] = 1

    def fold(self, label: int) -> None:
        """Gives a label to all bytes that have none."""
        self._bytes[self._bytes == 0] = label

    def copy_from(self, offset: int, marks: np.ndarray) -> None:
        """Sets the labels of a range."""
        self._bytes[offset : offset + len(marks)] = marks
        self.changed(offset)

    def marks(self, offset: int, nbytes: int) -> np.ndarray:
        """Returns the labels of a range, uint8: a copy."""
        return self._bytes[offset : offset + nbytes].copy()

    def unwritten(self, offset: int, nbytes: int) -> int:
        """Counts the bytes of a range that nothing has written."""
        return nbytes - int(np.count_nonzero(self._bytes[offset : offset + nbytes]))

    def touched(self) -> Iterator[tuple[int, int]]:
        """Yields ranges (first byte, end) outside which nothing was ever marked, in order. Raises OSError."""
        address, page = self._bytes.ctypes.data, mmap.PAGESIZE
        start = address // page * page
        pages = -(-(address + self.nbytes - start) // page)
        there = np.zeros(pages, np.uint8)
        if _libc().mincore(start, pages * page, there.ctypes.data):
            raise OSError(ctypes.get_errno(), "mincore")
        edges = np.flatnonzero(np.diff(np.concatenate(([0], there & 1, [0]))))
        for first, end in edges.reshape(-1, 2):
            offset = start - address
            yield max(0, int(first) * page + offset), min(self.nbytes, int(end) * page + offset)

    def elements(self, offset: int, sizes: Sequence[int], strides: Sequence[int], itemsize: int) -> np.ndarray:
        """Returns the labels of a tensor's elements as a view of shape (*sizes, itemsize), dtype uint8, which may be
        assigned to. `offset` is its first byte; `strides` count elements. Whoever assigns other labels than 1 calls
        `changed` before."""
        steps = [stride * itemsize for stride in strides]
        return as_strided(self._bytes[offset:], (*sizes, itemsize), (*steps, 1))

    def changed(self, offset: int) -> None:
        """Notes that labels from a byte on are about to become others than a kernel's."""
        self.entry.whole = min(self.entry.whole, offset)
