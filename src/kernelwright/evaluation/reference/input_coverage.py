"""Measures what share of its input bytes a reference depends on: no right candidate can leave that share unread.

An embedding looks up few rows of its table, a triangle needs half of its matrix. Elements drawn at random are changed
one at a time, and the outputs compared. Floats become NaN, which reductions, maxima and sorts pass on; integers, which
may be indices, take the value of another element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

PROBES = 32


def share(tensors: Sequence[torch.Tensor], run: Callable[[], list[torch.Tensor]], rng: np.random.Generator) -> float:
    """Returns a low estimate of the share, 1 when every probe changes the outputs. `run` computes the outputs from the
    present contents of `tensors`."""
    weights = np.array([t.nbytes for t in tensors], np.float64)
    if not weights.sum():
        return 0.0
    before = run()
    shown = 0
    for index in rng.choice(len(tensors), PROBES, p=weights / weights.sum()):
        flat = tensors[index].view(-1)
        place, donor = (int(i) for i in rng.integers(0, flat.numel(), 2))
        kept = flat[place].clone()
        flat[place] = _other(kept, flat[donor].clone())
        shown += not all(_same(a, b) for a, b in zip(before, run(), strict=True))
        flat[place] = kept
    found = shown / PROBES
    return float(max(0.0, found - 2 * (found * (1 - found) / PROBES) ** 0.5))


def _other(value: torch.Tensor, donor: torch.Tensor) -> torch.Tensor:
    if value.is_floating_point() or value.is_complex():
        return torch.full_like(value, float("nan"))
    return ~value if value.dtype == torch.bool else donor


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tells whether values are equal, NaN equal to NaN."""
    if a.shape != b.shape:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())
