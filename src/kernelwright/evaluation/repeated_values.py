"""Defines inputs of any size by a few values: a device maps them many times, and an oracle computes any part of them.

A pattern of `PATTERN` bytes, filled with the values from their first on, is repeated over the tensor. Its length in
pages is a prime, so that no offset of a power of two finds the values of another place.
"""

from __future__ import annotations

import numpy as np

PAGE = 4096
PATTERN = 521 * PAGE
"""The bytes of the pattern: a whole number of pages, and of values of up to 16 bytes."""


def pattern(sample: bytes) -> bytes:
    """Returns the pattern of a sample's bytes."""
    return (sample * (-(-PATTERN // len(sample))))[:PATTERN]


def places(first: int, count: int, itemsize: int, values: int) -> np.ndarray:
    """Returns, for `count` elements of a tensor from the flat index `first` on, their indices among the sample's
    values."""
    at = np.arange(first, first + count, dtype=np.int64) * itemsize % PATTERN
    return at // itemsize % values
