"""Gives addresses to the tensors that a candidate sees: handles without bytes.

A handle is a plain torch tensor of device `meta`. It has a shape, strides and a dtype, and its storage has an address
in the range of `device_addresses`, at which nothing is mapped in this process. The bytes are in the device process.
"""

from __future__ import annotations

import bisect
import contextlib
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.backends.device_addresses import LOW
from kernelwright.errors import DeviceError
from kernelwright.evaluation.program.forms import Place, dtype_of, place
from kernelwright.evaluation.program.stream import RecordStream, StreamClosed
from kernelwright.tasks.storages import extent

_PAGE = 4096
_without_functions: Any = torch._C.DisableTorchFunction
_storage_of = torch.Tensor.untyped_storage
"""Captured at import, before a candidate can patch them."""


def is_handle(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor is the device's, whatever modes are active."""
    with _without_functions():
        return tensor.is_meta


@dataclass
class _Storage:
    address: int
    nbytes: int
    kept: weakref.ref[Any]
    own: bool
    """True if this process chose the address, and so frees it."""
    integers: bool = False
    """True once a kernel may have been given it as integers, which can steer addresses."""


class Addresses:
    """The addresses that this process gives to device memory, in whole pages."""

    def __init__(self, reused: bool = False) -> None:
        """With `reused`, freed addresses are given again, as a GPU's allocator does: mapping memory takes it long.
        Otherwise each address is given once, and one free page follows each range."""
        self.reused = reused
        self._next = LOW
        self._free: list[tuple[int, int]] = []
        """Free ranges, first address and bytes, in order; no two of them touch."""
        self._sizes: dict[int, int] = {}
        self._left: list[int] = []
        """Addresses that were freed meanwhile; an object may be collected at any time."""

    def take(self, nbytes: int) -> int:
        """Returns the first address of a free range."""
        room = -(-nbytes // _PAGE) * _PAGE
        if not self.reused:
            self._next += room + _PAGE
            return self._next - room - _PAGE
        while self._left:
            self._return(self._left.pop())
        fitting = [(size, start) for start, size in self._free if size >= room]
        if fitting:
            size, address = min(fitting)
            at = self._free.index((address, size))
            self._free[at : at + 1] = [(address + room, size - room)] if size > room else []
        else:
            address, self._next = self._next, self._next + room
        self._sizes[address] = room
        return address

    def give(self, address: int) -> None:
        """Frees a range."""
        if self.reused:
            self._left.append(address)

    def _return(self, address: int) -> None:
        size = self._sizes.pop(address, 0)
        if not size:
            return
        at = bisect.bisect(self._free, (address, 0))
        start, end = address, address + size
        if at < len(self._free) and self._free[at][0] == end:
            end += self._free.pop(at)[1]
        if at and sum(self._free[at - 1]) == start:
            at -= 1
            start = self._free.pop(at)[0]
        if end == self._next:
            self._next = start
        else:
            self._free.insert(at, (start, end - start))


class HandleTable:
    """The storages of all handles, by identity."""

    def __init__(self, stream: RecordStream) -> None:
        self._stream = stream
        self._storages: dict[int, _Storage] = {}
        self.addresses = Addresses()

    def reserve(self, nbytes: int, shape: Sequence[int] = ()) -> int:
        """Returns a fresh address, and records its allocation for a tensor of a shape."""
        address = self.addresses.take(nbytes)
        self._stream.write("alloc", address, nbytes, *shape)
        return address

    def storage_address(self, tensor: torch.Tensor) -> int:
        """Returns the address of a handle's storage, 0 for an empty one; allocates on first sight and on growth."""
        with _without_functions():
            storage = _storage_of(tensor)
        nbytes = storage.nbytes()
        if not nbytes:
            return 0
        known = self._storages.get(storage._cdata)
        if known is not None and nbytes <= known.nbytes:
            return known.address
        address = self.reserve(nbytes, tensor.shape)
        if known is not None:
            self._stream.write("copy", address, known.address, known.nbytes)
            if known.own:
                self._freed(known.address)
        self._keep(storage, address, nbytes, own=True)
        return address

    def address(self, tensor: torch.Tensor) -> int:
        """Returns the address of a handle's first element."""
        with _without_functions():
            start = self.storage_address(tensor)
            known = self._storages.get(_storage_of(tensor)._cdata)
            if known is not None and not (tensor.is_floating_point() or tensor.is_complex() or known.integers):
                known.integers = True
                self._stream.write("integers", known.address)
            return start + int(tensor.storage_offset()) * tensor.element_size() if start else 0

    def place(self, tensor: torch.Tensor) -> Place:
        """Returns the place of a handle."""
        with _without_functions():
            return place(tensor, self.storage_address(tensor))

    def bound(self, where: Place, room: int = 0) -> torch.Tensor:
        """Returns a handle for memory that the device process has allocated: a view of a storage of `room` bytes (0:
        as many as it needs), the one that an earlier handle for the same block has."""
        address, dtype, sizes, strides, offset, _ = where
        room = room or (offset + extent(sizes, strides)) * dtype_of(dtype).itemsize
        with _without_functions():
            if not address:
                return torch.empty_strided(tuple(sizes), tuple(strides), dtype=dtype_of(dtype), device="meta")
            known = next((s for s in self._storages.values() if s.address == address), None)
            storage = known.kept() if known is not None else None
            if storage is None:
                storage = torch.UntypedStorage(room, device="meta")
                self._keep(storage, address, room, own=False)
            made = torch.empty(0, dtype=dtype_of(dtype), device="meta")
            return made.set_(storage, offset, tuple(sizes), tuple(strides))  # type: ignore[call-overload,no-any-return]

    def at(self, address: int, dtype: torch.dtype, sizes: list[int], strides: list[int]) -> torch.Tensor:
        """Returns a handle over memory that a live handle or an allocation of host code has. Raises ValueError."""
        found = next((s for s in self._storages.values() if s.address <= address < s.address + s.nbytes), None)
        with _without_functions():
            storage = found.kept() if found is not None else None
            if found is None or storage is None:
                return self._raw(address, dtype, sizes, strides)
            offset, odd = divmod(address - found.address, dtype.itemsize)
            if odd:
                raise ValueError("the address of a tensor is not aligned to its dtype")
            last = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if all(sizes) else -1
            if (offset + last + 1) * dtype.itemsize > found.nbytes:
                raise DeviceError("CUDA error: an illegal memory access was encountered (a tensor beyond its memory)")
            made = torch.empty(0, dtype=dtype, device="meta")
            return made.set_(storage, offset, tuple(sizes), tuple(strides))  # type: ignore[call-overload,no-any-return]

    def _raw(self, address: int, dtype: torch.dtype, sizes: list[int], strides: list[int]) -> torch.Tensor:
        tensor = torch.empty_strided(tuple(sizes), tuple(strides), dtype=dtype, device="meta")
        storage = _storage_of(tensor)
        if storage.nbytes():
            self._keep(storage, address, storage.nbytes(), own=False)
        return tensor

    def _keep(self, storage: Any, address: int, nbytes: int, own: bool) -> None:
        number = storage._cdata

        def gone(reference: Any) -> None:
            kept = self._storages.get(number)
            if kept is not None and kept.kept is reference:
                del self._storages[number]
                if own:
                    self._freed(address)

        # torch keeps a storage's Python object alive as long as its memory, so the weak reference ends with it.
        self._storages[number] = _Storage(address, nbytes, weakref.ref(storage, gone), own)

    def freed(self, address: int) -> None:
        """Records that memory of `reserve` is free."""
        self._stream.write("free", address)
        self.addresses.give(address)  # afterwards: the next range there is allocated by a later record

    def _freed(self, address: int) -> None:
        with contextlib.suppress(StreamClosed):  # the judgement is over
            self.freed(address)
