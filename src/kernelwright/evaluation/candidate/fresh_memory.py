"""Poisons memory that torch allocates without contents, and begins its shadow, whoever asked torch for it.

It stands below torch's operators, where `torch.empty`, `x.new(n)`, `torch.Tensor(n)`, `resize_` and compiled code look
alike. Storages that no operator makes are poisoned by torch's allocator (`host_include/kw/kwhost/fence.cpp`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernelwright.machine.device_memory import POISON, Shadow
from kernelwright.machine.tensor_shadows import TensorShadows

_GROWING = frozenset(("resize_", "resize_as_"))
"""Operators that may enlarge a tensor's memory and keep its contents."""
_without_functions: Any = torch._C.DisableTorchFunction
_memset = ctypes.memset
"""Both saved here: a candidate may replace them."""


class FreshMemory:
    """Follows operators for one runtime; `shadows` are those of its memory."""

    def __init__(self, shadows: TensorShadows) -> None:
        self.shadows = shadows

    def run(self, func: Any, args: Any, kwargs: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """Runs an operator by `compute`, and poisons and notes what it leaves without contents."""
        name = func.overloadpacket.__name__
        before = self._state(args[0]) if name in _GROWING else None
        result = compute()
        if before is not None:
            self._grown(args[0], *before)
        elif "empty" in name:
            self._allocated(result)
        elif len(self.shadows) and func._schema.is_mutable:
            self._written(func._schema, args, kwargs)
        return result

    def exposed(self, tensor: torch.Tensor) -> None:
        """Notes that code which no operator shows may write to a tensor: all of its memory counts as written."""
        with _without_functions():
            for plain in _plain(tensor):
                self.shadows.forget(plain.untyped_storage())

    def _allocated(self, made: Any) -> None:
        with _without_functions():
            for tensor in _plain(made):
                storage = tensor.untyped_storage()
                poison(storage.data_ptr(), storage.nbytes())
                self.shadows.fresh(storage)

    def _written(self, schema: Any, args: Any, kwargs: dict[str, Any]) -> None:
        with _without_functions():
            for index, argument in enumerate(schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    for tensor in _plain(args[index] if index < len(args) else kwargs.get(argument.name)):
                        self.shadows.wrote(tensor)

    def _state(self, tensor: torch.Tensor) -> tuple[int, Shadow | None]:
        """Returns size and shadow of a tensor's memory."""
        with _without_functions():
            storage = tensor.untyped_storage()
            return storage.nbytes(), self.shadows.of(storage.data_ptr(), storage.nbytes())

    def _grown(self, tensor: torch.Tensor, nbytes: int, shadow: Shadow | None) -> None:
        with _without_functions():
            storage = tensor.untyped_storage()
            if storage.nbytes() > nbytes and storage.device.type == "cpu":
                poison(storage.data_ptr() + nbytes, storage.nbytes() - nbytes)
                self.shadows.fresh(storage, nbytes, shadow)


def poison(address: int, nbytes: int) -> None:
    """Fills memory with bytes that are NaN as floating-point numbers, and -1 as integers."""
    if address and nbytes:
        _memset(address, POISON, nbytes)


def _plain(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors of a nest of lists and tuples that have memory in this process."""
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided and value.device.type == "cpu" and value.numel():
            yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _plain(item)
