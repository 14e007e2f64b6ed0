"""Records device values that Python code reads: by numpy, lists, single items, dlpack, pickles or printing.

Some reads are honest, of lengths and flags for instance. The values read in one call are added up, for `rules` to
judge.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.backends.host_memory import HOST
from kernelwright.evaluation.candidate.fake_cuda import OperatorLog, own_kinds

_READS: dict[Any, str] = {
    torch.Tensor.numpy: "numpy",
    torch.Tensor.__array__: "numpy",
    torch.Tensor.tolist: "tolist",
    torch.Tensor.__dlpack__: "dlpack",
    torch.Tensor.__repr__: "repr",
}
_BY_PYTHON = (torch.Tensor.apply_, torch.Tensor.map_, torch.Tensor.map2_)  # type: ignore[attr-defined]
"""Methods that call a Python function for each element, which no operator shows."""


class HostReads(TorchFunctionMode):
    """Records in an operator log when Python or numpy receives the values of a tensor."""

    def __init__(self, log: OperatorLog) -> None:
        super().__init__()
        self.log = log

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch._C._is_torch_function_enabled() and own_kinds(types_):
            return NotImplemented
        if func in _READS:
            _note(self.log, _READS[func], args[0])
            if self.log.memory is not None and func is not torch.Tensor.__repr__:
                self.log.memory.exposed(args[0])
        if func in _BY_PYTHON:
            if args[0] not in HOST:
                raise TypeError(f"{func.__name__} is only implemented on CPU tensors")
            self.log.read(func.__name__, args[0].numel(), args[0])
        return func(*args, **(kwargs or {}))


def _note(log: OperatorLog, name: str, value: Any) -> None:
    if isinstance(value, torch.UntypedStorage):
        log.read(name, value.nbytes() // 4)
    if not isinstance(value, torch.Tensor):
        return
    if name == "dlpack" and _on_device(value):
        return  # stays there
    options = torch._tensor_str.PRINT_OPTS
    numel = value.numel()
    if name == "repr" and numel > options.threshold:  # large tensors are shown in part: both ends of each dimension
        numel = math.prod(min(size, 2 * options.edgeitems) for size in value.shape)
    log.read(name, numel, value)


def _on_device(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor really is in a device's memory, whatever it is made to report."""
    with torch._C.DisableTorchFunction():
        return tensor.device.type != "cpu"


def install(log: OperatorLog) -> None:
    """Watches the reads that no mode sees. Called once, in a process that never goes back."""

    def watch(owner: Any, method: str, name: str) -> None:
        plain = getattr(owner, method, None)
        if plain is not None:
            setattr(owner, method, _noting(log, name, plain))

    for kind in (torch.Tensor, torch.nn.Parameter):
        watch(kind, "__reduce_ex__", "pickle")
    for method in ("__reduce__", "_write_file"):
        watch(torch.UntypedStorage, method, "pickle")
    for method in ("_save", "_legacy_save"):
        watch(torch.serialization, method, "pickle")
    for owner in (torch, torch.utils.dlpack, torch._C):
        for method in ("to_dlpack", "_to_dlpack", "_to_dlpack_versioned"):
            watch(owner, method, "dlpack")
    for module in (torch, torch.utils.dlpack):
        for method in ("frombuffer", "from_dlpack"):
            if plain := getattr(module, method, None):
                setattr(module, method, _importing(log, plain))


def _importing(log: OperatorLog, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def imported(*args: Any, **kwargs: Any) -> Any:
        tensor = plain(*args, **kwargs)
        if not _on_device(tensor):  # otherwise a library for GPUs has made it there
            log.imported(tensor)
        return tensor

    return imported


def _noting(log: OperatorLog, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def noted(value: Any, *args: Any, **kwargs: Any) -> Any:
        if name != "pickle" or plain.__name__ not in ("_save", "_legacy_save") or not isinstance(value, torch.Tensor):
            _note(log, name, value)  # a tensor that is saved is pickled, and so is recorded anyway
        return plain(value, *args, **kwargs)

    return noted
