"""Tells which elements of a reference's outputs are an input's, only moved, by running it on other values.

One input at a time gets new values, several times. An output's element that takes the same values as an element of the
input in every run is moved from there. Values are drawn within the input's own range; the other inputs stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.trials import Movement
from kernelwright.tasks import reference_runs

SURE_BITS = 40
"""Bits that the values of one element must have in all runs together, so that two elements differ by chance."""
MOST_RUNS = 48
"""The most runs for one input; truth values have one bit a run."""
MOST_INPUTS = 16
_MOST = (1 << 63) - 2
"""The largest integer that is drawn, since torch draws below a bound of 64 bits."""
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def movements(model: Any, values: Any, call_seed: int) -> tuple[list[Movement], list[torch.Tensor]]:
    """Returns for each output what the reference has moved there, and a uint8 tensor of 1 for each moved element."""
    outputs = reference_runs.reference_outputs(model, values, None, call_seed)
    sources = [torch.full((t.numel(),), -1, dtype=torch.int64) for t in outputs]
    changed = [torch.zeros(t.numel(), dtype=torch.bool) for t in outputs]
    unchanged = [torch.zeros(t.numel(), dtype=torch.bool) for t in outputs]
    given, base = wire.tensors_of(values), 0
    for number, tensor in enumerate(given[:MOST_INPUTS]):
        drawn, runs = _runs(model, values, number, call_seed) if tensor.numel() else ([], [])
        # Of inputs in one memory, one alone gets new values: other inputs then change, and other outputs follow.
        for k in range(len(outputs) if drawn and all(len(run) == len(outputs) for run in runs) else 0):
            results = [run[k] for run in runs]
            if any(r.numel() != sources[k].numel() or r.dtype != outputs[k].dtype for r in results):
                continue
            sure, found = _places([d.to(results[0].dtype) for d in drawn], results)
            varied = torch.stack([_words(r) != _words(results[0]) for r in results]).any(0)
            changed[k] |= varied
            sources[k] = torch.where(sure & varied, found + base, sources[k])
            if tensor.numel() == found.numel():
                unchanged[k] |= sure & varied & (found == torch.arange(found.numel()))
        base += tensor.numel() + 2
    return [_told(*one) for one in zip(sources, changed, unchanged, strict=True)], [(s >= 0).byte() for s in sources]


def _told(sources: torch.Tensor, changed: torch.Tensor, unchanged: torch.Tensor) -> Movement:
    moved = sources >= 0
    steps = sources[moved].diff().abs()
    return Movement(
        unchanged=int(unchanged.sum()),
        rearranged=int((moved & ~unchanged).sum()),
        computed=int((changed & ~moved).sum()),
        pieces=int((steps != 1).sum()) + 1 if bool(moved.any()) else 0,
    )


def _runs(model: Any, values: Any, number: int, call_seed: int) -> tuple[list[torch.Tensor], list[list[torch.Tensor]]]:
    """Returns the values that one input had in several runs, and their outputs; none if the reference refuses them."""
    given = wire.tensors_of(values)
    low, high, bits = _range(given[number])
    generator = torch.Generator().manual_seed(call_seed + number)
    drawn, outputs = [], []
    for _ in range(min(MOST_RUNS, max(2, math.ceil(SURE_BITS / bits)))):
        drawn.append(_drawn(given[number], low, high, generator))
        tensors = [drawn[-1] if k == number else t for k, t in enumerate(given)]
        try:
            outputs.append(
                reference_runs.reference_outputs(model, wire.replace_tensors(values, tensors), None, call_seed)
            )
        except Exception:  # a reference may raise anything about values that are not its own
            return [], []
    return drawn, outputs


def _range(tensor: torch.Tensor) -> tuple[float, float, float]:
    """Returns the least and the largest finite value of a tensor, and the bits of one drawn between them."""
    if tensor.dtype is torch.bool:
        return 0, 1, 1
    if not tensor.is_floating_point() and not tensor.is_complex():
        least, most = (min(int(n), _MOST) for n in tensor.to(torch.int64).aminmax())
        return least, most, max(1.0, math.log2(most - least + 1))
    wide = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double()
    finite = wide[wide.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0)
    precise = -math.log2(torch.finfo(tensor.dtype).eps)
    return low, high if high > low else low + 1, max(1, precise - 3)


def _drawn(tensor: torch.Tensor, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    """Returns new values of a tensor's form, in a row-major copy of it."""
    shape = tuple(tensor.shape)
    if tensor.is_complex():
        parts = torch.rand((*shape, 2), generator=generator, dtype=torch.float64) * (high - low) + low
        return torch.view_as_complex(parts).to(tensor.dtype)
    if tensor.is_floating_point():
        return (torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low).to(tensor.dtype)
    return torch.randint(int(low), int(high) + 1, shape, generator=generator).to(tensor.dtype)


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the bits of each element as an int64, in row-major order."""
    flat = tensor.contiguous().reshape(-1)
    if flat.element_size() == 16:
        pairs = flat.view(torch.int64).reshape(-1, 2)
        return pairs[:, 0] * _FACTOR + pairs[:, 1]
    return flat.view(_WORDS[flat.element_size()]).to(torch.int64)


_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)


def _places(drawn: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns which elements of the results have in every run the value of one element of the input, and of which."""
    wanted, offered = (torch.zeros(tensors[0].numel(), dtype=torch.int64) for tensors in (results, drawn))
    for given, made in zip(drawn, results, strict=True):
        wanted, offered = wanted * _FACTOR + _words(made), offered * _FACTOR + _words(given)
    ordered, order = offered.sort(stable=True)
    at = torch.searchsorted(ordered, wanted).clamp(max=len(ordered) - 1)
    return ordered[at] == wanted, order[at]
