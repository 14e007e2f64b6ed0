"""Turns torch's operators on handles into records. Operators on host tensors run here, as on any host.

Views and allocations are this process's own affair. Operators that write or make values on the device become one record
each, with the places of their arguments and results. Whether an operator may run is the device process's decision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.evaluation.candidate import fake_torch
from kernelwright.evaluation.candidate.fake_cuda import own_kinds, tensors_in
from kernelwright.evaluation.candidate.handles import HandleTable, is_handle
from kernelwright.evaluation.candidate.recording_runtime import RecordingRuntime
from kernelwright.evaluation.program.forms import encode

_ALLOCATES = frozenset(
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted empty_quantized".split()
)
_LOOKS = frozenset(
    """detach alias is_same_size set_ lift lift_fresh sym_size sym_stride sym_numel sym_storage_offset dim size stride
    _has_compatible_shallow_copy_type record_stream resize_ resize_as_ _reshape_alias _unsafe_view""".split()
)
"""Operators on the form of tensors alone."""
_COPIES = ("copy_", "_copy_from", "copy")
_MIXES = frozenset("copy_ index index_put index_put_ _index_put_impl_ _unsafe_index".split())
"""Operators that take tensors of the host beside tensors of the device."""


class DeviceOperators(TorchDispatchMode):
    """Records each operator that touches values on the device."""

    def __init__(self, handles: HandleTable, runtime: RecordingRuntime) -> None:
        super().__init__()
        self._handles = handles
        self._runtime = runtime
        self._libraries = fake_torch.libraries()
        self._watching: list[Any] = []
        self.library = ""
        """The routine of a library that operators stand for at the moment."""

    def __enter__(self) -> Any:
        self._watching = self._watching or [
            mode for mode in _get_current_function_mode_stack() if not isinstance(mode, fake_torch.DeviceContext)
        ]
        return super().__enter__()

    @contextlib.contextmanager
    def standing_for(self, library: str) -> Iterator[None]:
        """Records operators as the work of a library's routine."""
        before, self.library = self.library, library
        try:
            yield
        finally:
            self.library = before

    def __torch_dispatch__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        if own_kinds(types_):
            return NotImplemented
        kwargs = kwargs or {}
        if func.namespace not in self._libraries:
            return self._inside(func, args, kwargs)
        if _is_composite(func):  # inside of a candidate's own operator, torch does not take them apart
            with self:
                return func.decompose(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # the answers here are torch's own, not a GPU's
            given = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
            if not any(t.is_meta for t in given) and not _to_device(kwargs):
                return func(*args, **kwargs)
            return self._recorded(func, args, kwargs, given)

    def _recorded(self, func: Any, args: Any, kwargs: dict[str, Any], given: list[torch.Tensor]) -> Any:
        name = func.overloadpacket.__name__
        if (func.is_view or name in _LOOKS) and all(t.is_meta for t in given):
            return func(*args, **kwargs)
        if name in _ALLOCATES:
            made = func(*args, **{k: v for k, v in kwargs.items() if k != "pin_memory"})
            self._handles.storage_address(made)
            return made
        if name == "_to_copy" and _device_of(kwargs) == "cpu" and args[0].is_meta:
            return self._fetched(args[0], kwargs)
        if name in _COPIES and not args[0].is_meta:
            return args[0].copy_(self._runtime.fetch(args[1]))
        if func.namespace != "aten":
            raise self._runtime.missing(f"torch.ops.{func.namespace}.{name} on the device")
        if not _returns_tensors(func):
            return self._runtime.value(_full_name(func), self.library, self._arguments(args, kwargs))
        return self._executed(func, args, kwargs, given)

    def _executed(self, func: Any, args: Any, kwargs: dict[str, Any], given: list[torch.Tensor]) -> Any:
        """Runs an operator on forms only, and records it.

        Raises RuntimeError, as torch does on a GPU, for one that would write values of the device into host memory.
        """
        if any(isinstance(t, torch.Tensor) and not t.is_meta for t in _written(func, args)):
            raise RuntimeError("Expected all tensors to be on the same device, but found at least two, cuda:0 and cpu!")
        arguments = self._arguments(args, kwargs)
        plain = {k: None if k == "generator" else v for k, v in kwargs.items() if k != "pin_memory"}
        given_forms = _forms(args) if func.overloadpacket.__name__ in _MIXES else args
        try:
            made = func(*given_forms, **plain)
        except NotImplementedError:  # the shape of the result depends on values
            return self._shaped(func, arguments)
        storages = {_storage(t) for t in given if t.is_meta}
        results = [None if _storage(t) in storages else self._handles.place(t) for t in tensors_in(made)]
        self._runtime.operator(_full_name(func), self.library, arguments, results)
        return made

    def _shaped(self, func: Any, arguments: tuple[Any, list[bytes]]) -> Any:
        places = self._runtime.shaped(_full_name(func), self.library, arguments)
        made = [self._handles.bound(place) for place in places]
        return made[0] if len(func._schema.returns) == 1 and len(made) == 1 else tuple(made)

    def _fetched(self, tensor: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
        dtype = kwargs.get("dtype")
        made = self._runtime.fetch(tensor)
        return made if dtype is None or made.dtype == dtype else made.to(dtype)

    def _arguments(self, args: Any, kwargs: dict[str, Any]) -> tuple[Any, list[bytes]]:
        parts: list[bytes] = []
        address = self._handles.storage_address
        positional = [encode(a, address, parts) for a in args]
        named = {k: encode(v, address, parts) for k, v in kwargs.items() if k not in ("pin_memory", "generator")}
        if isinstance(generator := kwargs.get("generator"), torch._C.Generator):
            named["generator"] = [id(generator), generator.initial_seed()]
        return [positional, named], parts

    def _inside(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operator that the candidate registered, so that the operators it calls are recorded too."""
        key = "CUDA" if any(is_handle(t) for t in tensors_in([*args, *kwargs.values()])) else "CPU"
        with self, contextlib.ExitStack() as within:
            active = _get_current_function_mode_stack()
            for mode in self._watching:  # modes through which this call came do not see what it calls
                if mode not in active:
                    within.enter_context(mode)
            return func.redispatch(torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key)), *args, **kwargs)


@cache
def _is_composite(func: Any) -> bool:
    """Tells whether an operator is defined by others."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def _written(func: Any, args: Any) -> list[Any]:
    """Returns the positional arguments that an operator writes in place."""
    pairs = zip(func._schema.arguments, args, strict=False)
    return [value for a, value in pairs if a.alias_info is not None and a.alias_info.is_write]


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _device_of(kwargs: dict[str, Any]) -> str:
    device = kwargs.get("device")
    return torch.device(device).type if device is not None else ""


def _to_device(kwargs: dict[str, Any]) -> bool:
    return _device_of(kwargs) == "meta"


def _full_name(func: Any) -> str:
    return f"{func.overloadpacket.__name__}.{func._overloadname}"


def _returns_tensors(func: Any) -> bool:
    returns = func._schema.returns
    return not returns or any("Tensor" in str(r.type) for r in returns)


def _forms(value: Any) -> Any:
    """Returns an argument with host tensors as forms."""
    if isinstance(value, torch.Tensor):
        return value if value.is_meta else value.to("meta")
    if isinstance(value, (list, tuple)):
        return type(value)(_forms(v) for v in value) if type(value) in (list, tuple) else value
    return value
