"""Answers for handles as torch answers for CUDA tensors, and turns CUDA devices into device `meta`.

A function mode sees torch's Python functions and properties. It computes nothing and counts nothing:
`device_operators` sees every operator, whoever calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.evaluation.candidate import fake_torch
from kernelwright.evaluation.candidate.fake_cuda import LACKING, own_kinds
from kernelwright.evaluation.candidate.handles import HandleTable

CUDA = torch.device("cuda", 0)
META = torch.device("meta")
_HOST = torch.device("cpu")
_TO = torch.Tensor.to
_PARSE_TO = torch._C._nn._parse_to
_FROM_VALUES = (torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor)
"""Functions that make tensors of Python's values: made on the host first, and then uploaded."""


def is_cuda(value: object) -> bool:
    """Tells whether a value names a CUDA device."""
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.split(":")[0] == "cuda"


def _there(value: Any) -> Any:
    return META if is_cuda(value) else value


class DeviceFunctions(TorchFunctionMode):
    """Makes handles report `cuda:0`."""

    def __init__(self, handles: HandleTable, unsupported: list[str]) -> None:
        super().__init__()
        self.unsupported = unsupported
        device = torch.Tensor.device.__get__  # type: ignore[attr-defined]
        self._answers: dict[Any, Callable[[Any], Any]] = {
            torch.Tensor.is_cuda.__get__: lambda x: x.is_meta,  # type: ignore[attr-defined]
            torch.Tensor.is_meta.__get__: lambda x: False,  # type: ignore[attr-defined]
            device: lambda x: CUDA if x.is_meta else device(x),
            torch.Tensor.get_device: lambda x: 0 if x.is_meta else -1,
            torch.get_device: lambda x: 0 if x.is_meta else -1,
            torch.Tensor.data_ptr: lambda x: handles.address(x) if x.is_meta else torch.Tensor.data_ptr(x),
            torch.Tensor.cuda: lambda x: x if x.is_meta else x.to(META),
            torch.Tensor.pin_memory: lambda x: x,
            torch.Tensor.is_pinned: lambda _x: False,
        }

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, Exception) and (lacking := LACKING.search(str(error))):
            self.unsupported.append(f"torch._C.{lacking[1]}" if lacking[1] else f"torch: {error}"[:200])
        super().__exit__(kind, error, trace)

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch._C._is_torch_function_enabled() and own_kinds(types_):
            return NotImplemented
        kwargs = kwargs or {}
        answer = self._answers.get(func)
        if answer is not None:
            return answer(args[0])
        if func is torch.device:  # a name, not a place
            return func("cuda", *args) if args and type(args[0]) is int else func(*args, **kwargs)
        if func is _PARSE_TO:  # `Module.to` checks the type of device that this returns
            named = {k: CUDA if k == "device" and _named(v) else v for k, v in kwargs.items()}
            return _PARSE_TO(*[CUDA if _named(a) else a for a in args], **named)  # type: ignore[arg-type]
        if func is _TO and len(args) > 1 and type(args[1]) is int:
            args = (args[0], META, *args[2:])
        wanted = kwargs.get("device")
        if wanted is not None and _named(wanted):
            kwargs = dict(kwargs, device=META)
        kwargs = {k: v for k, v in kwargs.items() if k != "pin_memory"}
        if func in _FROM_VALUES:
            return _from_values(func, args, kwargs)
        return func(*(_there(a) for a in args), **kwargs)


def _named(device: object) -> bool:
    """Tells whether a device argument means the GPU: by its name, or by its number."""
    return is_cuda(device) or (isinstance(device, int) and not isinstance(device, bool))


def _from_values(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    wanted = kwargs.get("device")
    source = args[0] if args else None
    if isinstance(source, torch.Tensor) and source.is_meta and func is not torch.tensor:
        return func(*args, **kwargs)
    if isinstance(source, torch.Tensor) and source.is_meta:
        return source.detach().clone() if wanted is None else source.detach().to(wanted).clone()
    if wanted is None and fake_torch.default_device() in ("cuda", "meta"):
        wanted = META
    if wanted is None or torch.device(wanted).type != "meta":
        return func(*args, **kwargs)
    with torch.device("cpu"):
        made = func(*args, **{k: v for k, v in kwargs.items() if k not in ("device", "requires_grad")})
    moved = made.to(META)
    return moved.requires_grad_(True) if kwargs.get("requires_grad") else moved
