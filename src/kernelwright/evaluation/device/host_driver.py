"""The CPU in place of the driver behind a `LiveCard`, for tests of the live road without a GPU.

Each method stands for the driver's function of its name, takes the same ctypes arguments, and returns a status. Memory
of the host is mapped at the addresses that are asked for, and every copy is finished when its function returns.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from functools import cache
from typing import Any

import torch

GRANULE = 1 << 16
_NORESERVE, _FIXED, _FIXED_NOREPLACE = 0x4000, 0x10, 0x100000
_HIDDEN = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
_FAILED = ctypes.c_void_p(-1).value
_NO_MEMORY, _INVALID = 2, 1


@cache
def _libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


def view(address: int, nbytes: int) -> torch.Tensor:
    """Returns the bytes at an address of the host as a tensor, without a copy."""
    return torch.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype=torch.uint8)


class HostDriver:
    """A driver whose device is the host."""

    def __init__(self) -> None:
        self._events: dict[int, float] = {}

    def cuGetErrorString(self, status: int, text: Any) -> int:
        text._obj.value = f"status {status}".encode()
        return 0

    def cuCtxGetDevice(self, device: Any) -> int:
        device._obj.value = 0
        return 0

    def cuCtxSynchronize(self) -> int:
        return 0

    def cuMemGetAllocationGranularity(self, grain: Any, _properties: Any, _option: int) -> int:
        grain._obj.value = GRANULE
        return 0

    def cuMemAddressReserve(self, got: Any, size: Any, _alignment: Any, hint: Any, _flags: Any) -> int:
        found = _libc().mmap(hint.value, size.value, 0, _HIDDEN | _FIXED_NOREPLACE, -1, 0)
        if found == _FAILED:
            found = _libc().mmap(None, size.value, 0, _HIDDEN, -1, 0)
        got._obj.value = found
        return _NO_MEMORY if found == _FAILED else 0

    def cuMemCreate(self, handle: Any, _size: Any, _properties: Any, _flags: Any) -> int:
        handle._obj.value = 1
        return 0

    def cuMemRelease(self, _handle: Any) -> int:
        return 0

    def cuMemMap(self, start: Any, size: Any, _offset: Any, _handle: Any, _flags: Any) -> int:
        return _INVALID if start.value % GRANULE or size.value % GRANULE else 0

    def cuMemSetAccess(self, start: Any, size: Any, _access: Any, _count: Any) -> int:
        failed = _libc().mprotect(start.value, size.value, mmap.PROT_READ | mmap.PROT_WRITE)
        return _NO_MEMORY if failed else 0

    def cuMemUnmap(self, start: Any, size: Any) -> int:
        found = _libc().mmap(start.value, size.value, 0, _HIDDEN | _FIXED, -1, 0)
        return _INVALID if found == _FAILED else 0

    def cuMemcpyDtoH_v2(self, to: Any, source: Any, size: Any) -> int:
        ctypes.memmove(to, source.value, size.value)
        return 0

    def cuMemcpyHtoD_v2(self, to: Any, data: bytes, size: Any) -> int:
        ctypes.memmove(to.value, data, size.value)
        return 0

    def cuMemcpyDtoDAsync_v2(self, to: Any, source: Any, size: Any, _stream: Any) -> int:
        ctypes.memmove(to.value, source.value, size.value)
        return 0

    def cuMemsetD8Async(self, to: Any, value: Any, size: Any, _stream: Any) -> int:
        ctypes.memset(to.value, value.value, size.value)
        return 0

    def cuEventCreate(self, event: Any, _flags: Any) -> int:
        event._obj.value = len(self._events) + 1
        self._events[event._obj.value] = 0.0
        return 0

    def cuEventRecord(self, event: Any, _stream: Any) -> int:
        self._events[event.value] = time.perf_counter()
        return 0

    def cuEventSynchronize(self, _event: Any) -> int:
        return 0

    def cuEventElapsedTime(self, took: Any, first: Any, second: Any) -> int:
        took._obj.value = 1e3 * (self._events[second.value] - self._events[first.value])
        return 0

    def cuEventDestroy_v2(self, _event: Any) -> int:
        return 0
