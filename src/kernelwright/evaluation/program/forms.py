"""Encodes the arguments of torch operators as JSON, with tensors as places in device memory, and decodes them.

A place is `[address, dtype, sizes, strides, offset, bits]`: the address of the storage, the offset in elements, and
`bits` 1 for a lazily conjugated view, 2 for a negated one. Host tensors travel as bytes beside the JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelwright.evaluation.processes.wire import dtype_name

Place = list[Any]
_FORMATS = {
    "contiguous": torch.contiguous_format,
    "preserve": torch.preserve_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}
_FORMAT_NAMES = {value: name for name, value in _FORMATS.items()}
MAX_DEPTH = 8


class Unencodable(TypeError):
    """An argument of a type that no record carries."""


def place(tensor: torch.Tensor, address: int) -> Place:
    """Returns a device tensor's place; `address` is that of its storage."""
    bits = int(tensor.is_conj()) + 2 * int(tensor.is_neg())
    return [
        address,
        dtype_name(tensor.dtype),
        list(tensor.shape),
        list(tensor.stride()),
        int(tensor.storage_offset()),
        bits,
    ]


def of_bytes(address: int, nbytes: int) -> Place:
    """Returns the place of a range of bytes."""
    return [address, "uint8", [nbytes], [1], 0, 0]


def once(where: Place) -> Place:
    """Returns a place without the repeats of an expanded view: its axes of stride 0 have size 1."""
    address, dtype, sizes, strides, offset, bits = where
    apart = [min(n, 1) if s == 0 else n for n, s in zip(sizes, strides, strict=True)]
    return [address, dtype, apart, strides, offset, bits]


def encode(value: Any, address: Callable[[torch.Tensor], int], parts: list[bytes]) -> Any:
    """Returns JSON for one argument. `address` gives a device tensor's storage address; the bytes of host tensors are
    added to `parts`. Raises `Unencodable`."""
    if isinstance(value, torch.Tensor):
        if value.is_meta:
            return {"t": place(value, address(value))}
        return _host(value, parts)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [encode(v, address, parts) for v in value]
    if isinstance(value, torch.dtype):
        return {"y": dtype_name(value)}
    if isinstance(value, torch.device):
        return {"v": 0}
    if isinstance(value, torch.memory_format):
        return {"m": _FORMAT_NAMES[value]}
    if isinstance(value, torch.layout):
        return {"l": str(value).removeprefix("torch.")}
    if isinstance(value, complex):
        return {"c": [value.real, value.imag]}
    if isinstance(value, torch._C.Generator):
        return None
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return encode(value.node.maybe_as_int(), address, parts)
    raise Unencodable(f"a {type(value).__name__} as an argument of an operator on the device")


def _host(value: torch.Tensor, parts: list[bytes]) -> Any:
    if value.layout is not torch.strided:
        raise Unencodable(f"a tensor of layout {value.layout} as an argument of an operator on the device")
    flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    parts.append(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return {"h": [len(parts) - 1, dtype_name(value.dtype), list(value.shape)]}


def decode(
    value: Any,
    tensor: Callable[[Place], torch.Tensor],
    host: Callable[[list[Any]], torch.Tensor],
    device: str = "cpu",
) -> Any:
    """Returns the argument that JSON stands for; `tensor` makes a tensor of a place, `host` one of carried bytes. All
    devices are `device`. Raises ValueError, TypeError, KeyError or AttributeError for anything else."""
    return _decoded(value, tensor, host, device, MAX_DEPTH)


def _decoded(
    value: Any,
    tensor: Callable[..., torch.Tensor],
    host: Callable[..., torch.Tensor],
    device: str,
    depth: int,
) -> Any:
    if isinstance(value, list):
        if not depth:
            raise ValueError("arguments are nested too deeply")
        return [_decoded(v, tensor, host, device, depth - 1) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "t":
        return tensor(inner)
    if kind == "h":
        return host(inner)
    if kind == "y":
        return dtype_of(inner)
    if kind == "v":
        return torch.device(device)
    if kind == "m":
        return _FORMATS[inner]
    if kind == "l":
        return torch.strided
    if kind == "c":
        return complex(*inner)
    raise ValueError(f"an argument of kind {kind!r}")


def dtype_of(name: str) -> torch.dtype:
    """Returns the dtype of a name. Raises ValueError."""
    found = getattr(torch, str(name), None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"no dtype {name!r}")
    return found
