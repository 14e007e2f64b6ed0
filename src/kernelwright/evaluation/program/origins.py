"""Tells who made an output: kernels of the candidate, operators of torch, the host, or nobody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kernelwright.evaluation.program import memory
from kernelwright.evaluation.program.forms import Place
from kernelwright.evaluation.program.memory import DeviceMemory

FEW = 256
"""A bound on the elements that the host may read unreported: sizes, offsets, small tables."""
COPIED_SHARE = 0.9
"""The share of an output's elements that, in the order of what operators had moved, make its kernel a copy."""
NEAR = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""The relative difference up to which a kernel has only touched a value: more than what passes as the right result.
Other dtypes must be equal."""
_LEAST = 16
"""The least elements of a moved tensor that is looked for."""
_MOST_PLACES = 64
"""The most places of an output at which a moved tensor is looked for."""


def of(blocks: DeviceMemory, place: Place, output: torch.Tensor, moved: Sequence[torch.Tensor]) -> dict[str, int]:
    """Returns the number of an output's elements by label. Elements that a kernel stored, but that repeat in order what
    operators had `moved`, or differ from it by less than counts as another result, count as moved."""
    count = output.numel()
    if not count:
        return {}
    uniform = blocks.uniform(place)
    if uniform is not None:
        found = {memory.LABELS[uniform]: count}
    else:
        totals = torch.bincount(blocks.labels(place).reshape(-1).to(torch.int64), minlength=len(memory.LABELS))
        found = {memory.LABELS[k]: int(n) for k, n in enumerate(totals.tolist()) if n}
    stored = found.get("kernel", 0)
    if stored and moved and _repeated(output, moved) >= COPIED_SHARE * count:
        found["moved"] = found.get("moved", 0) + found.pop("kernel")
    return found


def _repeated(output: torch.Tensor, moved: Sequence[torch.Tensor]) -> int:
    """Returns the number of an output's elements that repeat moved tensors, in order and nearly in value."""
    flat = output.contiguous().reshape(-1)
    covered = 0
    for one in moved:
        if one.dtype is torch.uint8 and one.numel() % flat.element_size() == 0:
            one = one.view(flat.dtype)  # copied as bytes, by host code
        size = one.numel()
        if one.dtype != flat.dtype or not _LEAST <= size <= flat.numel() or bool((one == one[0]).all()):
            continue
        starts = range(0, flat.numel() - size + 1, size)[:_MOST_PLACES]
        near = max(_near(flat[start : start + size], one) for start in starts)
        covered += near if near >= COPIED_SHARE * size else 0
    return min(covered, flat.numel())


def _near(values: torch.Tensor, moved: torch.Tensor) -> int:
    """Counts the values that a kernel has copied, or only touched."""
    same = values == moved
    if (bound := NEAR.get(values.dtype)) is not None:
        same |= (values - moved).abs() <= bound * moved.abs()
        same |= values.isnan() & moved.isnan()
    return int(same.sum())


def places(value: Any) -> Iterator[Place]:
    """Yields the places in an operator's encoded arguments."""
    if isinstance(value, dict):
        if "t" in value:
            yield value["t"]
        else:
            for item in value.values():
                yield from places(item)
    elif isinstance(value, list):
        for item in value:
            yield from places(item)
