"""Memory and clock of one GPU at fixed addresses, by the driver's virtual memory API.

A candidate's process chooses the addresses of its memory. A card maps memory of the GPU there, so that pointers in
kernel arguments, in structs and in memory mean the same on both sides. Where the driver does not give the addresses
that are asked for, the card moves them by a constant, and `real` and `translated` tell where to.

This is all that the live road asks of a GPU beside launches, so a test can put another library in the driver's place.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.errors import DeviceError

_DEVICE_MEMORY, _PINNED, _READ_WRITE = 1, 1, 3  # CU_MEM_LOCATION_TYPE_DEVICE, _ALLOCATION_TYPE_, _ACCESS_FLAGS_PROT_
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
WINDOW, LEAST_WINDOW = 1 << 40, 1 << 36
"""The bytes of addresses that are reserved from each first address on, and the least that are enough."""


class OutOfCardMemory(RuntimeError):
    """The GPU has too little free memory, or a window too few addresses."""


class _Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = [("kind", ctypes.c_int), ("device", ctypes.c_int)]


class _Flags(ctypes.Structure):
    _fields_ = [("some", ctypes.c_ubyte * 2), ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 4)]


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", _Flags),
    ]


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


@dataclass
class _Window:
    """Reserved addresses: those of the candidate from `first` on, at `base` on the card."""

    first: int
    base: int
    nbytes: int
    mapped: bytearray
    """1 for each granule with memory behind it."""
    runs: list[tuple[int, int]] = field(default_factory=list)
    """The first granule and the number of granules of each mapping."""


class LiveCard:
    """The GPU of the current context.

    `library` is the driver, `view` makes a tensor of bytes at an address of the card.
    """

    def __init__(
        self, library: Any, view: Callable[[int, int], torch.Tensor], device: str, firsts: Sequence[int]
    ) -> None:
        """Reserves a window of addresses from each of `firsts` on. Raises `DeviceError`."""
        self.device = device
        self._driver, self._view = library, view
        number = ctypes.c_int()
        self._check(self._driver.cuCtxGetDevice(ctypes.byref(number)))
        self._location = _Location(_DEVICE_MEMORY, number.value)
        self._properties = _Properties(_PINNED, 0, self._location)
        grain = ctypes.c_size_t()
        self._check(self._driver.cuMemGetAllocationGranularity(ctypes.byref(grain), ctypes.byref(self._properties), 0))
        self.granule = grain.value
        self._windows = [self._reserved(first) for first in firsts]
        self.moved = any(w.base != w.first for w in self._windows)
        """True if the card's addresses are others than the candidate's."""
        self._events: list[ctypes.c_void_p] = []

    def _check(self, status: int) -> None:
        if status:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(text))
            raise DeviceError(f"CUDA error: {(text.value or b'unknown error').decode()}")

    # Addresses.

    def _reserved(self, first: int) -> _Window:
        got, nbytes = ctypes.c_uint64(), WINDOW
        while status := self._driver.cuMemAddressReserve(
            ctypes.byref(got),
            ctypes.c_size_t(nbytes),
            ctypes.c_size_t(0),
            ctypes.c_uint64(first),
            ctypes.c_ulonglong(0),
        ):
            nbytes //= 2
            if nbytes < LEAST_WINDOW:
                self._check(status)
        return _Window(first, got.value, nbytes, bytearray(-(-nbytes // self.granule)))

    def _window(self, address: int) -> _Window | None:
        return next((w for w in self._windows if w.first <= address < w.first + w.nbytes), None)

    def real(self, address: int) -> int:
        """Returns the card's address for one of the candidate's; any other address stays."""
        window = self._window(address)
        return address if window is None else window.base + address - window.first

    def translated(self, data: bytes) -> bytes:
        """Returns bytes in which each aligned word that is an address of the candidate is the card's."""
        if not self.moved or len(data) < 8:
            return data
        changed = bytearray(data)
        for at in range(0, len(data) - 7, 8):
            word = int.from_bytes(data[at : at + 8], "little")
            changed[at : at + 8] = self.real(word).to_bytes(8, "little")
        return bytes(changed)

    def map(self, address: int, nbytes: int) -> None:
        """Puts memory behind addresses that have none yet. Raises `OutOfCardMemory`."""
        window = self._window(address)
        if window is None or address + nbytes > window.first + window.nbytes:
            raise OutOfCardMemory(f"{nbytes} bytes at {address:#x} are beyond the addresses of the card")
        at = (address - window.first) // self.granule
        end = -(-(address + nbytes - window.first) // self.granule)
        while (at := window.mapped.find(0, at, end)) >= 0:
            stop = window.mapped.find(1, at, end)
            self._map(window, at, (stop if stop >= 0 else end) - at)

    def _map(self, window: _Window, at: int, count: int) -> None:
        nbytes, start = ctypes.c_size_t(count * self.granule), ctypes.c_uint64(window.base + at * self.granule)
        handle, none = ctypes.c_ulonglong(), ctypes.c_ulonglong(0)
        made = self._driver.cuMemCreate(ctypes.byref(handle), nbytes, ctypes.byref(self._properties), none)
        if made == _OUT_OF_MEMORY:
            raise OutOfCardMemory(f"the GPU has no {count * self.granule} bytes left")
        self._check(made)
        try:
            self._check(self._driver.cuMemMap(start, nbytes, ctypes.c_size_t(0), handle, none))
        finally:
            self._check(self._driver.cuMemRelease(handle))  # the mapping holds the memory from here on
        window.runs.append((at, count))
        access = _Access(self._location, _READ_WRITE)
        self._check(self._driver.cuMemSetAccess(start, nbytes, ctypes.byref(access), ctypes.c_size_t(1)))
        window.mapped[at : at + count] = b"\1" * count

    def release(self) -> None:
        """Returns all memory to the GPU; the addresses stay reserved. Raises `DeviceError`."""
        self.wait()
        for window in self._windows:
            while window.runs:
                at, count = window.runs.pop()
                window.mapped[at : at + count] = bytes(count)
                start = ctypes.c_uint64(window.base + at * self.granule)
                self._check(self._driver.cuMemUnmap(start, ctypes.c_size_t(count * self.granule)))
        while self._events:
            self._check(self._driver.cuEventDestroy_v2(self._events.pop()))

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yields first address and bytes of all mapped memory, as the candidate names it."""
        for window in self._windows:
            for at, count in window.runs:
                yield window.first + at * self.granule, count * self.granule

    # Bytes.

    def tensor(self, address: int, nbytes: int) -> torch.Tensor:
        """Returns the bytes at an address, dtype uint8, without a copy."""
        return self._view(self.real(address), nbytes)

    def read(self, address: int, nbytes: int) -> bytes:
        """Returns a copy of bytes, after all work before."""
        made = ctypes.create_string_buffer(nbytes)
        place = ctypes.c_uint64(self.real(address))
        self._check(self._driver.cuMemcpyDtoH_v2(made, place, ctypes.c_size_t(nbytes)))
        return made.raw

    def write(self, address: int, data: bytes) -> None:
        """Writes bytes of the host, in which addresses are translated."""
        place = ctypes.c_uint64(self.real(address))
        self._check(self._driver.cuMemcpyHtoD_v2(place, self.translated(data), ctypes.c_size_t(len(data))))

    def fill(self, address: int, value: int, nbytes: int) -> None:
        """Sets bytes to one value, in the order of the stream."""
        place, stream = ctypes.c_uint64(self.real(address)), ctypes.c_void_p(0)
        self._check(self._driver.cuMemsetD8Async(place, ctypes.c_ubyte(value), ctypes.c_size_t(nbytes), stream))

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copies bytes on the card, in the order of the stream."""
        ends = ctypes.c_uint64(self.real(to)), ctypes.c_uint64(self.real(source))
        self._check(self._driver.cuMemcpyDtoDAsync_v2(*ends, ctypes.c_size_t(nbytes), ctypes.c_void_p(0)))

    # Time.

    def wait(self) -> None:
        """Waits for all work. Raises `DeviceError` for the fault of an earlier launch."""
        self._check(self._driver.cuCtxSynchronize())

    def mark(self) -> int:
        """Records the present point of the stream; returns its number."""
        event = ctypes.c_void_p()
        self._check(self._driver.cuEventCreate(ctypes.byref(event), ctypes.c_uint(0)))
        self._events.append(event)
        self._check(self._driver.cuEventRecord(event, ctypes.c_void_p(0)))
        return len(self._events) - 1

    def mark_again(self, number: int) -> None:
        """Records the present point of the stream as a number that `mark` has returned."""
        self._check(self._driver.cuEventRecord(self._events[number], ctypes.c_void_p(0)))

    def elapsed(self, first: int, second: int) -> float:
        """Returns the milliseconds between two points, after waiting for them. Raises IndexError for a number that
        `mark` has not returned."""
        one, other = (self._events[number] for number in (first, second))
        for event in (one, other):
            self._check(self._driver.cuEventSynchronize(event))
        took = ctypes.c_float()
        self._check(self._driver.cuEventElapsedTime(ctypes.byref(took), one, other))
        return float(took.value)
