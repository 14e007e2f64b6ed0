"""Detects Python code that accesses simulated device memory: by numpy, by addresses, or by any library.

While a candidate's Python code runs, memory that certainly belongs to the device (a call's inputs and operator results
on them) is protected; torch and this package run with it unprotected. An access, which would be a segmentation fault
on a GPU, is allowed and counted (`host_include/kw/kwhost/fence.cpp`).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import torch

from kernelwright.backends.host_memory import HOST, Memory, address_of, shares


class PythonFence:
    """The fence of this process; inactive until `stand` is called."""

    def __init__(self) -> None:
        self._library: Any = None
        self._shut = False
        self._device = Memory()

    def stand(self, library: str) -> None:
        """Activates the fence for future allocations of torch. `library` is `kwhost.so`; empty does nothing."""
        if not library:
            return
        loaded = ctypes.CDLL(library)
        loaded.kw_device_memory.argtypes = [ctypes.c_uint64, ctypes.c_int]
        loaded.kw_reached.restype = ctypes.c_uint64
        if loaded.kw_fence():
            self._library = loaded
            HOST.added = self._release

    def guard(self, tensor: torch.Tensor) -> None:
        """Marks a tensor as device memory."""
        if self._library is not None and tensor.layout == torch.strided:
            self._device.add(tensor)
            self._library.kw_device_memory(address_of(tensor), 1)

    def follow(self, given: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        """Marks an operator's results as device memory if an input is, except results that share an input's storage."""
        if self._library is None or not any(t in self._device for t in given if t.layout == torch.strided):
            return
        for tensor in made:
            if not any(shares(tensor, t) for t in given):
                self.guard(tensor)

    def _release(self, tensor: torch.Tensor) -> None:
        if tensor in self._device:
            self._device.discard(tensor)
            self._library.kw_device_memory(address_of(tensor), 0)

    @contextlib.contextmanager
    def around(self, inputs: list[torch.Tensor]) -> Iterator[None]:
        """A context for a candidate's call with these inputs; resets the access count."""
        for tensor in inputs:
            self.guard(tensor)
        self.reached()
        self.shut()
        try:
            yield
        finally:
            self.open()

    def shut(self) -> None:
        """Protects device memory: the candidate's Python code resumes."""
        if self._library is not None:
            self._shut = True
            self._library.kw_watch(1)

    def open(self) -> bool:
        """Unprotects device memory for other code; returns whether it was protected."""
        was = self._shut
        if was:
            self._shut = False
            self._library.kw_watch(0)
        return was

    @contextlib.contextmanager
    def reachable(self) -> Iterator[None]:
        """A context in which device memory is unprotected."""
        was = self.open()
        try:
            yield
        finally:
            if was:
                self.shut()

    def reached(self) -> int:
        """Returns the four-byte elements of the blocks accessed since the previous call."""
        return int(self._library.kw_reached()) // 4 if self._library is not None else 0


FENCE = PythonFence()
