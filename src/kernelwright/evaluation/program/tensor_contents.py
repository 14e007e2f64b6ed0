"""Compares the contents of a call's tensors, and writes other contents into the same memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.tasks import storages

_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their size in bytes."""


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tells whether two tensors hold the same values, NaN equal to NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.dtype.is_floating_point and not a.dtype.is_complex:
        return bool(torch.equal(a, b))
    # Bits first: the first use of each operator costs a fresh process on a GPU milliseconds.
    whole = _WHOLE.get(a.element_size()) if a.dtype.is_floating_point else None
    if whole is not None and bool((a.view(whole) == b.view(whole)).all()):
        return True
    if a.element_size() == 1:  # torch compares no 8-bit floats
        a, b = a.to(torch.float32), b.to(torch.float32)
    return bool(((a == b) | ((a != a) & (b != b))).all())


def overwritten(old: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns tensors with the values of others that are laid out in the same way, written as a kernel would: torch's
    version counter does not show it. Returns the others where they are laid out differently."""
    if storages.forms(old) != storages.forms(new):
        return list(new)
    for part in storages.held(new):
        first = part.numbers[0]
        source, to = (storages.bytes_of(t[first].untyped_storage(), part) for t in (new, old))
        to.copy_(source)
    return list(old)


def changed(before: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> list[int]:
    """Returns the numbers of tensors that hold other values now, whatever a candidate has made of their class and
    methods."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        now = [torch.Tensor.detach(t) for t in given]
        return [i for i, (a, b) in enumerate(zip(before, now, strict=True)) if not same_bits(a, b)]
