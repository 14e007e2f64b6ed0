"""Classifies an exception by its type as a device fault or as out of memory. Runs in the children."""

from __future__ import annotations

from typing import Literal

import torch

from kernelwright.errors import DeviceError

_DEVICE = (DeviceError, torch.AcceleratorError)
_MEMORY = (MemoryError, torch.OutOfMemoryError)


def cause_of(error: BaseException) -> Literal["", "device", "memory"]:
    """Returns `device` for an error of the CUDA runtime or driver, `memory` if memory ran out, else an empty string."""
    if isinstance(error, _MEMORY):
        return "memory"
    if isinstance(error, _DEVICE):
        return "device"
    # torch's allocator for host memory raises a bare RuntimeError, which only its text identifies.
    bare = isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)
    return "memory" if bare else ""


def type_name(error: BaseException) -> str:
    """Returns the name of an exception's type: `RuntimeError` for our `DeviceError`, as torch names it."""
    return "RuntimeError" if isinstance(error, DeviceError) else type(error).__name__
