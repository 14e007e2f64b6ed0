"""The comparison of `on_host` for outputs too large to leave their device: the same rule in torch, block by block.

The rule by which elements pass and the largest errors follow `on_host`'s docstring and `tasks.metric` to the letter;
only the description of patterns is left out. It runs in the trusted referee, in float64, on whole rows of at most about
`BLOCK` elements at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch

from kernelwright.evaluation.compare import on_host, second_look
from kernelwright.evaluation.compare.on_host import Comparison, Ruler
from kernelwright.evaluation.tensor_bytes import SMALL_FLOATS
from kernelwright.tasks import metric

BLOCK = 1 << 25


@dataclasses.dataclass(frozen=True)
class Segments:
    """The cut of an output's rows of `row` elements into `pieces` segments each."""

    row: int
    pieces: int
    uneven: tuple[torch.Tensor, torch.Tensor] | None
    """Index and mask for segments of unequal length: element `index[s, j]` of a row is the j-th of its segment s where
    `mask`. None for segments of one length."""


def segments(shape: tuple[int, ...], device: torch.device) -> Segments:
    """Returns the segments of an output of this shape."""
    row = 1
    for extent in reversed(shape):
        row *= extent
        if row >= metric.MIN_ROW:
            break
    row = max(row, 1)
    pieces = -(-row // metric.SEGMENT)
    if row % pieces == 0:
        return Segments(row, pieces, None)
    starts = (torch.arange(pieces + 1, device=device, dtype=torch.int64) * row) // pieces
    index = starts[:-1, None] + torch.arange(-(-row // pieces), device=device)
    mask = index < starts[1:, None]
    return Segments(row, pieces, (torch.where(mask, index, starts[:-1, None]), mask))


def blocks(count: int, row: int) -> Iterator[slice]:
    """Yields slices of whole rows, each of about `BLOCK` elements."""
    step = max(1, BLOCK // row) * row
    for start in range(0, count, step):
        yield slice(start, min(count, start + step))


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor flat, in its own dtype; complex values become pairs."""
    flat = tensor.detach().contiguous()
    flat = torch.view_as_real(flat) if flat.is_complex() else flat
    return flat.reshape(-1)


def _per_segment(rows: torch.Tensor, cut: Segments, how: Literal["max", "mean"]) -> torch.Tensor:
    """Returns the maximum or mean over each segment of rows [R, row], repeated for its elements: [R, row]."""
    if cut.uneven is None:
        pieces = rows.view(rows.shape[0], cut.pieces, -1)
        reduced = pieces.amax(-1) if how == "max" else pieces.mean(-1)
        return reduced.unsqueeze(-1).expand(pieces.shape).reshape(rows.shape)
    index, mask = cut.uneven
    pieces, lengths = torch.where(mask, rows[:, index], 0.0), mask.sum(-1)
    reduced = pieces.amax(-1) if how == "max" else pieces.sum(-1) / lengths
    return torch.repeat_interleave(reduced, lengths, dim=1, output_size=rows.shape[1])


def _segment_sizes(sizes: torch.Tensor, cut: Segments) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the largest value and the root mean square of each element's segment, for absolute values [R, row]."""
    peak = _per_segment(sizes, cut, "max")
    unit = sizes / torch.where(peak > 0, peak, 1.0)
    return peak, peak * _per_segment(unit * unit, cut, "mean").sqrt()


def _finite(values: torch.Tensor) -> torch.Tensor:
    return values.abs().nan_to_num(0.0, 0.0, 0.0)


def compare_output(
    position: int,
    got: torch.Tensor,
    exact: torch.Tensor,
    honest: torch.Tensor,
    ruler: Ruler,
    input_scale: float,
    tolerance: float | None,
) -> Comparison:
    """Compares one output of a candidate with float64 `exact` and with the reference in its own dtype, all of one
    shape."""
    name = str(honest.dtype).removeprefix("torch.")
    if name not in on_host.TOLERANCES:
        return _exact(position, got, exact, honest)
    limit = on_host.bound(name, ruler.low, ruler.length, ruler.slack) if tolerance is None else tolerance
    shape = tuple(torch.view_as_real(exact).shape if exact.is_complex() else exact.shape)
    out, ref, own = _real(got), _real(exact), _real(honest)
    if not ref.numel():
        return Comparison(True, 0.0, 0.0, limit)
    cut = segments(shape, ref.device)
    row, size = cut.row, _whole_size(ref, cut.row, input_scale)
    margin = on_host.margin(name, ruler.slack)
    worst_abs = worst_rel = worst_own = 0.0
    wrong, first, doubtful = 0, -1, limit > 0
    places: list[torch.Tensor] = []
    rooms: list[torch.Tensor] = []
    for part in blocks(ref.numel(), row):
        a, b, c = (t[part].to(torch.float64).view(-1, row) for t in (out, ref, own))
        step = _half_steps(b, name)
        flush = on_host.FLUSH[name] + step
        relative, absolute, own_error, misplaced = _block_errors(a, b, c, cut, size, limit, margin, flush, step)
        bad = (misplaced | (relative > limit)).view(-1)
        # One transfer for all four numbers: each one waits for the device, behind everything else that computes there.
        largest = torch.stack([absolute.max(), relative.max(), own_error, bad.sum().to(torch.float64)]).tolist()
        worst_abs, worst_rel, worst_own = map(max, (worst_abs, worst_rel, worst_own), largest[:3])
        count = int(largest[3])
        if count and first < 0:
            first = part.start + int(bad.to(torch.int8).argmax())
        wrong += count
        if count:
            doubtful = doubtful and second_look.few(wrong, ref.numel()) and not bool(misplaced.any())
        if count and doubtful:
            here = bad.nonzero().view(-1)
            places.append(here + part.start)
            rooms.append(limit * absolute.view(-1)[here] / relative.view(-1)[here])
    if not wrong:
        return Comparison(True, worst_abs, worst_rel, limit, honest_error=worst_own)
    where = [int(i) for i in torch.unravel_index(torch.tensor(first), shape)]
    values = f"got {float(out[first]):.7g}, expected {float(ref[first]):.7g}"
    errors = f"absolute error {worst_abs:.2g} at most; relative to |expected| + RMS of its row {worst_rel:.2g} at most"
    reason = f"output {position} differs at {where}: {values} ({errors}, allowed {limit:.2g}); "
    reason += f"{wrong} of {ref.numel()} elements are wrong"
    doubt = None
    if doubtful:
        failing = torch.cat(places)
        arrays = (t.to(torch.float64).cpu().numpy() for t in (out[failing], torch.cat(rooms)))
        doubt = second_look.Doubt.of_floats(position, shape, failing.cpu().numpy(), *arrays)
    return Comparison(False, worst_abs, worst_rel, limit, reason, worst_own, doubt=doubt)


def taken(outputs: Sequence[torch.Tensor], doubts: Sequence[second_look.Doubt]) -> list[np.ndarray]:
    """Returns the values that a second look needs from each doubt's output: flat float64 in host memory."""
    flat = [_real(outputs[d.output]) for d in doubts]
    chosen = [f[torch.from_numpy(d.places).to(f.device)] for f, d in zip(flat, doubts, strict=True)]
    return [c.to(torch.float64).cpu().numpy() for c in chosen]


def _block_errors(
    out: torch.Tensor,
    ref: torch.Tensor,
    own: torch.Tensor,
    cut: Segments,
    size: torch.Tensor,
    limit: float,
    margin: float,
    flush: float | torch.Tensor,
    step: float | torch.Tensor = 0.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns, for rows [R, row]: relative errors, absolute errors, the honest run's largest error, and the mask of
    misplaced NaN or infinity."""
    same = (out == ref) | (out.isnan() & ref.isnan()) | (out.isfinite() & ref.isfinite())
    overflowed = ~own.isfinite() & ref.isfinite()
    same |= overflowed & ((out == own) | (out.isnan() & own.isnan()))
    flat = _finite(ref)
    peak, rms = _segment_sizes(flat, cut)
    scale = flat + torch.where(peak > 0, rms, metric.ZERO_SEGMENT * size)
    own_error = ((own - ref).abs().nan_to_num(0.0, 0.0, 0.0) - step).clamp_min(0.0)
    honest = torch.zeros((), dtype=torch.float64, device=ref.device)
    if limit > 0:
        scale += flush / limit
        honest = (own_error / scale.clamp_min(torch.finfo(torch.float64).tiny)).max()
        scale += margin * _per_segment(own_error, cut, "max") / limit
    absolute = (out - ref).abs().nan_to_num(0.0, 0.0, 0.0)
    relative = torch.where(absolute > 0, absolute / scale.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
    return relative, absolute, honest, ~same


def _half_steps(ref: torch.Tensor, dtype: str) -> torch.Tensor | float:
    """Computes `on_host.half_steps` for rows."""
    form = SMALL_FLOATS.get(dtype)
    if form is None:
        return 0.0
    exponent = torch.frexp(ref.nan_to_num(0.0, 0.0, 0.0)).exponent - 1
    return torch.ldexp(torch.full_like(ref, 0.5), exponent.clamp_min(form.least) - form.fraction)


def _whole_size(ref: torch.Tensor, row: int, input_scale: float) -> torch.Tensor:
    """Returns the root mean square of the whole reference, on its device; `input_scale` if the reference is zero
    throughout."""
    parts = list(blocks(ref.numel(), row))
    whole = torch.stack([_finite(ref[part]).max() for part in parts]).max().to(torch.float64)
    unit = torch.where(whole > 0, whole, 1.0)
    squares = torch.stack([(_finite(ref[part]).to(torch.float64) / unit).square().sum() for part in parts])
    return torch.where(whole > 0, whole * (squares.sum() / ref.numel()).sqrt(), input_scale)


def nearness(out: torch.Tensor, near: torch.Tensor, limit: float, shape: tuple[int, ...] | None) -> torch.Tensor:
    """Returns the largest difference |out_i - near_i| [S] of each of S calls' outputs [S, ...].

    It is infinite for a call unless all its elements are finite and

        |out_i - near_i| <= limit / 2 * (|near_i| + rms of its segment)

    `shape` is the shape of one output; None for scattered elements, which have no neighbours and so no segment.
    """
    calls = out.shape[0]
    if not out.numel():
        return torch.zeros(calls)
    a, b = out.reshape(calls, -1), near.reshape(calls, -1)
    if not near.is_floating_point():
        return torch.where((a == b).all(1), 0.0, float("inf"))
    cut = segments(shape or (), out.device)
    wide = torch.float64 if near.dtype == torch.float64 else torch.float32
    worst: list[torch.Tensor] = []
    for part in blocks(a.numel(), cut.row):
        # Float32 is enough for 16-bit outputs too: its rounding is far below the limit.
        one, other = (t.reshape(-1)[part].to(wide).view(-1, cut.row) for t in (a, b))
        difference, room = (one - other).abs(), other.abs()
        if shape is not None:
            room = room + _segment_sizes(_finite(other), cut)[1]
        within = difference <= limit / 2 * room  # false for NaN as well
        worst.append(torch.where(within, difference, float("inf")).amax(-1))
    return torch.cat(worst).view(calls, -1).amax(-1)


def _exact(position: int, got: torch.Tensor, exact: torch.Tensor, honest: torch.Tensor) -> Comparison:
    wrong = (got != exact.to(got.dtype)) & (got != honest)
    count = int(wrong.sum())
    if not count:
        return Comparison(True, 0.0, 0.0, 0.0)
    first = int(wrong.reshape(-1).to(torch.int8).argmax())
    where = [int(i) for i in torch.unravel_index(torch.tensor(first), tuple(exact.shape))] if exact.dim() else []
    far = float((got.to(torch.float64) - exact.to(torch.float64)).abs().max())
    values = f"got {got.reshape(-1)[first].item()}, expected {exact.reshape(-1)[first].item()}"
    reason = f"output {position} differs at {where}: {values}; {count} of {exact.numel()} elements are wrong"
    doubt = None
    if second_look.few(count, exact.numel()):
        places = wrong.reshape(-1).nonzero().view(-1)
        values_there = got.reshape(-1)[places].to(torch.float64).cpu().numpy()
        doubt = second_look.Doubt.of_exact(position, exact.numel(), places.cpu().numpy(), values_there)
    size = max(1.0, float(exact.to(torch.float64).abs().max()))
    return Comparison(False, far, far / size, 0.0, reason, doubt=doubt)


def worst(output: torch.Tensor, reference: torch.Tensor) -> float:
    """Computes `metric.worst` on the tensors' own device."""
    shape = tuple(torch.view_as_real(reference).shape if reference.is_complex() else reference.shape)
    out, ref = _real(output), _real(reference)
    if not ref.numel():
        return 0.0
    cut = segments(shape, ref.device)
    size = _whole_size(ref, cut.row, 1.0)
    largest: list[torch.Tensor] = []
    for part in blocks(ref.numel(), cut.row):
        a, b = (t[part].to(torch.float64).view(-1, cut.row) for t in (out, ref))
        largest.append(_block_errors(a, b, b, cut, size, 0.0, 0.0, 0.0)[0].max())
    return float(torch.stack(largest).max())


def summary(output: torch.Tensor, reference: torch.Tensor) -> tuple[float, float]:
    """Computes `metric.summary` on the tensors' own device."""
    out, ref = _real(output), _real(reference)
    totals = torch.zeros(4, dtype=torch.float64, device=ref.device)
    for part in blocks(ref.numel(), 1):
        a, b = (t[part].to(torch.float64) for t in (out, ref))
        error = (a - b).abs()
        finite = error.isfinite()
        error, size = torch.where(finite, error, 0.0), torch.where(finite, b.abs(), 0.0)
        totals[0] = torch.maximum(totals[0], error.max())
        totals[1:] += torch.stack([error.square().sum(), size.sum(), finite.sum().to(torch.float64)])
    largest, squares, sizes, count = totals.tolist()
    mean = sizes / count if count else 0.0
    return (largest / mean, (squares / count) ** 0.5 / mean) if mean > 0 else (0.0, 0.0)
