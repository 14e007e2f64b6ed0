"""The device process's memory: blocks at the addresses that the candidate's process chose, and their bytes' origins.

A block lies at the same address in this process as its handle says, so that pointers in kernel arguments, in structs
and in memory mean the same on both sides. Fresh memory holds poison. Each byte has a label that says who wrote it.
"""

from __future__ import annotations

import bisect
import ctypes
import math
import mmap
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch

from kernelwright.backends.device_addresses import HIGH, LOW
from kernelwright.evaluation.program.forms import Place, dtype_of
from kernelwright.machine import Allocation
from kernelwright.machine.device_memory import POISON, Shadow

UNWRITTEN, KERNEL, CONSTANT, FIXED, GIVEN, MOVED, GLUE, HOST = range(8)
"""Labels of bytes, in the order of suspicion. KERNEL: stored by device code of the candidate. CONSTANT: made by
operators that read no tensor. FIXED: a weight, or computed from weights only. GIVEN: an input. MOVED: an input, moved
by operators. GLUE: computed by operators. HOST: uploaded by host code that had read values of the call."""
LABELS = ("unwritten", "kernel", "constant", "fixed", "given", "moved", "glue", "host")
GIVEN_LOW = (LOW + HIGH) // 2
"""Addresses from here on are chosen by the device process, for the judge's tensors; lower ones by the candidate's."""
_PAGE = mmap.PAGESIZE
_FIXED_NOREPLACE = 0x100000
_OVER = 0x10
_NORESERVE = 0x4000


class BadAddress(ValueError):
    """A record names memory that the candidate does not have."""


class OutOfMemory(RuntimeError):
    """The candidate's blocks together exceed the limit."""


@dataclass
class Block:
    """One allocation. `labels` holds one label for each byte; None means that all bytes have `label`."""

    address: int
    nbytes: int
    name: str = "tensor"
    label: int = UNWRITTEN
    labels: torch.Tensor | None = None
    given: bool = False
    """True for the judge's inputs and weights, which the candidate cannot free."""
    floating: bool = True
    """True while all tensors over it are of a floating-point dtype; integers may steer addresses."""
    others: int = 0
    """The bytes that anything but a kernel has written, in all writes together."""
    shadow: Shadow | None = None
    """The bytes that something has written; None if all are."""
    flat: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8), repr=False)

    def spread(self) -> torch.Tensor:
        """Returns one label a byte, as a tensor that may be changed."""
        if self.labels is None:
            self.labels = torch.full((self.nbytes,), self.label, dtype=torch.uint8)
        return self.labels

    def mark(self, label: int) -> None:
        """Gives all bytes one label: something writes them all."""
        self.label, self.labels, self.shadow = label, None, None

    def suspect(self, labels: torch.Tensor | int) -> None:
        """Gives all bytes the most suspicious of their label and others: sparse memory has no room for one a byte."""
        self.label = max(self.label, labels if isinstance(labels, int) else int(labels.max()))

    def unwrite(self, address: int, marks: np.ndarray) -> None:
        """Notes which bytes of a range hold no written value: `marks` has 1 for each one that does."""
        if self.shadow is None:
            self.shadow = Shadow(self.nbytes)
            self.shadow.mark(0, self.nbytes)
        self.shadow.copy_from(address - self.address, marks)

    def stored(self) -> None:
        """Notes that a kernel has stored into the block, at the bytes that its shadow tells."""
        self.label, self.labels = KERNEL, None
        if self.shadow is not None and self.shadow.complete():
            self.shadow = None


class DeviceMemory:
    """All blocks of one candidate, by address."""

    def __init__(self, limit: int, sparse: bool = False) -> None:
        """`limit` bounds the bytes of all blocks together. `sparse` memory is reserved on touch, not poisoned, and has
        one label a block."""
        self.limit, self.sparse = limit, sparse
        self.blocks: dict[int, Block] = {}
        self.used = 0
        self._starts: list[int] = []
        self._table: list[Allocation] | None = None
        self._next = GIVEN_LOW

    def add(self, address: int, nbytes: int, name: str = "tensor", label: int = UNWRITTEN) -> Block:
        """Maps a block. Raises `BadAddress` if its addresses are not free, and `OutOfMemory`."""
        if not (LOW <= address and address + nbytes <= HIGH) or nbytes <= 0 or address % _PAGE:
            raise BadAddress(f"{nbytes} bytes at {address:#x}")
        if self.at(address) or self.at(address + nbytes - 1):
            raise BadAddress(f"{nbytes} bytes at {address:#x} overlap others")
        if self.used + nbytes > self.limit:
            raise OutOfMemory(f"the call needs more than {self.limit >> 20} MB of device memory")
        _map(address, _rounded(nbytes))
        block = Block(address, nbytes, name, label)
        block.flat = torch.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype=torch.uint8)
        if label == UNWRITTEN and not self.sparse:
            ctypes.memset(address, POISON, nbytes)
        if label == UNWRITTEN:
            block.shadow = Shadow(nbytes, self.sparse)
        self.blocks[address] = block
        bisect.insort(self._starts, address)
        self.used += nbytes
        self._table = None
        return block

    def given(self, nbytes: int, name: str, label: int = GIVEN) -> Block:
        """Maps a block at an address that the device process chooses."""
        address = self._next
        self._next += _rounded(nbytes) + _PAGE
        block = self.add(address, nbytes, name, label)
        block.given = True
        return block

    def free(self, address: int) -> bool:
        """Unmaps a block; returns False for an address at which none begins."""
        block = self.blocks.pop(address, None)
        if block is None:
            return False
        block.flat = torch.empty(0, dtype=torch.uint8)
        _libc().munmap(ctypes.c_void_p(address), ctypes.c_size_t(_rounded(block.nbytes)))
        self._starts.remove(address)
        self.used -= block.nbytes
        self._table = None
        return True

    def clear(self) -> None:
        """Unmaps all blocks."""
        for address in list(self.blocks):
            self.free(address)

    def at(self, address: int) -> Block | None:
        """Returns the block that holds an address, or None."""
        index = bisect.bisect_right(self._starts, address) - 1
        block = self.blocks[self._starts[index]] if index >= 0 else None
        return block if block is not None and address < block.address + block.nbytes else None

    def holding(self, address: int, nbytes: int) -> Block:
        """Returns the block that holds a range of addresses. Raises `BadAddress`."""
        block = self.at(address)
        if block is None or nbytes < 0 or address + nbytes > block.address + block.nbytes:
            raise BadAddress(f"{nbytes} bytes at {address:#x} are not in one block of device memory")
        return block

    def view(self, place: Place) -> torch.Tensor:
        """Returns the tensor at a place. Raises `BadAddress`, or what torch raises for a view out of bounds."""
        address, dtype, sizes, strides, offset, bits = place
        kind = dtype_of(dtype)
        if 0 in sizes:
            return torch.empty_strided(tuple(sizes), tuple(strides), dtype=kind)
        block = self.holding(address, 1)
        if not kind.is_floating_point:
            block.floating = False
        first, odd = divmod(address - block.address, kind.itemsize)
        if odd:
            raise BadAddress(f"a tensor of {dtype} at {address:#x} is not aligned")
        tensor = _typed(block.flat, kind).as_strided(sizes, strides, first + offset)
        tensor = tensor.conj() if bits & 1 else tensor
        return torch._neg_view(tensor) if bits & 2 else tensor

    def labels(self, place: Place) -> torch.Tensor:
        """Returns the label of each element at a place, as a view of the labels of their first bytes."""
        address, dtype, sizes, strides, offset, _ = place
        if self.sparse:
            return torch.full(tuple(sizes), self.holding(address, 1).label, dtype=torch.uint8)
        block, size = self.holding(address, 1), dtype_of(dtype).itemsize
        first = address - block.address + offset * size
        return block.spread().as_strided(sizes, [s * size for s in strides], first)

    def mark(self, place: Place, labels: torch.Tensor | int) -> None:
        """Labels the elements at a place."""
        address, dtype, sizes, strides, offset, _ = place
        if 0 in sizes:
            return
        block, size = self.holding(address, 1), dtype_of(dtype).itemsize
        block.others += math.prod(sizes) * size
        if self.sparse:
            block.suspect(labels)
            return
        first = address - block.address + offset * size
        if isinstance(labels, int) and _covers(block, sizes, strides, first, size):
            self._written(block)
            block.mark(labels)
            return
        if block.shadow is not None:
            block.shadow.elements(first, sizes, strides, size)[...] = 1
        spread = block.spread()
        for byte in range(size):
            view = spread.as_strided(sizes, [s * size for s in strides], first + byte)
            view.fill_(labels) if isinstance(labels, int) else view.copy_(labels)

    def write(self, address: int, nbytes: int, labels: torch.Tensor | int) -> None:
        """Labels a range of bytes that is about to be written. Raises `BadAddress`."""
        block = self.holding(address, nbytes)
        block.others += nbytes
        if self.sparse:
            block.suspect(labels)
            if block.shadow is not None:
                block.shadow.mark(address - block.address, nbytes)
            return
        if isinstance(labels, int) and nbytes == block.nbytes:
            self._written(block)
            block.mark(labels)
            return
        spread, at = block.spread(), address - block.address
        if block.shadow is not None:
            block.shadow.mark(at, nbytes)
        spread[at : at + nbytes] = labels

    def stored(self, address: int) -> None:
        """Notes that a kernel has stored into the block at an address."""
        block = self.blocks.get(address)
        if block is not None:
            had = block.shadow
            block.stored()
            if block.shadow is not had:
                self._table = None

    def _written(self, block: Block) -> None:
        if block.shadow is not None:
            self._table = None  # launches need the shadow no more

    def forget(self, block: Block) -> None:
        """Notes that no byte of a block is known to be written as in a whole call."""
        block.shadow = Shadow(block.nbytes, self.sparse)
        self._table = None

    def changed(self) -> None:
        """Forgets the table of launches, since a block's name or origin is another now."""
        self._table = None

    def uniform(self, place: Place) -> int | None:
        """Returns the one label of all of the block at a place; None if its bytes have several."""
        if 0 in place[2]:
            return CONSTANT
        block = self.holding(place[0], 1)
        return block.label if block.labels is None else None

    def table(self) -> list[Allocation]:
        """Returns all blocks for a launch, sorted by address."""
        if self._table is None:
            blocks = [self.blocks[a] for a in self._starts]
            self._table = [Allocation(b.address, b.nbytes, b.name, shadow=b.shadow) for b in blocks]
        return self._table


def _typed(flat: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    size = kind.itemsize
    return flat if kind is torch.uint8 else flat[: flat.numel() // size * size].view(kind)


def _covers(block: Block, sizes: list[int], strides: list[int], first: int, size: int) -> bool:
    """Tells whether a dense view from the byte `first` covers its block."""
    count = 1
    for n in sizes:
        count *= n
    last = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
    return first == 0 and count * size >= block.nbytes and last == count


def _rounded(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


@cache
def _libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    return library


def map_file(address: int, nbytes: int, file: int) -> None:
    """Maps the beginning of a file over a part of a block. Raises `OutOfMemory`."""
    flags = mmap.MAP_PRIVATE | _NORESERVE | _OVER
    if _libc().mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, 0) != address:
        raise OutOfMemory(f"memory cannot be mapped (error {ctypes.get_errno()})")


def _map(address: int, nbytes: int) -> None:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE | _FIXED_NOREPLACE
    found = _libc().mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if found != address:
        raise OutOfMemory(f"{nbytes} bytes of device memory cannot be mapped (error {ctypes.get_errno()})")
