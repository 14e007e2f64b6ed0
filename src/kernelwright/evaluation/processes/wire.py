"""Packs tensors and plain Python values into channel messages and back, on the children's side (torch).

A value is a nest of lists, tuples, dicts, numbers, strings, None and tensors; anything else cannot cross.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelwright.evaluation.processes.channel import Frame
from kernelwright.evaluation.tensor_bytes import TensorBytes, View
from kernelwright.tasks import storages


class CannotPack(TypeError):
    """A value of a type that the channel does not carry."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def pack_tensor(tensor: torch.Tensor, data: bytes | None = None) -> TensorBytes:
    """Returns a tensor's shape, dtype and bytes in row-major order."""
    if data is None:
        flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return TensorBytes(data, dtype_name(tensor.dtype), tuple(tensor.shape))


def pack_tensors(tensors: Sequence[torch.Tensor]) -> list[TensorBytes]:
    """Returns tensors packed with their strides, their offsets, and the memory that they share."""
    packed: list[TensorBytes] = [TensorBytes(b"", "uint8", (0,))] * len(tensors)
    for part in storages.held(tensors):
        owner = part.numbers[0]
        if part.plain(tensors[owner]) or not tensors[owner].numel() or _lazy(tensors[n] for n in part.numbers):
            for n in part.numbers:
                packed[n] = pack_tensor(tensors[n])
            continue
        data = storages.bytes_of(tensors[owner].untyped_storage(), part).numpy().tobytes()
        for n in part.numbers:
            tensor = tensors[n]
            view = View(tuple(tensor.stride()), part.offset(tensor), None if n == owner else owner)
            packed[n] = TensorBytes(data, dtype_name(tensor.dtype), tuple(tensor.shape), view)
    return packed


def forms_of(tensors: Sequence[torch.Tensor]) -> list[dict[str, Any]]:
    """Returns the forms of tensors as JSON: dtype, shape, strides, offset in elements, the number of the first tensor
    in the same memory, that memory's number, and its bytes."""
    forms: list[dict[str, Any]] = [{}] * len(tensors)
    for number, part in enumerate(storages.held(tensors)):
        for n in part.numbers:
            tensor = tensors[n]
            forms[n] = {
                "dtype": dtype_name(tensor.dtype),
                "shape": list(tensor.shape),
                "strides": list(tensor.stride()),
                "offset": part.offset(tensor),
                "owner": part.numbers[0],
                "memory": number,
                "nbytes": part.stop - part.start if tensor.numel() else 0,
            }
    return forms


def bytes_to_read(given: Sequence[torch.Tensor], forms: Sequence[dict[str, Any]]) -> int:
    """Returns the bytes that inputs take, an expanded one's once, and without what lies between a slice's rows."""
    sizes: dict[int, int] = {}
    for tensor, form in zip(given, forms, strict=True):
        sizes[form["memory"]] = min(form["nbytes"], sizes.get(form["memory"], 0) + tensor.nbytes)
    return sum(sizes.values())


def _lazy(tensors: Iterable[torch.Tensor]) -> bool:
    return any(t.is_conj() or t.is_neg() for t in tensors)


def unpack_tensors(tensors: Sequence[TensorBytes]) -> list[torch.Tensor]:
    """Returns fresh tensors, laid out and sharing memory as those that were packed."""
    made: list[torch.Tensor] = []
    for tensor in tensors:
        view = tensor.view
        if view is None or 0 in tensor.shape:
            made.append(unpack_tensor(tensor))
            continue
        if view.shares is None:
            storage = torch.frombuffer(bytearray(tensor.data), dtype=torch.uint8).clone().untyped_storage()
        else:
            storage = made[view.shares].untyped_storage()
        whole = torch.empty(0, dtype=getattr(torch, tensor.dtype))
        made.append(whole.set_(storage, view.offset, tensor.shape, view.strides))  # type: ignore[call-overload]
    return made


def unpack_tensor(tensor: TensorBytes) -> torch.Tensor:
    """Returns a fresh tensor in memory of its own, in row-major order unless it is a view."""
    if tensor.view is not None and 0 not in tensor.shape:
        return unpack_tensors([replace(tensor, view=replace(tensor.view, shares=None))])[0]
    dtype = getattr(torch, tensor.dtype)
    if not len(tensor.data):
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(bytearray(tensor.data), dtype=dtype).reshape(tensor.shape).clone()


def pack_values(*values: Any) -> tuple[list[Any], tuple[TensorBytes, ...]]:
    """Returns JSON for the values' structure, and the tensors that it refers to by number."""
    tensors: list[torch.Tensor] = []

    def pack(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value.detach())
            return {"t": len(tensors) - 1}
        if value is None or isinstance(value, (bool, int, float, str)):
            return {"v": value}
        if isinstance(value, (list, tuple)):
            kind = "l" if isinstance(value, list) else "p"
            return {kind: [pack(v) for v in value]}
        if isinstance(value, dict):
            return {"d": [[str(k), pack(v)] for k, v in value.items()]}
        if isinstance(value, torch.dtype):
            return {"y": dtype_name(value)}
        raise CannotPack(f"a {type(value).__name__} cannot be handed to a candidate")

    nodes = [pack(v) for v in values]
    return nodes, tuple(pack_tensors(tensors))


def unpack_values(message: Frame) -> list[Any]:
    """Returns the values of a message whose header has them under `values`."""
    return unpacked(message.header["values"], unpack_tensors(message.tensors).__getitem__)


def unpacked(nodes: list[Any], tensor: Callable[[int], torch.Tensor]) -> list[Any]:
    """Returns the values of JSON that `pack_values` made; `tensor` gives the tensor of a number."""

    def unpack(node: dict[str, Any]) -> Any:
        ((kind, value),) = node.items()
        if kind == "t":
            return tensor(value)
        if kind == "l":
            return [unpack(v) for v in value]
        if kind == "p":
            return tuple(unpack(v) for v in value)
        if kind == "d":
            return {k: unpack(v) for k, v in value}
        if kind == "y":
            return getattr(torch, value)
        return value

    return [unpack(node) for node in nodes]


def flatten(value: Any) -> list[Any]:
    """Returns the leaves of a nest of lists, tuples and dicts, in order; drops None leaves.

    Subclasses of these types are read as the plain types, so that no method of a candidate's class runs.
    """
    kind = type(value)
    for plain, items in _NESTS.items():
        if issubclass(kind, plain):
            return [leaf for v in items(value) for leaf in flatten(v)]
    return [] if value is None else [value]


_NESTS: dict[type, Any] = {list: list.__iter__, tuple: tuple.__iter__, dict: dict.values}


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Returns the tensors of a nest, in order."""
    return [leaf for leaf in flatten(value) if issubclass(type(leaf), torch.Tensor)]


def replace_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Returns the same nest with its tensors, in order, replaced by others."""
    queue = iter(tensors)

    def swap(node: Any) -> Any:
        if isinstance(node, torch.Tensor):
            return next(queue)
        if isinstance(node, (list, tuple)):
            return type(node)(swap(v) for v in node)
        if isinstance(node, dict):
            return {k: swap(v) for k, v in node.items()}
        return node

    return swap(value)
