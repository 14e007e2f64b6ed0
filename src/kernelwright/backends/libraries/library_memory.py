"""Device memory as the bridged libraries read and write it: addresses with sizes and strides."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import torch

Inside = Callable[[int, int], bool]
"""Whether a range of addresses, start and bytes, is memory of the device."""


def strided(
    address: int, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, inside: Inside, library: str
) -> torch.Tensor:
    """The elements at `address`, shared; strides in elements, none negative.

    Raises what a GPU would say of memory that is not the device's, with the name of the `library`.
    """
    if 0 in sizes:
        return torch.empty(tuple(sizes), dtype=dtype)
    count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    nbytes = count * dtype.itemsize
    if not inside(address, nbytes):
        raise RuntimeError(f"CUDA error: an illegal memory access was encountered (in {library})")
    block = (ctypes.c_char * nbytes).from_address(address)
    return torch.frombuffer(block, dtype=dtype, count=count).as_strided(tuple(sizes), tuple(strides))


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The values to compute with: those of half precision as float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
