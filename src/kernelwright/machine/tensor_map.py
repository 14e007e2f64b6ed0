"""Encodes tensor maps for TMA copies (`cuTensorMapEncodeTiled`) in the machine's own format, and reads that format.

A process without a GPU makes maps in this format. Whoever launches on a GPU has the driver encode them anew.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from kernelwright.machine import library

SIZE = 128
_MAGIC = 0x6B774D31
TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16")
"""Element types, indexed by their number in `CUtensorMapDataType`."""
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


class TensorMap(ctypes.Structure):
    """A map in the machine's format; mirrors `kw::TensorMap` of csrc/copies/tensor_map.h."""

    _fields_ = [
        ("magic", ctypes.c_uint32),
        ("type", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("swizzle", ctypes.c_uint8),
        ("fill_nan", ctypes.c_uint8),
        ("im2col", ctypes.c_uint8),
        ("element_bytes", ctypes.c_uint8),
        ("more", ctypes.c_uint8 * 2),
        ("element_stride", ctypes.c_uint8 * 5),
        ("more2", ctypes.c_uint8 * 7),
        ("address", ctypes.c_uint64),
        ("last", ctypes.c_uint32 * 5),
        ("more3", ctypes.c_uint32),
        ("stride", ctypes.c_uint64 * 4),
        ("box", ctypes.c_uint16 * 5),
        ("lower", ctypes.c_int8 * 3),
        ("upper", ctypes.c_int8 * 3),
        ("more4", ctypes.c_uint64 * 3),
    ]


def described(
    kind: int,
    element_bytes: int,
    address: int,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    fill_nan: bool,
) -> bytes:
    """Returns a map of tiles without asking the machine's library, for code that a GPU runs.

    `kind` is the number of a `CUtensorMapDataType`, `swizzle` of a `CUtensorMapSwizzle`; the rest is as in
    `encode_tiled`. Raises `ValueError` for numbers that no map can hold.
    """
    rank = len(dims)
    if not (1 <= rank <= 5 and len(box) == rank and len(strides) == rank - 1) or not all(
        0 < n <= 1 << 32 for n in dims
    ):
        raise ValueError("no tensor map has these dimensions")
    made = TensorMap(_MAGIC, kind, rank, swizzle, int(fill_nan), 0, element_bytes, address=address)
    made.element_stride[:rank] = [1] * rank
    made.last[:rank] = [n - 1 for n in dims]
    made.stride[: rank - 1] = list(strides)
    made.box[:rank] = list(box)
    return bytes(made)


def found(data: bytes) -> list[tuple[int, TensorMap]]:
    """Returns the maps of tiles in this format among a parameter's bytes, with their offsets."""
    if len(data) < SIZE:
        return []
    maps = [(at, TensorMap.from_buffer_copy(data, at)) for at in range(0, len(data) - SIZE + 1, 64)]
    return [(at, one) for at, one in maps if one.magic == _MAGIC and 1 <= one.rank <= 5 and not one.im2col]


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
