"""Tracks which tensors count as host memory when there is no GPU and all tensors are in one memory.

`HOST` is this process's set. `evaluation.candidate.fake_cuda` adds host tensors made by Python code,
`backends.host_library` those made by compiled code; both query it to report a tensor's device.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

_without_functions: Any = torch._C.DisableTorchFunction
"""Captured at import, before a candidate can patch it."""


def _storage(tensor: torch.Tensor) -> Any:
    """Returns a tensor's storage, bypassing overrides of its class or instance."""
    with _without_functions():
        return torch.Tensor.untyped_storage(tensor)


def address_of(tensor: torch.Tensor) -> int:
    """Returns the start address of a tensor's storage."""
    return int(_storage(tensor).data_ptr())


def bytes_of(tensor: torch.Tensor) -> int:
    """Returns the bytes of a tensor's storage."""
    return int(_storage(tensor).nbytes())


def count_of(tensor: torch.Tensor) -> int:
    """Returns the number of elements of a tensor."""
    with _without_functions():
        return torch.Tensor.numel(tensor)


class Memory:
    """A set of tensors, keyed by storage. Freed storages leave it, so that a reused address does not match."""

    def __init__(self) -> None:
        self._places: dict[int, weakref.WeakSet[Any]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        # torch keeps a storage's Python object alive as long as its memory.
        storage = _storage(tensor)
        self._places.setdefault(storage.data_ptr(), weakref.WeakSet()).add(storage)

    def discard(self, tensor: torch.Tensor) -> None:
        self._places.pop(address_of(tensor), None)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return bool(self._places.get(address_of(tensor)))


class HostMemory:
    """Tensors in host memory. `fetched` marks tensors whose contents may come from the device, so that host code could
    do a kernel's work on them; the others were made by Python or numpy."""

    def __init__(self) -> None:
        self.used = False
        """Tells whether any tensor was ever added; most candidates have none, which skips the look-ups."""
        self.added: Callable[[torch.Tensor], None] | None = None
        """Called with each added tensor."""
        self._all = Memory()
        self._fetched = Memory()

    def add(self, tensor: torch.Tensor, fetched: bool) -> None:
        if _has_memory(tensor):
            self.used = True
            self._all.add(tensor)
            (self._fetched.add if fetched else self._fetched.discard)(tensor)
            if self.added is not None:
                self.added(tensor)

    def discard(self, tensor: torch.Tensor) -> None:
        if self.used and _has_memory(tensor):
            self._all.discard(tensor)
            self._fetched.discard(tensor)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return self.used and _has_memory(tensor) and tensor in self._all

    def fetched(self, tensor: torch.Tensor) -> bool:
        return tensor in self and tensor in self._fetched


HOST = HostMemory()


def _has_memory(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor has memory of its own: empty tensors share one address, sparse ones have none."""
    return tensor.layout == torch.strided and count_of(tensor) > 0


def shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tells whether two tensors share a storage."""
    return _has_memory(a) and _has_memory(b) and address_of(a) == address_of(b)
