"""Updates copies of weights that a candidate made in another layout when the weights change.

Honest authors transpose, cast, pad or join weights once. The judge gives a constructed model other weights than it was
made with, so the copies would be stale through no fault of the author. Only copies are recognised, element for element;
values computed from weights are not. For a constructor's tensors, lists and the like are searched as well. A call's
tensors in lists and the like are a cache, which its author has to keep fresh.
"""

from __future__ import annotations

import dataclasses
import itertools
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

_MOST_DIMENSIONS = 5
_DEPTH, _MOST = 4, 4096
"""Bounds on the depth in lists and the like at which tensors are searched, and on their number."""
_OF_TORCH = {"_parameters", "_buffers", "_modules"}

Copies = list[tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]]
"""Triples of a copy or a part of one, the weight it was made of, and the order of the weight's dimensions in it."""


def copies(model: torch.nn.Module, weights: dict[str, torch.Tensor], packed: bool = True) -> Copies:
    """Returns the model's own tensors that hold weights' present values, including those `packed` in lists."""
    return copies_among(list(own_tensors(model, packed)), list(weights.values()))


def own_tensors(model: torch.nn.Module, packed: bool) -> Iterator[torch.Tensor]:
    """Yields the floating-point tensors that a model holds beside its parameters, including those `packed` in lists."""
    return (tensor.detach() for tensor in held_tensors(model, packed))


def held_tensors(model: torch.nn.Module, packed: bool) -> Iterator[torch.Tensor]:
    """Yields the objects of the same tensors."""
    return itertools.islice(_held_by(model, _DEPTH if packed else 0), _MOST)


def copies_among(own: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> Copies:
    """Returns those of the `own` tensors that hold weights' present values."""
    storages = {t.untyped_storage().data_ptr() for t in weights}
    floats = [t for t in weights if t.is_floating_point() and t.numel() > 1]
    # Weights of one value, such as zeros, look like any fresh workspace.
    varied = [t for t in floats if bool((t != t.flatten()[0]).any())]
    found: Copies = []
    for tensor in own:
        if tensor.untyped_storage().data_ptr() not in storages:  # a view follows by itself
            found += _copy(tensor, varied) or _joined(tensor, floats, varied) or _padded(tensor, varied)
    return found


def follow(found: Copies) -> None:
    """Writes the weights' present values into their copies."""
    for tensor, weight, order in found:
        tensor.copy_(weight.permute(order).reshape(tensor.shape))


def _held_by(model: torch.nn.Module, depth: int) -> Iterator[torch.Tensor]:
    for module in model.modules():
        own = [value for name, value in vars(module).items() if name not in _OF_TORCH]
        for value in _held([*own, *module._buffers.values()], depth):
            if value.layout is torch.strided and value.is_floating_point():
                yield value


def _held(values: Iterable[Any], depth: int) -> Iterator[torch.Tensor]:
    """Yields the tensors among values, and in lists, dicts and plain records of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, torch.nn.Module) or not depth:
            continue
        elif isinstance(value, (list, tuple, set)):
            yield from _held(list(value), depth - 1)
        elif isinstance(value, dict):
            yield from _held(list(value.values()), depth - 1)
        elif isinstance(value, types.SimpleNamespace) or (
            dataclasses.is_dataclass(value) and hasattr(value, "__dict__")
        ):
            yield from _held(list(vars(value).values()), depth - 1)


def _copy(tensor: torch.Tensor, weights: Sequence[torch.Tensor]) -> Copies:
    """Finds a whole weight with its dimensions in any order, reshaped."""
    for weight in weights:
        if weight.numel() == tensor.numel() and weight.dim() <= _MOST_DIMENSIONS:
            for order in itertools.permutations(range(weight.dim())):
                laid_out = weight.permute(order).reshape(tensor.shape).to(tensor.device, tensor.dtype)
                if torch.equal(laid_out, tensor):
                    return [(tensor, weight, order)]
    return []


def _orders(weight: torch.Tensor) -> list[tuple[int, ...]]:
    """Returns the weight's own order of dimensions, and the transposed one for a matrix."""
    return [(0, 1), (1, 0)] if weight.dim() == 2 else [tuple(range(weight.dim()))]


def _equal(part: torch.Tensor, weight: torch.Tensor) -> bool:
    return part.shape == weight.shape and torch.equal(part, weight.to(part.device, part.dtype))


def _joined(tensor: torch.Tensor, weights: Sequence[torch.Tensor], varied: Sequence[torch.Tensor]) -> Copies:
    """Finds whole weights joined along a dimension (`cat`, `stack`), each once, not all of them constant."""
    for dim, turned in itertools.product(range(tensor.dim()), (0, 1)):
        found: Copies = []
        unused, at = list(weights), 0
        while at < tensor.shape[dim]:
            part = _part(tensor, dim, at, unused, turned)
            if part is None:
                break
            found.append(part)
            unused = [w for w in unused if w is not part[1]]
            at += 1 if part[0].dim() < tensor.dim() else part[0].shape[dim]
        if at == tensor.shape[dim] and len(found) > 1 and any(w is v for _, w, _ in found for v in varied):
            return found
    return []


def _part(
    tensor: torch.Tensor, dim: int, at: int, weights: Sequence[torch.Tensor], turned: int
) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...]] | None:
    """Returns the weight that begins at a place of a dimension."""
    for weight in weights:
        order = _orders(weight)[turned % len(_orders(weight))]
        laid_out = weight.permute(order)
        if weight.dim() == tensor.dim() and at + laid_out.shape[dim] <= tensor.shape[dim]:
            part = tensor.narrow(dim, at, laid_out.shape[dim])
        elif weight.dim() + 1 == tensor.dim():
            part = tensor.select(dim, at)
        else:
            continue
        if _equal(part, laid_out):
            return part, weight, order
    return None


def _padded(tensor: torch.Tensor, weights: Sequence[torch.Tensor]) -> Copies:
    """Finds a weight in the first corner, with zeros around it."""
    for weight in weights:
        for order in _orders(weight) if weight.dim() == tensor.dim() else []:
            laid_out = weight.permute(order)
            if any(small > large for small, large in zip(laid_out.shape, tensor.shape, strict=True)):
                continue
            corner = tensor[tuple(slice(size) for size in laid_out.shape)]
            if _equal(corner, laid_out) and int(tensor.count_nonzero()) == int(corner.count_nonzero()):
                return [(corner, weight, order)]
    return []
