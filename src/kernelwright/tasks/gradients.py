"""Tasks that ask for gradients too: a reference with `GRADIENTS = True` at its top.

A call then gives the outputs, and behind them the gradients of their weighted sum with respect to each floating input
and each parameter, parameters in the order of their names. The weights are normal numbers, the same in every call of
one shape: inputs change, and gradients with them. Both sides do it by the same subclass of their model, so that a
candidate writes what it would write for training: a `forward` through `torch.autograd.Function`, or anything else that
autograd can differentiate.
"""

from __future__ import annotations

from typing import Any

import torch

SEED = 0x5EED
device = "cpu"
"""Where this process draws the weights: where its tensors really are."""


def differentiated(model: type[Any]) -> type[Any]:
    """The model's class with a `forward` that returns its outputs and their gradients, all detached.

    Raises `TypeError` where it is no class of `torch.nn.Module`.
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
    """One gradient for each leaf in memory of its own; zeros where the outputs do not depend on it."""
    roots = [o for o in outputs if o.requires_grad and o.is_floating_point()]
    with torch._C.DisableTorchFunction():  # a task's draws are redirected; these are not the task's
        generator = torch.Generator(device=device).manual_seed(SEED)
        weights = [
            torch.randn(o.shape, generator=generator, device=device, dtype=torch.float32).to(o.dtype) for o in roots
        ]
    if not roots:
        return [torch.zeros_like(leaf) for leaf in leaves]
    # In this thread: one of autograd's own need not have the CUDA context in which a candidate's kernels are loaded.
    with torch.autograd.set_multithreading_enabled(False):
        found = torch.autograd.grad(roots, leaves, weights, allow_unused=True)
    taken = {w.untyped_storage().data_ptr() for w in weights}
    gradients = []
    for gradient, leaf in zip(found, leaves, strict=True):
        value = torch.zeros_like(leaf) if gradient is None else gradient.detach()
        place = value.untyped_storage().data_ptr()
        # Autograd hands one tensor to several leaves, or a weight itself, where the derivative is one.
        gradients.append(value.clone() if place in taken or not value.is_contiguous() else value)
        taken.add(place)
    return gradients


def _leaf(value: Any, leaves: list[torch.Tensor]) -> Any:
    """An argument whose floating tensors are leaves, which are noted in their order."""
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
