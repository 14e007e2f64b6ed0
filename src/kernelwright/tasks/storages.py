"""Copies tensors with their strides, their offsets and the memory that they share, as a task makes them.

A permuted, channels-last, expanded or sliced tensor, and views of one tensor, are part of a task's contract: a kernel
that reads them in row-major order is wrong. Plain tensors are copied plainly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

ALIGNMENT = 256
"""Bytes to whose multiple the beginning of a copied storage is rounded down, so that data keep their alignment."""


@dataclass(frozen=True)
class Held:
    """The part of a storage that some tensors use together: the numbers of the tensors, and its bytes' bounds."""

    numbers: tuple[int, ...]
    start: int
    stop: int

    def plain(self, tensor: torch.Tensor) -> bool:
        """Tells whether a lone tensor fills the part in row-major order."""
        return len(self.numbers) == 1 and tensor.is_contiguous() and self.start == tensor_start(tensor)

    def offset(self, tensor: torch.Tensor) -> int:
        """Returns the number of elements before a tensor's first one, counted from the part's beginning."""
        return (tensor_start(tensor) - self.start) // tensor.element_size()


def tensor_start(tensor: torch.Tensor) -> int:
    """Returns the offset in bytes of a tensor's first element in its storage."""
    return int(tensor.storage_offset()) * tensor.element_size()


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Returns the number of elements from a view's first one to its last; 0 for an empty view."""
    if 0 in shape:
        return 0
    return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1


def held(tensors: Sequence[torch.Tensor]) -> list[Held]:
    """Returns the parts of storages that tensors use, in the order of their first tensors. Bounds are multiples of
    every element's size."""
    found: dict[int, list[int]] = {}
    for number, tensor in enumerate(tensors):
        storage = tensor.untyped_storage()
        found.setdefault(storage._cdata if tensor.numel() else -1 - number, []).append(number)
    parts = []
    for numbers in found.values():
        ends = [_bounds(tensors[n]) for n in numbers]
        start = min(a for a, _ in ends) // ALIGNMENT * ALIGNMENT
        parts.append(Held(tuple(numbers), start, max(b for _, b in ends)))
    return parts


def _bounds(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor_start(tensor)
    return start, start + extent(tensor.shape, tensor.stride()) * tensor.element_size()


def copies(
    tensors: Iterable[torch.Tensor], change: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> list[torch.Tensor]:
    """Returns copies in memory of their own, laid out as the given tensors are, with elements changed by `change`."""
    given = [t.detach() for t in tensors]
    made: list[torch.Tensor] = list(given)
    for part in held(given):
        kinds = {given[n].dtype for n in part.numbers}
        first = given[part.numbers[0]]
        if part.plain(first) or len(kinds) > 1:
            for n in part.numbers:
                made[n] = _own(given[n], change)
            continue
        flat = flat_part(first, part)
        flat = flat.clone() if change is None else _own(flat, change)
        for n in part.numbers:
            tensor = given[n]
            made[n] = flat.as_strided(tensor.shape, tensor.stride(), part.offset(tensor))
    return made


def _own(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor] | None) -> torch.Tensor:
    if change is None:
        return tensor.clone()
    changed = change(tensor)
    return changed.clone() if changed is tensor or changed.data_ptr() == tensor.data_ptr() else changed


def forms(tensors: Sequence[torch.Tensor]) -> list[Any]:
    """Returns dtypes, shapes and layouts of tensors, and which of them share memory."""
    each = [(t.dtype, t.shape, t.stride(), t.storage_offset()) for t in tensors]
    return [each, held(tensors)]


def bytes_of(storage: Any, part: Held) -> torch.Tensor:
    """Returns a part of a storage as bytes."""
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return whole.set_(storage, part.start, (part.stop - part.start,))  # type: ignore[call-overload,no-any-return]


def flat_part(tensor: torch.Tensor, part: Held) -> torch.Tensor:
    """Returns all elements of the part of a storage as a flat view, of the dtype of a tensor that lies in it."""
    size = tensor.element_size()
    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return whole.set_(tensor.untyped_storage(), part.start // size, (-(-(part.stop - part.start) // size),))  # type: ignore[call-overload,no-any-return]
