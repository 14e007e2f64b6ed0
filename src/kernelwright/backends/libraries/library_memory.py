"""Gives the bridged libraries tensors over device memory, from addresses with sizes and strides."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.errors import DeviceError

Memory = Callable[[int, Sequence[int], Sequence[int], torch.dtype], torch.Tensor]
"""Returns a tensor that shares the device's elements at an address, from sizes and strides in elements (none negative).

Raises a GPU's RuntimeError for memory outside the device.
"""


def handles(runtime: Any, library: str) -> Memory:
    """Returns the memory of a process in which CUDA tensors are handles; errors name the `library`."""

    def tensor(address: int, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        if 0 in sizes:
            return torch.empty(tuple(sizes), dtype=dtype, device="meta")
        if not runtime.is_device(address):
            raise _illegal(library)
        made: torch.Tensor = runtime.tensor_at(address, dtype, list(sizes), list(strides))
        return made

    return tensor


def in_process(inside: Callable[[int, int], bool], library: str) -> Memory:
    """Returns the memory of a process that holds the simulated device; `inside` takes a start address and bytes."""

    def tensor(address: int, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        if 0 in sizes:
            return torch.empty(tuple(sizes), dtype=dtype)
        count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        nbytes = count * dtype.itemsize
        if not inside(address, nbytes):
            raise _illegal(library)
        block = (ctypes.c_char * nbytes).from_address(address)
        return torch.frombuffer(block, dtype=dtype, count=count).as_strided(tuple(sizes), tuple(strides))

    return tensor


def _illegal(library: str) -> DeviceError:
    return DeviceError(f"CUDA error: an illegal memory access was encountered (in {library})")


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Converts half precision to float32 for computing; returns other tensors unchanged."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
