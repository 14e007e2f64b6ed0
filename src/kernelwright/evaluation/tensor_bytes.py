"""A tensor as bytes with a dtype and a shape: the form in which tensors cross process boundaries. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field

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
}
"""Bytes per element of every dtype that may cross the channel, by torch's name."""


def shares_memory(output: int, given: int) -> str:
    """Returns the message about an output that lies in an input's memory."""
    return f"output {output} shares the memory of input {given}"


@dataclass(frozen=True)
class TensorBytes:
    """A tensor in transit: raw bytes in row-major order, with torch's dtype name and the shape."""

    data: bytes | bytearray | memoryview = field(repr=False)
    dtype: str
    shape: tuple[int, ...]

    def array(self) -> np.ndarray:
        """Returns the values as numpy; bfloat16 is widened to float32, which holds it exactly."""
        if self.dtype == "bfloat16":
            halves = np.frombuffer(self.data, dtype=np.uint16).astype(np.uint32)
            return (halves << 16).view(np.float32).reshape(self.shape)
        return np.frombuffer(self.data, dtype=np.dtype(self.dtype)).reshape(self.shape)
