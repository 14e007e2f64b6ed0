"""Encodes tensor maps for TMA copies (`cuTensorMapEncodeTiled`) in the machine's own format."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from kernelwright.machine import library

SIZE = 128
TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16")
"""Element types, indexed by their number in `CUtensorMapDataType`."""
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


def encode_tiled(
    kind: str,
    address: int,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    element_strides: Sequence[int] | None = None,
    *,
    swizzle: int = 0,
    fill_nan: bool = False,
) -> bytes:
    """Returns the 128-byte tensor map. Dimensions start at the innermost; `strides` are bytes and skip the innermost.

    `swizzle` is 0, 32, 64 or 128 bytes. Raises `ValueError` for the arguments that the driver refuses.
    """
    rank = len(dims)
    steps = element_strides or [1] * rank
    if not (len(box) == len(steps) == rank and len(strides) == max(rank - 1, 0)) or rank > 5:
        raise ValueError("dims, strides, box and element_strides do not have matching lengths")
    memory = ctypes.create_string_buffer(SIZE + 64)
    aligned = ctypes.addressof(memory) + -ctypes.addressof(memory) % 64
    wide, narrow = ctypes.c_uint64 * 5, ctypes.c_uint32 * 5
    status = library.load().kw_encode_tiled(
        aligned,
        TYPES.index(kind),
        rank,
        address,
        wide(*dims),
        wide(*strides),
        narrow(*box),
        narrow(*steps),
        0,
        SWIZZLES[swizzle],
        0,
        int(fill_nan),
    )
    if status:
        raise ValueError(f"no tensor map can be made of this (CUresult {status})")
    return ctypes.string_at(aligned, SIZE)
