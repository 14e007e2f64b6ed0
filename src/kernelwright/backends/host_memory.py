"""Which memory is the host's where no GPU is there and all memory is in one place.

`HOST` is this process's: `evaluation.candidate.fake_cuda` enters what Python code makes on the host,
`backends.extension` what compiled code makes there; both ask it before they say where a tensor is. What this does not
do: keep anyone out of the memory (those are the fences of `host_include/kw` and `python_fence`), or judge.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

_without_functions: Any = torch._C.DisableTorchFunction
"""As it was before anybody could have watched it."""


def _storage(tensor: torch.Tensor) -> Any:
    """A tensor's memory, whatever its class or the object itself would answer."""
    with _without_functions():
        return torch.Tensor.untyped_storage(tensor)


def address_of(tensor: torch.Tensor) -> int:
    """Where a tensor's memory begins."""
    return int(_storage(tensor).data_ptr())


def bytes_of(tensor: torch.Tensor) -> int:
    """How large the memory is that a tensor lies in."""
    return int(_storage(tensor).nbytes())


def count_of(tensor: torch.Tensor) -> int:
    """How many elements a tensor has."""
    with _without_functions():
        return torch.Tensor.numel(tensor)


class Memory:
    """A set of tensors, by their memory; what was freed is not in it any more, although its address may come again."""

    def __init__(self) -> None:
        self._places: dict[int, weakref.WeakSet[Any]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        # torch keeps a storage's Python object for as long as its memory lives.
        storage = _storage(tensor)
        self._places.setdefault(storage.data_ptr(), weakref.WeakSet()).add(storage)

    def discard(self, tensor: torch.Tensor) -> None:
        self._places.pop(address_of(tensor), None)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return bool(self._places.get(address_of(tensor)))


class HostMemory:
    """Tensors on the host. `fetched`: what they hold may come from the device, so that host code could do a kernel's
    work on it; the others hold what Python and numpy made."""

    def __init__(self) -> None:
        self.used = False
        """Whether there ever was one: most candidates have none, and need not be asked about each tensor."""
        self.added: Callable[[torch.Tensor], None] | None = None
        """Is told of each."""
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
    """Empty tensors all share one address, and sparse ones have none."""
    return tensor.layout == torch.strided and count_of(tensor) > 0


def shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors lie in the same memory."""
    return _has_memory(a) and _has_memory(b) and address_of(a) == address_of(b)
