"""Gives the bridged libraries tensors over device memory, from addresses with sizes and strides."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import torch

from kernelwright.errors import DeviceError

Inside = Callable[[int, int], bool]
"""Tells whether a range (start address, bytes) is device memory."""


def strided(
    address: int, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, inside: Inside, library: str
) -> torch.Tensor:
    """Returns a tensor that shares the elements at `address`; strides in elements, none negative.

    Raises a GPU's RuntimeError, with the name of the `library`, for memory outside the device.
    """
    if 0 in sizes:
        return torch.empty(tuple(sizes), dtype=dtype)
    count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    nbytes = count * dtype.itemsize
    if not inside(address, nbytes):
        raise DeviceError(f"CUDA error: an illegal memory access was encountered (in {library})")
    block = (ctypes.c_char * nbytes).from_address(address)
    return torch.frombuffer(block, dtype=dtype, count=count).as_strided(tuple(sizes), tuple(strides))


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Converts half precision to float32 for computing; returns other tensors unchanged."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
