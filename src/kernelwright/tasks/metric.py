"""Measures the error of an output against its reference per element, for oracle and judge alike.

An error is relative to the element's own size plus the size of its neighbourhood:

    error_i = |out_i - ref_i| / (|ref_i| + rms of ref over the segment of element i)

A segment has at most about 64 neighbours of one row. The neighbourhood counts because an element that cancels to nearly
zero still carries rounding of its neighbours' size. Segments are short, so that the large start of a decaying row (a
cumulative product, a peaked softmax) does not hide elements behind it that were never computed.

numpy only. Decides nothing: tolerances and verdicts are in `evaluation.compare.on_host`.
"""

from __future__ import annotations

import numpy as np

SEGMENT = 64
"""Approximate number of elements of a segment."""
MIN_ROW = 8
"""Rows shorter than this are joined with the dimension before them."""
ZERO_SEGMENT = 1e-3
"""Share of the tensor's own size that replaces the size of an all-zero segment."""


def segment_starts(shape: tuple[int, ...]) -> np.ndarray:
    """Returns offsets, in row-major order, at which segments start; every element lies in exactly one."""
    size = int(np.prod(shape, dtype=np.int64))
    if size == 0:
        return np.zeros(0, dtype=np.int64)
    row, edges = _edges(shape)
    return (np.arange(size // row, dtype=np.int64)[:, None] * row + edges[:-1]).reshape(-1)


def around(shape: tuple[int, ...], where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the flat indices of all elements in the segments of `where`, and the segments' starts among them.

    Both ascend. Elements elsewhere cost no time.
    """
    row, edges = _edges(shape)
    pieces = edges.size - 1
    segments = np.unique(where // row * pieces + np.searchsorted(edges, where % row, side="right") - 1)
    begin = segments // pieces * row + edges[segments % pieces]
    lengths = np.diff(edges)[segments % pieces]
    starts = np.cumsum(lengths) - lengths
    return np.repeat(begin - starts, lengths) + np.arange(int(lengths.sum()), dtype=np.int64), starts


def _edges(shape: tuple[int, ...]) -> tuple[int, np.ndarray]:
    """Returns elements of a row, and the offsets in it between which its segments lie."""
    row = 1
    for extent in reversed(shape):
        row *= extent
        if row >= MIN_ROW:
            break
    pieces = -(-row // SEGMENT)
    return row, (np.arange(pieces + 1, dtype=np.int64) * row) // pieces


def spread(values: np.ndarray, starts: np.ndarray, size: int) -> np.ndarray:
    """Returns one value per segment, repeated for each element of it."""
    return np.repeat(values, np.diff(starts, append=size))


def scales(reference: np.ndarray, input_scale: float = 1.0) -> np.ndarray:
    """Returns each element's divisor of the error: float64, flat, row-major, never negative.

    `input_scale` is used only where the whole reference is zero.
    """
    flat = np.abs(np.nan_to_num(np.asarray(reference, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)).reshape(-1)
    if not flat.size:
        return flat
    starts = segment_starts(np.shape(reference))
    peak = np.maximum.reduceat(flat, starts)
    # Squares of values below 1e-154 vanish, so each segment is divided by its peak first.
    unit = flat / np.where(spread(peak, starts, flat.size) > 0, spread(peak, starts, flat.size), 1.0)
    mean = np.add.reduceat(unit * unit, starts) / np.diff(starts, append=flat.size)
    rms = peak * np.sqrt(mean)
    whole = float(flat.max())
    size = whole * float(np.sqrt(np.mean((flat / whole) ** 2))) if whole > 0 else input_scale
    rms = np.where(peak > 0, rms, ZERO_SEGMENT * size)
    return flat + spread(rms, starts, flat.size)


def errors(output: np.ndarray, reference: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Returns flat relative errors in float64; 0 where either side is not finite (masks are compared elsewhere)."""
    with np.errstate(invalid="ignore"):
        difference = np.abs(as_real(output).reshape(-1) - as_real(reference).reshape(-1))
    finite = np.isfinite(difference)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(difference > 0, difference / np.where(scale > 0, scale, np.finfo(np.float64).tiny), 0.0)
    return np.where(finite, relative, 0.0)


def as_real(array: np.ndarray) -> np.ndarray:
    """Returns the array in float64; a complex array gets a last dimension of (real, imaginary)."""
    if np.iscomplexobj(array):
        wide = np.ascontiguousarray(array, dtype=np.complex128)
        return wide.view(np.float64).reshape(*array.shape, 2)
    return np.asarray(array, dtype=np.float64)


def worst(output: np.ndarray, reference: np.ndarray) -> float:
    """Returns the largest relative error of an output; 0 for an empty one."""
    real = as_real(reference)
    if not real.size:
        return 0.0
    return float(errors(output, reference, scales(real)).max())


def summary(output: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """Returns the largest and the root mean square error of an output, over the mean magnitude of its reference.

    Elements that are not finite on either side do not count; (0, 0) where none is left, or where the reference is zero
    throughout.
    """
    out, ref = as_real(output).reshape(-1), as_real(reference).reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(out - ref)
    finite = np.isfinite(difference)
    size = float(np.abs(ref[finite]).mean()) if finite.any() else 0.0
    if size == 0.0 or not np.isfinite(size):
        return 0.0, 0.0
    relative = difference[finite] / size
    return float(relative.max()), float(np.sqrt(np.mean(relative * relative)))
