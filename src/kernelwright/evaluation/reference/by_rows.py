"""Finds references whose output rows depend only on the same input rows: these can be computed a few rows at a time.

The float64 run of a large task takes several times the memory of its inputs and outputs. If the reference divides along
the first dimension, as elementwise operators, norms of a row and products with a fixed matrix do, the judge needs that
memory for some rows only. Division is tested on a few rows in float64, never assumed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.evaluation.processes import wire

Run = Callable[[Any], list[torch.Tensor]]
"""Returns the reference's outputs in float64 on given inputs."""

TRIED_ROWS = 4
"""The number of rows computed together and in halves, at each place that is tested."""
PLACES = 4
MOST_ALONE = 4
"""A bound on the number of inputs that are each tried as the only cut input."""
SAME = 1e-9
"""A bound on the difference of two equal float64 runs, relative to the largest value."""
ROUGHLY = 0.02
"""The same bound for a float64 run and one in the task's own dtype."""


@dataclass(frozen=True)
class Slicing:
    """The numbers of a call's tensors that are cut along their first dimension, its length, and the rows of a slice."""

    cut: tuple[int, ...]
    rows: int
    step: int

    def parts(self) -> Iterator[slice]:
        """Yields all rows, `step` at a time."""
        for start in range(0, self.rows, self.step):
            yield slice(start, min(self.rows, start + self.step))

    def inputs(self, values: Any, part: slice) -> Any:
        """Returns the inputs of some rows: views of the cut tensors, everything else as it is."""
        tensors = wire.tensors_of(values)
        return wire.replace_tensors(values, [t[part] if k in self.cut else t for k, t in enumerate(tensors)])


def find(values: Any, made: Sequence[torch.Tensor], run: Run, step: int, seed: int) -> Slicing | None:
    """Returns how the reference divides; None if no way was found.

    `made` are the whole outputs in the task's own dtype. Rows computed alone must roughly equal their rows, too, so
    that a reference that depends on the number of rows counts as indivisible.
    """
    rows = {t.shape[0] if t.dim() else 0 for t in made}
    count = rows.pop() if len(rows) == 1 else 0
    if count < 2:
        return None
    fitting = [k for k, t in enumerate(wire.tensors_of(values)) if t.dim() and t.shape[0] == count]
    ways = list(dict.fromkeys([tuple(fitting), *((k,) for k in fitting[:MOST_ALONE])])) if fitting else []
    for cut in ways:
        way = Slicing(cut, count, max(1, min(step, count)))
        if _divides(way, values, made, run, random.Random(seed)):
            return way
    return None


def _divides(way: Slicing, values: Any, made: Sequence[torch.Tensor], run: Run, chance: random.Random) -> bool:
    """Tells whether rows give the same together, in halves, and as part of the whole, at every tested place."""
    width = min(TRIED_ROWS, way.rows)
    starts = {0, way.rows - width, *(chance.randint(0, way.rows - width) for _ in range(PLACES - 2))}
    try:
        for start in sorted(starts):
            middle, end = start + width // 2, start + width
            together = run(way.inputs(values, slice(start, end)))
            halves = [run(way.inputs(values, slice(a, b))) for a, b in ((start, middle), (middle, end))]
            for k, whole in enumerate(made):
                joined = torch.cat([half[k] for half in halves])
                if not (_near(joined, together[k], SAME) and _near(joined, whole[start:end], ROUGHLY)):
                    return False
    except Exception:  # a reference may raise anything on fewer rows: then it does not divide
        return False
    return True


def _near(a: torch.Tensor, b: torch.Tensor, relative: float) -> bool:
    if a.shape != b.shape:
        return False
    if not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b.to(a.dtype))
    wide = b.to(a.dtype)
    finite = wide.abs().nan_to_num(0.0, 0.0, 0.0)
    room = relative * float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(a, wide, rtol=relative, atol=room, equal_nan=True)
