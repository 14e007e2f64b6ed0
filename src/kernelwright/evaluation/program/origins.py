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
"""The share of an output's elements that, equal in order to what operators had moved, make its kernel a copy."""
_KEY = 16
"""The elements by which the place of a moved tensor in an output is found."""
_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def of(blocks: DeviceMemory, place: Place, output: torch.Tensor, moved: Sequence[torch.Tensor]) -> dict[str, int]:
    """Returns the number of an output's elements by label. Elements that a kernel stored, but that only repeat in order
    what operators had `moved`, count as moved."""
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
    """Returns the number of elements of an output that lie in runs equal to moved tensors."""
    size = output.element_size()
    if size not in _WHOLE:
        return 0
    flat = output.contiguous().reshape(-1).view(_WHOLE[size])
    data = flat.numpy().tobytes()
    covered = 0
    for one in moved:
        if one.element_size() != size or one.numel() > flat.numel() or one.numel() < _KEY:
            continue
        bits = one.view(_WHOLE[size])
        if bool((bits == bits[0]).all()):
            continue
        at = _found(data, bits, flat, size)
        covered += one.numel() if at is not None else 0
    return min(covered, flat.numel())


def _found(data: bytes, bits: torch.Tensor, flat: torch.Tensor, size: int) -> int | None:
    """Returns the element at which the whole of a moved tensor begins in the output, or None."""
    key = bits[:_KEY].numpy().tobytes()
    at = data.find(key)
    while at >= 0:
        start = at // size
        if at % size == 0 and start + bits.numel() <= flat.numel():
            if bool((flat[start : start + bits.numel()] == bits).all()):
                return start
        at = data.find(key, at + 1)
    return None


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
