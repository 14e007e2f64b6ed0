"""Adds gradients to the outputs of a task whose reference has `GRADIENTS = True` at its top.

A call returns the outputs, then the gradients of their weighted sum with respect to each floating input and each
parameter, parameters in the order of their names. The weights are normal random numbers, equal in every call of one
shape. Reference and candidate use the same subclass of their model, so a candidate is written as for training: a
`forward` through `torch.autograd.Function`, or anything else that autograd can differentiate.
"""

from __future__ import annotations

from typing import Any

import torch

SEED = 0x5EED
device = "cpu"
"""The device of this process's tensors, on which the weights are drawn."""


def differentiated(model: type[Any]) -> type[Any]:
    """Returns a subclass of the model whose `forward` returns outputs and their gradients, all detached.

    Raises `TypeError` for anything but a class of `torch.nn.Module`.
    """
    if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
        raise TypeError(f"a task with GRADIENTS needs a class of torch.nn.Module, not {model!r}")

    class Differentiated(model):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
            with torch.enable_grad():
                leaves: list[torch.Tensor] = []
                given = [_leaf(value, leaves) for value in inputs]
                leaves += [p for _, p in sorted(self.named_parameters()) if p.is_floating_point()]
                for leaf in leaves:
                    leaf.requires_grad_(True)
                outputs = _flat(super().forward(*given))
                return (*(o.detach() for o in outputs), *_gradients(outputs, leaves))

    Differentiated.__name__ = model.__name__
    Differentiated.__qualname__ = model.__qualname__
    return Differentiated


def _gradients(outputs: list[torch.Tensor], leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns one gradient per leaf, each in memory of its own; zeros where no output depends on the leaf."""
    roots = [o for o in outputs if o.requires_grad and o.is_floating_point()]
    with torch._C.DisableTorchFunction():  # the task's draws are redirected, and this draw is not the task's
        # Handles of device `meta` take the draws of the host's generator, which their device process makes.
        generator = torch.Generator(device="cpu" if device == "meta" else device).manual_seed(SEED)
        weights = [
            torch.randn(o.shape, generator=generator, device=device, dtype=torch.float32).to(o.dtype) for o in roots
        ]
    if not roots:
        return [torch.zeros_like(leaf) for leaf in leaves]
    # Autograd's own threads may lack the CUDA context in which a candidate's kernels are loaded.
    with torch.autograd.set_multithreading_enabled(False):
        found = torch.autograd.grad(roots, leaves, weights, allow_unused=True)
    taken = {_memory(w) for w in weights}
    gradients = []
    for gradient, leaf in zip(found, leaves, strict=True):
        value = torch.zeros_like(leaf) if gradient is None else gradient.detach()
        place = _memory(value)
        # Where the derivative is one, autograd returns a weight itself, or one tensor for several leaves.
        gradients.append(value.clone() if place in taken or not value.is_contiguous() else value)
        taken.add(place)
    return gradients


def _memory(tensor: torch.Tensor) -> int:
    """Returns a number that tells a tensor's memory from others."""
    return int(tensor.untyped_storage()._cdata)


def _leaf(value: Any, leaves: list[torch.Tensor]) -> Any:
    """Returns an argument with detached tensors; appends the floating ones to `leaves` in order."""
    if isinstance(value, torch.Tensor):
        leaf = value.detach()
        if leaf.is_floating_point():
            leaves.append(leaf)
        return leaf
    if isinstance(value, list | tuple):
        return type(value)([_leaf(v, leaves) for v in value])
    if isinstance(value, dict):
        return {k: _leaf(v, leaves) for k, v in value.items()}
    return value


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value or () for t in _flat(v)] if isinstance(value, list | tuple) else []
