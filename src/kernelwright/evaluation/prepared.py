"""Copies of weights that a candidate's constructor made in another layout: they follow when the weights change.

Honest authors transpose or cast a weight once, in `__init__`. The judge gives a constructed model other weights than it
was made with, so such a copy would be stale through no fault of its own. Only copies are recognised, element for
element; what was computed from several weights is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

_MOST_DIMENSIONS = 5

Copies = list[tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]]
"""A copy, the weight it was made of, and the order of the weight's dimensions in it."""


def copies(model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> Copies:
    """The model's tensors of its own that hold a weight's values as they are now."""
    storages = {t.untyped_storage().data_ptr() for t in weights.values()}
    # Weights of one value, such as zeros, look like any fresh workspace.
    floats = [t for t in weights.values() if t.is_floating_point() and t.numel() > 1]
    varied = [t for t in floats if bool((t != t.flatten()[0]).any())]
    found: Copies = []
    for tensor in _own_tensors(model):
        if tensor.untyped_storage().data_ptr() in storages:
            continue  # a view follows by itself
        for weight in varied:
            order = _order(tensor, weight) if weight.numel() == tensor.numel() else None
            if order is not None:
                found.append((tensor, weight, order))
                break
    return found


def follow(found: Copies) -> None:
    """Writes the weights' present values into their copies."""
    for tensor, weight, order in found:
        tensor.copy_(weight.permute(order).reshape(tensor.shape))


def _own_tensors(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    for module in model.modules():
        for value in (*vars(module).values(), *module._buffers.values()):
            if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.is_floating_point():
                yield value.detach()


def _order(tensor: torch.Tensor, weight: torch.Tensor) -> tuple[int, ...] | None:
    if weight.dim() > _MOST_DIMENSIONS:
        return None
    for order in itertools.permutations(range(weight.dim())):
        laid_out = weight.permute(order).reshape(tensor.shape).to(tensor.device, tensor.dtype)
        if torch.equal(laid_out, tensor):
            return order
    return None
