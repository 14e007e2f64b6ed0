"""Runs a reference honestly in the precision that a policy allows, and at the next lower one.

Under `float32` that is the reference in its own dtype. Under `tf32` the operands of its products are rounded to TF32:
emulated on a CPU, by the tensor cores on a GPU. A second honest run cuts the operands, as kernels do that give tensor
cores raw float32 values; the worse of the two counts for each element. Runs a task's code; imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kernelwright.records import Precision
from kernelwright.tasks import metric, rounded_products
from kernelwright.tasks.rounded_products import BFLOAT16, TF32, Products

BELOW: dict[Precision, int] = {"float32": TF32, "tf32": BFLOAT16}
"""The significant bits of operands in the next lower precision."""

Worst = Callable[[torch.Tensor, torch.Tensor], float]


def emulated(precision: Precision, device: str) -> AbstractContextManager[object]:
    """Returns the context in which a reference runs honestly in its own dtype: a CPU's products have their operands
    rounded to TF32, where that is allowed; a GPU rounds them by itself, as torch's settings say."""
    if precision == "float32" or device == "cuda":
        return nullcontext()
    return Products(rounded_products.nearest(TF32))


def worse(
    model: Any,
    values: Sequence[Any],
    exact: Sequence[torch.Tensor],
    own: Sequence[torch.Tensor],
    precision: Precision,
    call_seed: int,
) -> list[torch.Tensor] | None:
    """Returns for each element the worse of two honest TF32 runs: `own`, and one with operands cut. None under
    `float32`, and for a reference without products."""
    if precision == "float32":
        return None
    cut = rounded_products.outputs(model, values, call_seed, operands=rounded_products.chopped(TF32))
    return None if cut is None else [_farther(a, b, e) for a, b, e in zip(own, cut, exact, strict=True)]


def _farther(one: torch.Tensor, other: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Returns `one` with the elements of `other` that are farther from `exact`, in the dtype of `one`."""
    if not one.is_floating_point() or one.shape != other.shape:
        return one
    wide = one.to(torch.float64)
    return torch.where((other - exact).abs() > (wide - exact).abs(), other, wide).to(one.dtype)


def below_tf32(
    model: Any, values: Sequence[Any], exact: Sequence[torch.Tensor], call_seed: int, worst: Worst | None = None
) -> list[float | None] | None:
    """Returns, per output, the largest error with operands of products rounded to BF16; None without products."""
    made = rounded_products.outputs(model, values, call_seed, operands=rounded_products.nearest(BFLOAT16))
    return None if made is None else largest(made, exact, worst)


def largest(
    outputs: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], worst: Worst | None = None
) -> list[float | None]:
    """Returns the largest relative error of each floating output (`metric.worst`); None for others."""
    worst = worst or (lambda a, b: metric.worst(a.numpy(), b.numpy()))
    return [
        worst(a.to(torch.float64), b) if b.is_floating_point() and a.shape == b.shape else None
        for a, b in zip(outputs, exact, strict=True)
    ]
