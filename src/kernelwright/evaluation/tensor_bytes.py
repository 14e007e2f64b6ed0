"""A tensor as bytes with a dtype and a shape: the form in which tensors cross process boundaries. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

ITEM_SIZES = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
}
"""Bytes per element of every dtype that may cross the channel, by torch's name."""


def shares_memory(output: int, given: int) -> str:
    """Returns the message about an output that lies in an input's memory."""
    return f"output {output} shares the memory of input {given}"


@dataclass(frozen=True)
class View:
    """The layout of a tensor that is not plain: strides and offset in elements. `shares` is the number of an earlier
    tensor of the same message whose memory it lies in."""

    strides: tuple[int, ...]
    offset: int
    shares: int | None = None


@dataclass(frozen=True)
class TensorBytes:
    """A tensor in transit, with torch's dtype name and the shape: its bytes in row-major order, or with a `view` the
    bytes of the memory that it lies in."""

    data: bytes | bytearray | memoryview = field(repr=False)
    dtype: str
    shape: tuple[int, ...]
    view: View | None = None

    def array(self) -> np.ndarray:
        """Returns the values as numpy; bfloat16 and 8-bit floats are widened to float32, which holds them exactly."""
        if self.view is not None:
            raise ValueError("the bytes of a view are not in row-major order")
        if self.dtype == "bfloat16":
            halves = np.frombuffer(self.data, dtype=np.uint16).astype(np.uint32)
            return (halves << 16).view(np.float32).reshape(self.shape)
        if self.dtype in SMALL_FLOATS:
            return _decoded(self.dtype)[np.frombuffer(self.data, dtype=np.uint8)].reshape(self.shape)
        return np.frombuffer(self.data, dtype=np.dtype(self.dtype)).reshape(self.shape)


@dataclass(frozen=True)
class SmallFloat:
    """An 8-bit format: bits of the fraction, the exponent's bias, and its special values."""

    fraction: int
    bias: int
    infinities: bool = False
    unsigned: bool = False
    """One NaN in place of minus zero."""

    @property
    def least(self) -> int:
        """Returns the exponent of the smallest normal number."""
        return 1 - self.bias


SMALL_FLOATS = {
    "float8_e4m3fn": SmallFloat(3, 7),
    "float8_e5m2": SmallFloat(2, 15, infinities=True),
    "float8_e4m3fnuz": SmallFloat(3, 8, unsigned=True),
    "float8_e5m2fnuz": SmallFloat(2, 16, unsigned=True),
}
"""The 8-bit floating-point formats by torch's name."""


@cache
def _decoded(dtype: str) -> np.ndarray:
    """Returns the value of each of an 8-bit format's 256 codes."""
    form = SMALL_FLOATS[dtype]
    codes = np.arange(256)
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent = (codes & 0x7F) >> form.fraction
    fraction = (codes & ((1 << form.fraction) - 1)) / (1 << form.fraction)
    normal = exponent > 0
    value = sign * np.ldexp(fraction + normal, np.where(normal, exponent, 1) - form.bias)
    highest = (1 << (7 - form.fraction)) - 1
    if form.unsigned:
        value[0x80] = np.nan
    elif form.infinities:
        value[exponent == highest] = np.nan
        value[(exponent == highest) & (fraction == 0)] = np.inf
        value *= np.where(np.isinf(value), sign, 1.0)
    else:
        value[(codes & 0x7F) == 0x7F] = np.nan
    return value.astype(np.float32)
