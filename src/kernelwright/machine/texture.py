"""Texture and surface descriptors of a launch: they describe host memory and are keyed by the kernel's handle.

`Texture` mirrors `KwTexture` of `csrc/memory/texture.h`. Arrays are plain row-major memory of this process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.machine.device_memory import Shadow, ShadowEntry

KINDS = ("linear", "pitch", "array")
SHAPES = ("1d", "2d", "3d", "1d_layered", "2d_layered", "cube", "cube_layered")
ADDRESS_MODES = ("wrap", "clamp", "mirror", "border")
CHANNELS = ("signed", "unsigned", "float")


@dataclass(frozen=True)
class Texture:
    """A texture or surface object: the memory of its texels and its sampling modes.

    `handle` is the 64-bit value passed to the kernel (cudaTextureObject_t or cudaSurfaceObject_t). `pitch` and `slice`
    are the bytes between rows and between depth slices or layers; 0 means packed. `channel_bits` holds 8, 16 or 32 for
    each of one, two or four channels, the rest 0. A cube has six layers. `address_modes` are for x, y, z.
    """

    handle: int
    base: int
    width: int
    height: int = 1
    depth: int = 1
    layers: int = 1
    kind: str = "array"
    shape: str = "2d"
    pitch: int = 0
    slice: int = 0
    channel: str = "float"
    channel_bits: tuple[int, int, int, int] = (32, 0, 0, 0)
    address_modes: tuple[str, str, str] = ("clamp", "clamp", "clamp")
    linear_filter: bool = False
    normalized_float: bool = False
    normalized_coords: bool = False
    surface: bool = False
    border: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    shadow: Shadow | None = None
    """Of an array: its written bytes. None: every byte is written."""


class TextureEntry(ctypes.Structure):
    """Mirrors `KwTexture` of memory/texture.h."""

    _fields_ = [
        ("handle", ctypes.c_uint64),
        ("base", ctypes.c_uint64),
        ("pitch", ctypes.c_uint64),
        ("slice", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
        ("shape", ctypes.c_uint32),
        ("width", ctypes.c_uint32),
        ("height", ctypes.c_uint32),
        ("depth", ctypes.c_uint32),
        ("layers", ctypes.c_uint32),
        ("channel_kind", ctypes.c_uint32),
        ("channel_bits", ctypes.c_uint32 * 4),
        ("address_mode", ctypes.c_uint32 * 3),
        ("linear_filter", ctypes.c_uint32),
        ("normalized_float", ctypes.c_uint32),
        ("normalized_coords", ctypes.c_uint32),
        ("surface", ctypes.c_uint32),
        ("border", ctypes.c_float * 4),
        ("shadow", ctypes.POINTER(ShadowEntry)),
    ]


def entries(textures: Sequence[Texture]) -> ctypes.Array[TextureEntry]:
    """Converts descriptors to the library's structures. Raises `ValueError` for an unknown kind, shape or mode."""
    table = (TextureEntry * max(len(textures), 1))()
    for row, t in zip(table, textures, strict=False):
        row.handle, row.base, row.pitch, row.slice = t.handle, t.base, t.pitch, t.slice
        row.kind, row.shape = KINDS.index(t.kind), SHAPES.index(t.shape)
        row.width, row.height, row.depth, row.layers = t.width, t.height, t.depth, t.layers
        row.channel_kind = CHANNELS.index(t.channel)
        row.channel_bits[:] = t.channel_bits
        row.address_mode[:] = tuple(ADDRESS_MODES.index(mode) for mode in t.address_modes)
        row.linear_filter, row.normalized_float = int(t.linear_filter), int(t.normalized_float)
        row.normalized_coords, row.surface = int(t.normalized_coords), int(t.surface)
        row.border[:] = t.border
        if t.shadow is not None:
            row.shadow = ctypes.pointer(t.shadow.entry)
    return table
