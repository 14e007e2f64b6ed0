"""Makes values that random draws hardly ever give: far from zero, tiny, tied, all zero, clustered, repeated.

Each function gives the values of one draw. Floating values are in multiples of the draw's own size. A *row* is the
last dimension, joined with those before it while it is short; a vector is cut into rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

FAR, SPREAD = 160.0, 3.6
"""The distance from zero of far values, an exponential of which underflows float32, and their deviation. At this ratio
a variance by E[x^2] - E[x]^2 is wrong in float32 throughout, and right where float64 takes the difference."""
SHORT_ROW, VECTOR_PIECES = 16, 12
GROUP = 32
"""Elements of an aligned group of zeros."""
TINY, NARROW = 2.0**-9, 2.0**-2
"""Factors on the size of a row: small beside usual epsilons of normalisations, but so large that `exp(x) - 1` is right
in float32; and the spread of a row that is nearly constant, which leaves honest variances right."""

Generator = torch.Generator
Rows = torch.Tensor
"""Values as rows [R, N]; functions of row kinds get a part of them."""


def far_below(shape: torch.Size, generator: Generator, call: int) -> torch.Tensor:
    """Returns values around a negative mean far from zero. Every second draw is around zero, so that differences and
    products of two inputs stay as exact as they are."""
    return SPREAD * _normal(shape, generator) - (FAR if call % 2 == 0 else 0.0)


def far_above(shape: torch.Size, generator: Generator, call: int) -> torch.Tensor:
    """Returns the same around a positive mean."""
    return SPREAD * _normal(shape, generator) + (FAR if call % 2 == 0 else 0.0)


def tied_rows(shape: torch.Size, generator: Generator, call: int) -> torch.Tensor:
    """Returns rows with exact ties: zeros, constants, multiples of 1/8, groups of zeros, repeated and sorted values."""
    return _by_rows(shape, generator, (_zeros, _eighths, _zero_groups, _constants, _repeated, _sorted))


def scaled_rows(shape: torch.Size, generator: Generator, call: int) -> torch.Tensor:
    """Returns rows of very different size, or nearly constant, or with neighbouring extremes."""
    return _by_rows(shape, generator, (_tiny, _nearly_constant, _clustered, _normal_rows))


def _by_rows(
    shape: torch.Size, generator: Generator, kinds: tuple[Callable[[Rows, Generator], Rows], ...]
) -> torch.Tensor:
    values = _normal(shape, generator)
    if not values.numel():
        return values
    flat = values.view(-1)
    length = _row_length(shape)
    whole = flat[: flat.numel() // length * length].view(-1, length)
    start = int(torch.randint(0, len(kinds), (1,), generator=generator, device=generator.device))
    for number, kind in enumerate(kinds):
        part = whole[(number + start) % len(kinds) :: len(kinds)]
        if len(part):
            part.copy_(kind(part.clone(), generator))
    return values


def _row_length(shape: torch.Size) -> int:
    length = 1
    for extent in reversed(shape):
        length *= extent
        if length >= SHORT_ROW:
            break
    return max(1, length if len(shape) > 1 else -(-length // VECTOR_PIECES))


def _normal(shape: torch.Size, generator: Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, device=generator.device)


def _zeros(rows: Rows, generator: Generator) -> Rows:
    return torch.zeros_like(rows)


def _eighths(rows: Rows, generator: Generator) -> Rows:
    return (rows * 8).round().clamp(-16, 16) / 8


def _constants(rows: Rows, generator: Generator) -> Rows:
    return _eighths(rows[:, :1] + rows[:, :1].sign() / 2, generator).expand_as(rows)


def _zero_groups(rows: Rows, generator: Generator) -> Rows:
    """Returns rows of which every second group of neighbours, counted over all rows, is zero."""
    places = torch.arange(rows.numel(), device=rows.device).view(rows.shape)
    return torch.where(places // GROUP % 2 == 0, rows, 0.0)


def _repeated(rows: Rows, generator: Generator) -> Rows:
    """Returns rows whose second half repeats the first."""
    half = -(-rows.shape[1] // 2)
    return torch.cat([rows[:, :half], rows[:, : rows.shape[1] - half]], dim=1)


def _sorted(rows: Rows, generator: Generator) -> Rows:
    return rows.sort(dim=1, descending=True).values


def _tiny(rows: Rows, generator: Generator) -> Rows:
    return rows * TINY


def _nearly_constant(rows: Rows, generator: Generator) -> Rows:
    return rows[:, :1] + rows[:, :1].sign() + NARROW * rows


def _clustered(rows: Rows, generator: Generator) -> Rows:
    """Returns rows with eight large neighbours of one sign."""
    length = rows.shape[1]
    begin = torch.randint(0, max(1, length - 8), (len(rows), 1), generator=generator, device=rows.device)
    places = torch.arange(length, device=rows.device)
    inside = (places >= begin) & (places < begin + 8)
    return torch.where(inside, rows[:, :1].sign() * (rows.abs() + 4) * 8, rows)


def _normal_rows(rows: Rows, generator: Generator) -> Rows:
    return rows


def integers(own: torch.Tensor, low: int, high: int, generator: Generator, call: int, alike: bool) -> torch.Tensor:
    """Returns integers from `low` to `high` with long runs of the least, the largest and equal values.

    `own` are the task's own values, of which some rows stay. With `alike`, all values are one. The kinds of two draws
    meet in every combination, over many rows.
    """
    if alike:
        return own.reshape(-1)[:1].reshape((1,) * own.dim()).expand_as(own)
    chance = torch.rand(own.shape, generator=generator, device=own.device)
    if own.dim() < 2:
        return torch.where(chance < 0.3, low, torch.where(chance < 0.6, high, own))
    first = own.reshape(-1)[:1].reshape((1,) * own.dim())
    kinds = (
        torch.where(chance < 1 / 16, high, low).to(own.dtype),
        torch.full_like(own, high),
        own,
        torch.where(chance < 0.5, first, own[..., :1]),
        own[..., :1].expand_as(own),
    )
    rows = torch.arange(own.numel() // max(1, own.shape[-1]), device=own.device).view(*own.shape[:-1], 1)
    chosen = (rows // len(kinds) ** (call % 2) + call) % len(kinds)
    return torch.stack([torch.where(chosen == k, values, 0) for k, values in enumerate(kinds)]).sum(0).to(own.dtype)
