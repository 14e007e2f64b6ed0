"""Python code does not reach the pretended device's memory: by numpy, by addresses, by whatever library it calls.

While Python code of a candidate runs, memory that is certainly the device's (a call's inputs, and what operators made
of them) is shut; it is open in everything that torch or this package does for it. Whoever reads there all the same,
which is a segmentation fault on a GPU, is let on and counted (`host_include/kw/kwhost/fence.cpp`).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import torch

from kernelwright.backends.host_memory import HOST, Memory, address_of, shares


class PythonFence:
    """The fence of this process; it does nothing until it stands."""

    def __init__(self) -> None:
        self._library: Any = None
        self._shut = False
        self._device = Memory()

    def stand(self, library: str) -> None:
        """Puts it up around memory that torch asks for from now on. `library` is `kwhost.so`; empty: it is left."""
        if not library:
            return
        loaded = ctypes.CDLL(library)
        loaded.kw_device_memory.argtypes = [ctypes.c_uint64, ctypes.c_int]
        loaded.kw_reached.restype = ctypes.c_uint64
        if loaded.kw_fence():
            self._library = loaded
            HOST.added = self._release

    def guard(self, tensor: torch.Tensor) -> None:
        """A tensor is the device's."""
        if self._library is not None and tensor.layout == torch.strided:
            self._device.add(tensor)
            self._library.kw_device_memory(address_of(tensor), 1)

    def follow(self, given: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        """What an operator makes of the device's tensors is there as well, but for what it writes into other memory."""
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
        """Within, a candidate is called with these inputs; the count of what it reaches begins anew."""
        for tensor in inputs:
            self.guard(tensor)
        self.reached()
        self.shut()
        try:
            yield
        finally:
            self.open()

    def shut(self) -> None:
        """Python code of a candidate goes on."""
        if self._library is not None:
            self._shut = True
            self._library.kw_watch(1)

    def open(self) -> bool:
        """Somebody else's does; whether it was a candidate's that called."""
        was = self._shut
        if was:
            self._shut = False
            self._library.kw_watch(0)
        return was

    @contextlib.contextmanager
    def reachable(self) -> Iterator[None]:
        """Within, memory can be reached."""
        was = self.open()
        try:
            yield
        finally:
            if was:
                self.shut()

    def reached(self) -> int:
        """Elements (of four bytes) of the blocks that were reached since this was last asked."""
        return int(self._library.kw_reached()) // 4 if self._library is not None else 0


FENCE = PythonFence()
