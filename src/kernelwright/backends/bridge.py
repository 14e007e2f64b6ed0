"""Executes tensor operators that compiled host code calls, by torch in the runner.

Compiled code sends an operator's name and its arguments in the order of the C++ signature, which is the order of the
ATen schema. The bridge chooses the overload by the argument types. Factories, casts and indexing differ between C++
and the schema and have their own functions. Operators that cannot be forwarded are recorded by name and raise; nothing
is approximated.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from kernelwright.backends import values
from kernelwright.backends.host_memory import HOST, shares
from kernelwright.backends.libraries import cublas, cudnn, library_memory
from kernelwright.backends.moves import is_move
from kernelwright.backends.values import DeviceValue, Handles, Options
from kernelwright.errors import DeviceError

_LIBRARIES = {"cublas": cublas.run, "cudnn": cudnn.run}
"""The functions that execute the routines of each bridged library."""
_TITLES = {"cublas": "cuBLAS", "cudnn": "cuDNN"}


class Unforwardable(RuntimeError):
    """Raised for an operator or argument types that the bridge does not support; `name` tells which."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the host API {name} is not supported here")
        self.name = name


class Bridge:
    """Runs operators on the tensors of `handles`; calls `record(name, numel)` for each operator that computes."""

    def __init__(self, handles: Handles, record: Callable[[str, int], None]) -> None:
        self._handles = handles
        self._record = record
        self._overloads: dict[str, list[Any]] = {}
        self.inside: Callable[[int, int], bool] = lambda address, nbytes: False
        """Tells whether a range of addresses is device memory, where this process holds the device's memory."""
        self.standing_for: Callable[[str], AbstractContextManager[Any]] = lambda _routine: contextlib.nullcontext()
        """A context in which torch operators are recorded as a library's routine, by name, and not as themselves."""

    def run(self, name: str, args: Sequence[Any], cuda: bool) -> tuple[Any, bool]:
        """Returns the operator's result and whether its tensors count as CUDA tensors; `cuda`: an input is one.

        Raises `Unforwardable`, or what torch raises.
        """
        if name.startswith("new:"):
            return _factory(name[4:], args)
        if name.startswith("like:"):
            return _like(name[5:], args, cuda)
        if name == "kw:unsupported":
            raise Unforwardable(args[0])
        library, colon, routine = name.partition(":")
        if colon and library in _LIBRARIES:
            with self.standing_for(routine):
                result, made = _LIBRARIES[library](routine, args, self._memory(_TITLES[library]))
            self._record(routine, made)
            return result, cuda
        schema, name = name, name.partition(".")[0]
        special = _SPECIAL.get(name)
        if special is not None:
            result = special(args)
            if name == "to":
                source, cuda = cuda and args[0] not in HOST, _target_device(args, cuda)
                if source != cuda and not values.real_cuda and values.handle_runtime is None:
                    result = result.clone() if shares(result, args[0]) else result
                    if cuda:  # the clone inherits the host mark of its source, but moves to the device
                        HOST.discard(result)
        else:
            result = self._schema_call(schema, args)
        if not is_move(name, args):
            tensors = [a for a in (*args, result) if isinstance(a, torch.Tensor)]
            self._record(name, max((t.numel() for t in tensors), default=0))
        return result, cuda

    def _memory(self, library: str) -> library_memory.Memory:
        """Returns the device's memory, as the running call sees it."""
        if values.handle_runtime is not None:
            return library_memory.handles(values.handle_runtime, library)
        return library_memory.in_process(self.inside, library)

    def _schema_call(self, name: str, args: Sequence[Any]) -> Any:
        """Calls an operator by full name (`sum.dim_IntList`), or by base name with the overload that fits `args`."""
        base, dot, overload = name.partition(".")
        if base not in self._overloads:
            self._overloads[base] = _load(base)
        known = self._overloads[base]
        exact = [o for o in known if dot and o._schema.overload_name == overload]
        for candidate in [*exact, *known]:
            count = sum(a.is_out for a in candidate._schema.arguments)
            bound = _bind(candidate._schema, args[count:], args[:count])
            if bound is not None:
                return candidate(*bound[0], **bound[1])
        kinds = ", ".join(type(a).__name__ for a in args)
        raise Unforwardable(f"torch::{base}({kinds})")


def _load(name: str) -> list[Any]:
    try:
        packet = getattr(torch.ops.aten, name)
        return [getattr(packet, overload) for overload in packet.overloads()]
    except AttributeError:
        raise Unforwardable(f"torch::{name}") from None


def _bind(schema: Any, args: Sequence[Any], out: Sequence[Any]) -> tuple[list[Any], dict[str, Any]] | None:
    """Splits arguments in schema order into positional and keyword arguments; None if they do not fit."""
    if not all(isinstance(tensor, torch.Tensor) for tensor in out):
        return None
    positional: list[Any] = []
    named: dict[str, Any] = {}
    rest, outs = list(args), list(out)
    for argument in schema.arguments:
        if argument.is_out:
            named[argument.name] = outs.pop(0)
        elif rest and isinstance(rest[0], Options) and argument.name == "dtype":
            named["dtype"] = rest.pop(0).dtype
        elif rest:
            value = rest.pop(0)
            kind = str(argument.real_type)
            if not _fits(value, kind):
                return None
            value = _place(value.cuda) if isinstance(value, DeviceValue) else value
            if isinstance(value, int) and "List[" in kind:
                value = [value]  # C++ turns one number into an IntArrayRef
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                positional.append(value)
        elif not argument.has_default_value() and not argument.kwarg_only:
            return None
    return None if rest else (positional, named)


def _fits(value: Any, kind: str) -> bool:
    if kind.startswith("Optional["):
        return value is None or _fits(value, kind[9:-1])
    if kind == "Tensor":
        return isinstance(value, torch.Tensor)
    if kind == "number":
        return isinstance(value, (int, float))
    if kind in ("int", "SymInt"):
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    if kind == "ScalarType":
        return isinstance(value, torch.dtype)
    if kind == "MemoryFormat":
        return isinstance(value, torch.memory_format)
    if kind == "Device":
        return isinstance(value, DeviceValue)
    if kind.startswith("List["):
        items = value if isinstance(value, list) else [value]
        is_list = isinstance(value, list) or (isinstance(value, int) and kind in ("List[int]", "List[SymInt]"))
        return is_list and all(_fits(item, kind[5:-1]) for item in items)
    return False


def _place(cuda: bool) -> str:
    """Returns the torch device for a CUDA or host tensor in this process."""
    if not cuda:
        return "cpu"
    return "cuda" if values.real_cuda else "meta" if values.handle_runtime is not None else "cpu"


_FACTORIES: dict[str, Callable[..., torch.Tensor]] = {
    "zeros": torch.zeros,
    "ones": torch.ones,
    "full": torch.full,
    "rand": torch.rand,
    "randn": torch.randn,
    "arange": torch.arange,
    "linspace": torch.linspace,
    "logspace": torch.logspace,
    "eye": torch.eye,
    "randperm": torch.randperm,
    "randint": torch.randint,
    "scalar_tensor": torch.scalar_tensor,
    "tril_indices": torch.tril_indices,
    "triu_indices": torch.triu_indices,
}
_NO_GRAD_FACTORIES = frozenset(("tril_indices", "triu_indices"))


def _factory(name: str, args: Sequence[Any]) -> tuple[torch.Tensor, bool]:
    options = args[-1] if args and isinstance(args[-1], Options) else Options(None, False, False, False)
    plain = [a for a in args if not isinstance(a, Options)]
    fields: dict[str, Any] = {"device": _place(options.cuda)}
    if options.dtype is not None:
        fields["dtype"] = options.dtype
    if name == "from_blob":
        if options.cuda and values.real_cuda:
            raise Unforwardable("torch::from_blob of device memory")
        blob = _from_blob if values.handle_runtime is None else _blob_of_either
        return blob(plain, options), options.cuda
    if name == "empty":
        form: dict[str, Any] = {"memory_format": options.format} if options.format is not None else {}
        made = torch.empty(plain[0], **fields, **form)
    elif name == "empty_strided":
        made = torch.empty_strided(plain[0], plain[1], **fields)
    elif name in ("tensor", "tensor_bool"):  # values of the host's
        data = [bool(v) for v in plain[0]] if name == "tensor_bool" else plain[0]
        made = torch.tensor(data, dtype=options.dtype).to(fields["device"])
    elif name in _FACTORIES:
        made = _FACTORIES[name](*plain, **fields)
    else:
        raise Unforwardable(f"torch::{name}")
    if options.requires_grad and name not in _NO_GRAD_FACTORIES:
        made.requires_grad_(True)
    return made, options.cuda


def _from_blob(plain: Sequence[Any], options: Options) -> torch.Tensor:
    """Wraps memory owned by compiled code in a tensor; `plain`: pointer, sizes, strides or None."""
    address, sizes, strides = plain
    dtype = options.dtype or torch.float32
    strides = strides or _contiguous_strides(sizes)
    count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) if all(sizes) else 0
    if count == 0:
        return torch.empty(sizes, dtype=dtype)
    buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(buffer, dtype=dtype, count=count).as_strided(sizes, strides)


def _blob_of_either(plain: Sequence[Any], options: Options) -> torch.Tensor:
    """Wraps memory of the host, or device memory that compiled code knows by its address, in a tensor."""
    address, sizes, strides = plain
    on_device = values.handle_runtime.is_device(address)
    if on_device and not options.cuda:
        raise DeviceError("CUDA error: a CPU tensor over device memory (torch::from_blob without a CUDA device)")
    if not on_device and options.cuda and all(sizes):
        raise RuntimeError("The specified pointer resides on host memory and is not registered with any CUDA device.")
    if not options.cuda:
        return _from_blob(plain, options)
    dtype, strides = options.dtype or torch.float32, strides or _contiguous_strides(sizes)
    if not all(sizes):
        return torch.empty(sizes, dtype=dtype, device="meta")
    made: torch.Tensor = values.handle_runtime.tensor_at(address, dtype, list(sizes), list(strides))
    return made


def _contiguous_strides(sizes: Sequence[int]) -> list[int]:
    strides = [1] * len(sizes)
    for k in range(len(sizes) - 2, -1, -1):
        strides[k] = strides[k + 1] * sizes[k + 1]
    return strides


def _like(name: str, args: Sequence[Any], cuda: bool) -> tuple[torch.Tensor, bool]:
    """Runs `*_like` and `tensor.new_*`: the model tensor comes first, options anywhere after it."""
    model, plain = args[0], [a for a in args[1:] if not isinstance(a, (Options, torch.memory_format)) and a is not None]
    options = next((a for a in args if isinstance(a, Options)), None)
    formats = [a for a in args if isinstance(a, torch.memory_format)]
    if options and options.format is not None:
        formats.append(options.format)
    fields: dict[str, Any] = {"dtype": options.dtype} if options and options.dtype is not None else {}
    if options and options.device_given:
        fields["device"] = _place(options.cuda)
    if formats and name.endswith("_like"):
        fields["memory_format"] = formats[0]
    make = getattr(model, name) if name.startswith("new_") else lambda *a, **k: getattr(torch, name)(model, *a, **k)
    made = make(*plain, **fields)
    if options and options.requires_grad:
        made.requires_grad_(True)
    return made, options.cuda if options and options.device_given else cuda


def _to(args: Sequence[Any]) -> torch.Tensor:
    """Runs `tensor.to(...)` in all C++ forms: dtype, device, options, another tensor, flags, memory format."""
    tensor, dtype, copy, format_ = args[0], None, False, None
    where: dict[str, Any] = {}
    if values.real_cuda or values.handle_runtime is not None:
        where = {"device": _place(_target_device(args, values.on_cuda(tensor, True)))}
    flags = [a for a in args[1:] if isinstance(a, bool)]
    for a in args[1:]:
        if isinstance(a, torch.dtype):
            dtype = a
        elif isinstance(a, Options):
            dtype = a.dtype or dtype
        elif isinstance(a, torch.Tensor):
            dtype = a.dtype
        elif isinstance(a, torch.memory_format):
            format_ = a
    if len(flags) > 1:
        copy = flags[1]
    if format_ is None:
        return tensor.to(**where, dtype=dtype or tensor.dtype, copy=copy)
    return tensor.to(**where, dtype=dtype or tensor.dtype, copy=copy, memory_format=format_)


def _target_device(args: Sequence[Any], cuda: bool) -> bool:
    for a in args[1:]:
        if isinstance(a, DeviceValue):
            return a.cuda
        if isinstance(a, Options) and a.device_given:
            return a.cuda
        if isinstance(a, torch.Tensor):
            return values.on_cuda(a, cuda)
    return cuda


def _contiguous(args: Sequence[Any]) -> torch.Tensor:
    return args[0].contiguous(memory_format=args[1]) if len(args) > 1 else args[0].contiguous()


def _index(args: Sequence[Any]) -> torch.Tensor:
    return args[0][tuple(args[1])]


def _index_put(args: Sequence[Any]) -> torch.Tensor:
    args[0][tuple(args[1])] = args[2]
    return args[0]


def _where(args: Sequence[Any]) -> Any:
    return torch.where(*args)


def _size_of_view(args: Sequence[Any]) -> torch.Tensor:
    """Runs `view(sizes)` or `view(dtype)`."""
    return args[0].view(args[1])


def _set_grad_enabled(args: Sequence[Any]) -> bool:
    torch.set_grad_enabled(args[0])
    return True


_SPECIAL: dict[str, Callable[[Sequence[Any]], Any]] = {
    "to": _to,
    "contiguous": _contiguous,
    "index": _index,
    "index_put": _index_put,
    "index_put_": _index_put,
    "where": _where,
    "view": _size_of_view,
    "item": lambda args: args[0].item(),
    "requires_grad": lambda args: args[0].requires_grad_(args[1]),
    "is_alias_of": lambda args: args[0].untyped_storage()._cdata == args[1].untyped_storage()._cdata,
    "manual_seed": lambda args: torch.manual_seed(args[0]) is not None,
    "grad_enabled": lambda args: torch.is_grad_enabled(),
    "set_grad_enabled": _set_grad_enabled,
    "promote_types": lambda args: torch.promote_types(args[0], args[1]),
}
