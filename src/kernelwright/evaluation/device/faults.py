"""Tells by its type whether an exception is a fault of the device or the end of memory. Runs in the children."""

from __future__ import annotations

from typing import Literal

import torch

from kernelwright.errors import DeviceError

_DEVICE = (DeviceError, torch.AcceleratorError)
_MEMORY = (MemoryError, torch.OutOfMemoryError)


def cause_of(error: BaseException) -> Literal["", "device", "memory"]:
    """Returns `device` for an error of the CUDA runtime or driver, `memory` where memory ended, else nothing."""
    if isinstance(error, _MEMORY):
        return "memory"
    if isinstance(error, _DEVICE):
        return "device"
    # torch's allocator for host memory raises a bare RuntimeError: where it is raised, its text is all there is.
    bare = isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)
    return "memory" if bare else ""


def type_name(error: BaseException) -> str:
    """Returns the name of an exception's type; ours for the device goes by torch's base, as candidates know it."""
    return "RuntimeError" if isinstance(error, DeviceError) else type(error).__name__
