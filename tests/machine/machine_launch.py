"""Launches of the CUDA machine for tests: CUDA text in, numpy arrays as memory."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from kernelwright.machine import Allocation, LaunchAttributes, LaunchOptions, LaunchReport, Program
from kernelwright.machine.nvrtc import compile_ptx

ORDERS = ("forward", "reverse", "random")


@cache
def program(source: str, flags: tuple[str, ...] = ()) -> Program:
    """Returns the loaded program of a CUDA text."""
    result = compile_ptx(source, flags=flags)
    assert result.ok, result.log
    return Program.load(result.ptx)


def dims(value: int | Sequence[int]) -> tuple[int, int, int]:
    """Extends one to three sizes to CUDA's three."""
    sizes = [value] if isinstance(value, int) else list(value)
    x, y, z = sizes + [1] * (3 - len(sizes))
    return x, y, z


def launch(
    loaded: Program,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    shared: int = 0,
    **options: Any,
) -> LaunchReport:
    """Runs `kernel`; arrays become pointers and allocations, numbers are packed by the parameter's size."""
    allocations: list[Allocation] = []
    packed: list[bytes] = []
    for arg, (size, _) in zip(args, loaded.kernels[kernel].params, strict=True):
        if isinstance(arg, np.ndarray):
            allocations.append(Allocation(arg.ctypes.data, arg.nbytes, f"arg{len(packed)}"))
            packed.append(struct.pack("<Q", arg.ctypes.data))
        elif isinstance(arg, float):
            packed.append(struct.pack("<f" if size == 4 else "<d", arg))
        else:
            packed.append(arg if isinstance(arg, bytes) else int(arg).to_bytes(size, "little", signed=arg < 0))
    attributes = LaunchAttributes(options.pop("cooperative", False), options.pop("cluster", None))
    asked = LaunchOptions(**options, attributes=attributes)
    return loaded.launch(kernel, dims(grid), dims(block), packed, shared, allocations, asked)
