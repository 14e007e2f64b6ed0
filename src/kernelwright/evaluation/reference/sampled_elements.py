"""Computes a reference's outputs at some elements of a size that is too large to compare whole.

The reference runs on all of the inputs where they are small enough to make. Where its outputs' rows depend on the same
rows of its inputs alone (`by_rows`), it runs on the wanted rows, which any size has room for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernelwright.evaluation import repeated_values
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.reference import by_rows
from kernelwright.tasks import reference_runs

MOST_ROWS = 64
MOST_SHORT_ROWS, SHORT = 1 << 14, 1 << 20
"""The most rows where all of them together have at most `SHORT` elements of each output."""
MOST_ROW_ELEMENTS = 8_000_000
"""The most elements of the inputs that are made for rows, and of those that all rows share."""


class NotComputed(Exception):
    """Raised where the reference's elements cannot be had; the message says why."""


@dataclass(frozen=True)
class Wanted:
    """Flat indices into each output, and the outputs' shapes."""

    indices: list[np.ndarray]
    shapes: list[tuple[int, ...]]

    def rows(self) -> np.ndarray:
        """Returns the outputs' wanted rows, evenly chosen if they are many. Raises `NotComputed`."""
        lengths = {shape[0] if shape else 0 for shape in self.shapes}
        if len(lengths) != 1 or not min(lengths):
            raise NotComputed("its outputs have no common rows")
        parts = [k // _row(shape) for k, shape in zip(self.indices, self.shapes, strict=True)]
        found = np.unique(np.concatenate(parts))
        most = max(MOST_ROWS, min(MOST_SHORT_ROWS, SHORT // max(map(_row, self.shapes))))
        if len(found) > most:
            found = found[np.unique(np.linspace(0, len(found) - 1, most).astype(np.int64))]
        return found

    def within(self, rows: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Returns for each output the positions of the indices that lie in some rows, and these indices counted from
        the first of the rows on."""
        kept, moved = [], []
        for index, shape in zip(self.indices, self.shapes, strict=True):
            width = _row(shape)
            at = np.searchsorted(rows, index // width)
            there = np.flatnonzero(rows[np.minimum(at, len(rows) - 1)] == index // width)
            kept.append(there)
            moved.append(at[there] * width + index[there] % width)
        return kept, moved


def _row(shape: Sequence[int]) -> int:
    return math.prod(shape[1:])


@dataclass(frozen=True)
class RepeatedInputs:
    """Inputs of a full size that repeat the values of a smaller call, `samples`, in the full `shapes`."""

    samples: list[torch.Tensor]
    shapes: list[tuple[int, ...]]

    def rows(self, number: int, rows: np.ndarray) -> torch.Tensor:
        """Returns some rows of an input."""
        shape = self.shapes[number]
        parts = [self._flat(number, int(r) * _row(shape), _row(shape)) for r in rows]
        return torch.stack(parts).reshape(len(rows), *shape[1:])

    def whole(self, number: int) -> torch.Tensor:
        """Returns an input."""
        return self._flat(number, 0, math.prod(self.shapes[number])).reshape(self.shapes[number])

    def _flat(self, number: int, first: int, count: int) -> torch.Tensor:
        sample = self.samples[number]
        at = repeated_values.places(first, count, sample.element_size(), sample.numel())
        return sample[torch.from_numpy(at)]


def division(values: Any, model: Any, seed: int) -> tuple[int, ...] | None:
    """Returns the numbers of the inputs that are cut with the rows, found at a small size; None if none are."""
    made = reference_runs.reference_outputs(model, values, None, seed)

    def run(part: Any) -> list[torch.Tensor]:
        return reference_runs.reference_outputs(model, part, torch.float64, seed)

    way = by_rows.find(values, made, run, by_rows.TRIED_ROWS, seed)
    return way.cut if way is not None else None


def rows_of(values: Any, source: RepeatedInputs | None, cut: Sequence[int], rows: np.ndarray) -> Any:
    """Returns inputs with the wanted rows of the cut tensors and the whole of the others. Raises `NotComputed`."""
    shapes = source.shapes if source is not None else [tuple(t.shape) for t in wire.tensors_of(values)]
    sizes = [len(rows) * _row(s) if k in cut else math.prod(s) for k, s in enumerate(shapes)]
    if max(sizes, default=0) > MOST_ROW_ELEMENTS:
        raise NotComputed("its rows, or what they share, are too large")
    made = []
    for number, tensor in enumerate(wire.tensors_of(values)):
        if source is None:
            made.append(tensor[torch.from_numpy(rows)] if number in cut else tensor)
        else:
            made.append(source.rows(number, rows) if number in cut else source.whole(number))
    return wire.replace_tensors(values, made)


def outputs(model: Any, values: Any, places: Sequence[np.ndarray], seed: int, noise: tuple[int, int] | None) -> Any:
    """Returns the reference's values at flat indices of each output that it returns: in float64, and as in its own
    dtype. Inputs that it changes are not looked at.

    With `noise` (seed and sign) only the former, on inputs moved by it; None where the reference fails on these.
    """
    if noise is not None:
        moved = reference_runs.nearby_outputs(model, {}, values, seed, *noise)
        return None if moved is None else _at(moved[: len(places)], places)
    run = reference_runs.run_reference(model, values, torch.float64, seed)
    exact, returned = run.outputs, len(run.outputs) - len(run.changed)
    honest = reference_runs.reference_outputs(model, values, None, seed)
    honest = reference_runs.widen_honest(model, {}, values, exact, honest, seed)
    return _at(exact[:returned], places), _at(honest[:returned], places)


def _at(tensors: Sequence[torch.Tensor], places: Sequence[np.ndarray]) -> list[torch.Tensor]:
    if len(tensors) != len(places):
        raise NotComputed(f"the reference returns {len(tensors)} outputs, the candidate {len(places)}")
    for tensor, at in zip(tensors, places, strict=True):
        if len(at) and int(at.max()) >= tensor.numel():
            raise NotComputed("the reference's outputs have another size")
    return [t.reshape(-1)[torch.from_numpy(at)] for t, at in zip(tensors, places, strict=True)]
