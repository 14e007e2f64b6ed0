"""The device process's memory: blocks at the addresses that the candidate's process chose, and their bytes' origins.

A block lies at the same address in this process as its handle says, so that pointers in kernel arguments, in structs
and in memory mean the same on both sides. Fresh memory holds poison. Each byte has a label that says who wrote it.
"""

from __future__ import annotations

import bisect
import ctypes
import math
import mmap
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch

from kernelwright.backends.device_addresses import HIGH, LOW, is_device
from kernelwright.evaluation.program.forms import Place, dtype_of, once
from kernelwright.machine import Allocation, Program
from kernelwright.machine.device_memory import POISON, Shadow
from kernelwright.machine.runtime import readable

UNWRITTEN, KERNEL, CARRIED, CONSTANT, FIXED, GIVEN, MOVED, FINISHED, GLUE, HOST = 0, *range(1, 19, 2)
"""Labels of bytes, in the order of suspicion; odd as a shadow wants them. KERNEL: stored by device code of the
candidate. CARRIED: that, moved by operators. CONSTANT: made by operators that read no tensor. FIXED: a weight, or
computed from weights only. GIVEN: an input. MOVED: an input, moved by operators. FINISHED: computed by operators of
what kernels had stored, as the mean of a kernel's losses. GLUE: computed by operators otherwise. HOST: uploaded by host
code that had read values of the call."""
AFTER_MOVE = {KERNEL: CARRIED, GIVEN: MOVED}
"""The labels that a move changes."""
OF_KERNELS = frozenset((KERNEL, CARRIED, FINISHED))
"""The labels of what kernels have stored, and of what was made of that."""
_RANKS = np.zeros(HOST + 1, np.uint8)
_RANKS[[CONSTANT, FIXED, KERNEL, CARRIED, GIVEN, MOVED, FINISHED, GLUE, HOST]] = range(1, 10)
LABELS = {
    UNWRITTEN: "unwritten",
    KERNEL: "kernel",
    CARRIED: "carried",
    CONSTANT: "constant",
    FIXED: "fixed",
    GIVEN: "given",
    MOVED: "moved",
    FINISHED: "finished",
    GLUE: "glue",
    HOST: "host",
}
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


def strongest(labels: Iterable[int] | np.ndarray) -> int:
    """Returns the label that decides for several bytes together: the most suspicious one, but what kernels have stored
    counts before constants and weights beside it. Raises ValueError if there is none."""
    each = np.unique(labels) if isinstance(labels, np.ndarray) else list(labels)
    return max(map(int, each), key=lambda label: int(_RANKS[label]))


@dataclass
class Block:
    """One allocation. Its bytes have `label`, but for those that its shadow gives another one."""

    address: int
    nbytes: int
    name: str = "tensor"
    label: int = UNWRITTEN
    mixed: bool = False
    """True if the shadow may give bytes other labels than `label`."""
    shadow: Shadow | None = None
    """The labels of bytes written since all had `label`; None until a launch or a write needs one."""
    given: bool = False
    """True for the judge's inputs and weights, which the candidate cannot free."""
    variable: bool = False
    """True for a variable of device code: its module owns the memory, and it has contents from the start."""
    constant: bool = False
    """True for a `__constant__` variable, into which no kernel stores."""
    floating: bool = True
    """True while all tensors over it are of a floating-point dtype; integers may steer addresses."""
    others: int = 0
    """The bytes that anything but a kernel has written, in all writes together."""
    flat: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8), repr=False)

    def labelled(self) -> Shadow:
        """Returns the shadow, begun if there is none."""
        if self.shadow is None:
            self.shadow = Shadow(self.nbytes)
        return self.shadow

    def mark(self, label: int) -> None:
        """Gives all bytes one label: something writes them all."""
        if self.mixed:
            self.shadow = None
        self.label, self.mixed = label, False

    def suspect(self, labels: np.ndarray | int) -> None:
        """Gives all bytes the strongest of their label and others: sparse memory has no room for one a byte."""
        self.label = strongest([self.label, labels if isinstance(labels, int) else strongest(labels)])

    def begin_write(self, first: int, unwritten: bool) -> Shadow:
        """Returns the shadow for labels of bytes from `first` on; `unwritten`: some of these may be `UNWRITTEN`."""
        shadow = self.labelled()
        if unwritten and self.label != UNWRITTEN:
            shadow.fold(self.label)
            self.label = UNWRITTEN
        shadow.changed(first)
        self.mixed = True
        return shadow

    def stored(self) -> None:
        """Notes that a kernel has stored into the block; the launch has labelled the bytes in its shadow."""
        self.mixed = True
        if self.shadow is None or self.shadow.stored():
            self.label, self.shadow, self.mixed = KERNEL, None, False


class DeviceMemory:
    """All blocks of one candidate, by address."""

    device = "cpu"
    """The device of tensors over the memory, as torch names it."""

    def __init__(self, limit: int, sparse: bool = False) -> None:
        """`limit` bounds the bytes of all blocks together. `sparse` memory is reserved on touch, not poisoned, and has
        one label a block."""
        self.limit, self.sparse = limit, sparse
        self.blocks: dict[int, Block] = {}
        self.moved: dict[int, bool] = {}
        """The blocks into which operators have moved anything since the last launch, by address; True if inputs."""
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
        block = Block(address, nbytes, name, label)
        self._begin(block)
        self._insert(block)
        self.used += nbytes
        return block

    def _insert(self, block: Block) -> None:
        self.blocks[block.address] = block
        bisect.insort(self._starts, block.address)
        self._table = None

    def _begin(self, block: Block) -> None:
        """Maps the memory of a block, poisoned where nothing is written yet. A variable has its memory."""
        if not block.variable:
            _map(block.address, _rounded(block.nbytes))
        memory = (ctypes.c_char * block.nbytes).from_address(block.address)
        block.flat = torch.frombuffer(memory, dtype=torch.uint8)
        if block.label == UNWRITTEN and not self.sparse:
            ctypes.memset(block.address, POISON, block.nbytes)
        if block.label == UNWRITTEN and self.sparse:
            block.shadow = Shadow(block.nbytes, self.sparse)

    def _end(self, block: Block) -> None:
        """Unmaps the memory of a block, but not that of a variable."""
        block.flat = torch.empty(0, dtype=torch.uint8)
        if not block.variable:
            _libc().munmap(ctypes.c_void_p(block.address), ctypes.c_size_t(_rounded(block.nbytes)))

    def add_variables(self, program: Program) -> None:
        """Makes each variable of a program a block, whose bytes the program has written: they are constants."""
        for name, (address, nbytes, constant) in program.variables().items():
            if address not in self.blocks:
                named = f"variable {readable(name)}"
                block = Block(address, nbytes, named, CONSTANT, floating=False, variable=True, constant=constant)
                self._begin(block)
                self._insert(block)
            if is_device(address):
                self._next = max(self._next, _rounded(address + nbytes) + _PAGE)

    def room(self) -> int:
        """Returns the address from which on memory is free for the variables of a program; 0 for any. There the
        candidate's process has nothing: an address of its own would be taken for the variable's."""
        return self._next

    def given(self, nbytes: int, name: str, label: int = GIVEN) -> Block:
        """Maps a block at an address that the device process chooses."""
        address = self._next
        self._next += _rounded(nbytes) + _PAGE
        block = self.add(address, nbytes, name, label)
        block.given = True
        return block

    def free(self, address: int) -> bool:
        """Unmaps a block; returns False for an address at which none begins. The memory of a variable stays."""
        block = self.blocks.pop(address, None)
        if block is None:
            return False
        self.moved.pop(address, None)
        self._end(block)
        self._starts.remove(address)
        self._table = None
        self.used -= 0 if block.variable else block.nbytes
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
            return torch.empty_strided(tuple(sizes), tuple(strides), dtype=kind, device=self.device)
        block = self.holding(address, 1)
        if not kind.is_floating_point:
            block.floating = False
        first, odd = divmod(address - block.address, kind.itemsize)
        if odd:
            raise BadAddress(f"a tensor of {dtype} at {address:#x} is not aligned")
        tensor = _typed(self.flat(block), kind).as_strided(sizes, strides, first + offset)
        tensor = tensor.conj() if bits & 1 else tensor
        return torch._neg_view(tensor) if bits & 2 else tensor

    def flat(self, block: Block) -> torch.Tensor:
        """Returns the bytes of a block."""
        return block.flat

    # Bytes at addresses, which the caller has checked.

    def read(self, address: int, nbytes: int) -> bytes:
        """Returns a copy of bytes."""
        return ctypes.string_at(address, nbytes)

    def put(self, address: int, data: bytes | bytearray) -> None:
        """Writes bytes of the host."""
        ctypes.memmove(address, bytes(data), len(data))

    def fill(self, address: int, value: int, nbytes: int) -> None:
        """Sets bytes to one value."""
        ctypes.memset(address, value, nbytes)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copies bytes to another address of the device."""
        ctypes.memmove(to, source, nbytes)

    def labels(self, place: Place) -> torch.Tensor:
        """Returns the label of each element at a place: the most suspicious of its bytes', `UNWRITTEN` if any is that.
        Raises `BadAddress`."""
        _, dtype, sizes, *_ = place
        if 0 in sizes:
            return torch.empty(tuple(sizes), dtype=torch.uint8)
        uniform = self.uniform(place)
        if uniform is not None:
            return torch.full(tuple(sizes), uniform, dtype=torch.uint8)
        block, first = self._within(place)
        marks = block.labelled().elements(first, sizes, place[3], dtype_of(dtype).itemsize)
        found, least = marks[..., 0].copy(), marks[..., 0].copy()
        for byte in range(1, marks.shape[-1]):
            np.maximum(found, marks[..., byte], out=found)
            np.minimum(least, marks[..., byte], out=least)
        bare = least == 0
        found[bare] = np.maximum(found[bare], block.label) if block.label else UNWRITTEN
        return torch.from_numpy(found)

    def _within(self, place: Place) -> tuple[Block, int]:
        """Returns the block of a place and the offset of its first byte. Raises `BadAddress` if it leaves the block."""
        address, dtype, sizes, strides, offset, _ = place
        block, size = self.holding(address, 1), dtype_of(dtype).itemsize
        first = address - block.address + offset * size
        last = first + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) * size + size
        if first < 0 or last > block.nbytes or any(s < 0 for s in strides):
            raise BadAddress(f"a tensor of {dtype} at {address:#x} is not in one block of device memory")
        return block, first

    def mark(self, place: Place, labels: torch.Tensor | int) -> None:
        """Labels the elements at a place: by one label, or by one for each. Raises `BadAddress`."""
        _, dtype, sizes, strides, *_ = place
        if 0 in sizes:
            return
        block, first = self._within(place)
        size = dtype_of(dtype).itemsize
        block.others += math.prod(sizes) * size
        given = labels if isinstance(labels, int) else labels.numpy()
        if self.sparse:
            self._suspect(block, given, _covers(block, sizes, strides, first, size))
        elif isinstance(given, int) and _covers(block, sizes, strides, first, size):
            block.mark(given)
        else:
            shadow = block.begin_write(first, _any_unwritten(given))
            shadow.elements(first, sizes, strides, size)[...] = given if isinstance(given, int) else given[..., None]
        self._note_moved(block, given)

    def write(self, address: int, nbytes: int, labels: np.ndarray | int) -> None:
        """Labels a range of bytes that is about to be written. Raises `BadAddress`."""
        block = self.holding(address, nbytes)
        block.others += nbytes
        at = address - block.address
        if self.sparse:
            self._suspect(block, labels, nbytes == block.nbytes)
            if block.shadow is not None:
                block.shadow.mark(at, nbytes)
        elif isinstance(labels, int) and nbytes == block.nbytes:
            block.mark(labels)
        elif nbytes:
            shadow = block.begin_write(at, _any_unwritten(labels))
            shadow.copy_from(at, labels if not isinstance(labels, int) else np.full(nbytes, labels, np.uint8))
        self._note_moved(block, labels)

    def _suspect(self, block: Block, labels: np.ndarray | int, whole: bool) -> None:
        """Labels a block of sparse memory, `whole` or in part, by the strongest label of its bytes."""
        block.suspect(labels)

    def _note_moved(self, block: Block, labels: np.ndarray | int) -> None:
        """Notes a block whose labels have changed, and whether operators have moved anything there."""
        self._table = None
        found = (
            {labels} if isinstance(labels, int) else {label for label in (MOVED, CARRIED) if (labels == label).any()}
        )
        if MOVED in found or CARRIED in found:
            self.moved[block.address] = self.moved.get(block.address, False) or MOVED in found

    def written(self, address: int, nbytes: int) -> np.ndarray | int:
        """Returns the labels of a range of bytes; one number where all of its block have the same. Raises
        `BadAddress`."""
        block = self.holding(address, nbytes)
        if not block.mixed:
            return block.label
        found = block.labelled().marks(address - block.address, nbytes)
        found[found == 0] = block.label
        return found

    def of_kernels(self, place: Place) -> bool:
        """Tells whether kernels have stored an element at a place, or whether one was made of what they had stored."""
        uniform = self.uniform(place)
        labels = self.labels(once(place)).numpy() if uniform is None else uniform
        return bool(np.isin(labels, list(OF_KERNELS)).any())

    def anything(self, place: Place, label: int) -> bool:
        """Tells whether any element at a place has a label."""
        uniform = self.uniform(place)
        return uniform == label if uniform is not None else bool((self.labels(once(place)) == label).any())

    def stored(self, address: int) -> None:
        """Notes that a kernel has stored into the block at an address."""
        block = self.blocks.get(address)
        if block is None:
            return
        had = block.shadow
        if not self.sparse:
            block.stored()
        else:
            block.label = KERNEL
            block.shadow = had if had is not None and not had.complete() else None
        if block.shadow is not had:
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
        return None if block.mixed else block.label

    def table(self) -> list[Allocation]:
        """Returns all blocks for a launch, sorted by address."""
        if self._table is None:
            blocks = [self.blocks[a] for a in self._starts]
            self._table = [self._entry(b) for b in blocks]
        return self._table

    def _entry(self, block: Block) -> Allocation:
        """Returns a block for a launch, which labels what it stores; not where all is a kernel's. The shadow of sparse
        memory only tells what is written."""
        place = (block.address, block.nbytes, block.name, not block.constant)
        if self.sparse:
            return Allocation(*place, shadow=block.shadow)
        all_known = block.constant or (block.label == KERNEL and not block.mixed)
        shadow = None if all_known else block.labelled()
        return Allocation(*place, shadow=shadow, checked=block.label == UNWRITTEN)


def _any_unwritten(labels: np.ndarray | int) -> bool:
    return labels == UNWRITTEN if isinstance(labels, int) else not labels.all()


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
