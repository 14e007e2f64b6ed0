"""Expands a Triton kernel's signature and arguments into the parameters of its PTX, for Triton 3.6 to 3.9.

A host-side tensor descriptor becomes a base pointer, its shape and strides, and flags, unless the kernel takes it as a
tensor map of the hardware. Triton's own functions for that are private and differ between versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from triton.tools.tensor_descriptor import TensorDescriptor

TENSOR_MAP = "nvTmaDesc"
"""The type of a parameter that holds a tensor map of the hardware."""
_ROUNDS = "round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__
"""True if descriptors have that flag, which is a parameter, too."""
_DESCRIPTOR = re.compile(r"tensordesc\w*<([^[>]*)\[([^\]]*)\]")
_RANK = re.compile(r",input_rank=(\d+)")


def expanded(signature: Sequence[Any], tensor_maps: bool) -> Iterator[str]:
    """Yields the type of each parameter, constants omitted. `tensor_maps`: descriptors are passed as tensor maps."""
    for one in signature:
        if isinstance(one, tuple):
            yield from expanded(one, tensor_maps)
        elif one.startswith("tensordesc"):
            yield from _descriptor(one, tensor_maps)
        elif one != "constexpr":
            yield one


def _descriptor(described: str, tensor_maps: bool) -> Iterator[str]:
    found, rank = _DESCRIPTOR.match(described), _RANK.search(described)
    if found is None:
        raise ValueError(f"a tensor descriptor of type {described[:100]!r}")
    sides = int(rank[1]) if rank else found[2].count(",") + 1
    if tensor_maps:
        yield TENSOR_MAP
    else:
        yield "*" + found[1]
        yield from ["i64"] * (2 * sides)
        yield from ["i1"] * (2 if _ROUNDS else 1)
    yield from ["i32"] * sides
    yield from ["i64"] * sides


@dataclass(frozen=True)
class Mapped:
    """A descriptor that a kernel takes as a tensor map, with the compiler's metadata for that map."""

    descriptor: Any
    metadata: Any


def arguments(signature: Sequence[Any], values: Sequence[Any], maps: Sequence[Any] = ()) -> Iterator[Any]:
    """Yields a kernel's arguments: tuples flattened, constants omitted, descriptors as pointer and numbers, or with
    `maps`, the metadata of the kernel's tensor maps in order, as `Mapped`."""
    return _arguments(signature, values, iter(maps) if maps else None)


def _arguments(signature: Sequence[Any], values: Sequence[Any], maps: Iterator[Any] | None) -> Iterator[Any]:
    for one, value in zip(signature, values, strict=True):
        if isinstance(one, tuple):
            yield from _arguments(one, value, maps)
        elif one.startswith("tensordesc"):
            if maps is not None:
                yield Mapped(value, next(maps))
            else:
                flags = [value.padding == "nan", *([value.round_f32_to_tf32] if _ROUNDS else [])]
                yield from [value.base, *value.shape, *value.strides, *flags]
            yield from [*value.shape, *value.strides]
        elif one != "constexpr":
            yield value
