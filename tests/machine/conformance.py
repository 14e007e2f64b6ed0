"""Runs conformance cases: one CUDA file of `kernels/`, its launches, and numpy's expected results."""

from __future__ import annotations

import ctypes
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from machine_launch import dims

from kernelwright.cuda import parameters
from kernelwright.machine import Allocation, LaunchOptions, Program
from kernelwright.machine.nvrtc import ARCH, NvrtcResult, compile_ptx

KERNELS = Path(__file__).parent / "kernels"


@dataclass
class Run:
    """One launch. `expected` maps the position of an array argument to its contents after the launch.

    `kernel` is a name or an instance such as `scale<float, 4>`; `symbols` are set before the launch. `error` is the
    largest difference allowed, relative to the largest expected magnitude of that array (0 means equal values). In
    `unordered` arguments the values may have any order.
    """

    kernel: str
    grid: int | Sequence[int]
    block: int | Sequence[int]
    args: Sequence[Any]
    expected: dict[int, np.ndarray]
    shared: int = 0
    error: float = 1e-6
    symbols: dict[str, np.ndarray] = field(default_factory=dict)
    unordered: tuple[int, ...] = ()


@dataclass(frozen=True)
class Strided:
    """An array passed to the kernel as a packed accessor with 32-bit sizes, of every `steps`-th row and column."""

    array: np.ndarray
    steps: tuple[int, int]

    def pack(self, address: int) -> bytes:
        view = self.array[:: self.steps[0], :: self.steps[1]]
        strides = [stride // view.itemsize for stride in view.strides]
        return struct.pack("<Q4i", address, *view.shape, *strides)


@dataclass
class Case:
    """A file of `kernels/` with the launches that `make(rng)` describes."""

    name: str
    flags: tuple[str, ...]
    make: Callable[[np.random.Generator], list[Run]]

    def runs(self) -> list[Run]:
        return self.make(np.random.default_rng(zlib.crc32(self.name.encode())))


CASES: dict[str, Case] = {}


def case(*flags: str) -> Callable[[Callable[[np.random.Generator], list[Run]]], None]:
    """Registers a function named like its CUDA file."""

    def register(make: Callable[[np.random.Generator], list[Run]]) -> None:
        CASES[make.__name__] = Case(make.__name__, flags, make)

    return register


@cache
def compiled(name: str, flags: tuple[str, ...], kernels: tuple[str, ...], arch: str) -> NvrtcResult:
    result = compile_ptx(
        (KERNELS / f"{name}.cu").read_text(), arch=arch, flags=flags, expressions=kernels, name=f"{name}.cu"
    )
    assert result.ok, result.log
    return result


def compile_case(case: Case, runs: list[Run], arch: str = ARCH) -> NvrtcResult:
    """Compiles a case's device code with the kernels that its launches name."""
    return compiled(case.name, case.flags, tuple(dict.fromkeys(run.kernel for run in runs)), arch)


@cache
def loaded(ptx: str) -> Program:
    return Program.load(ptx)


def check(case: Case, order: str) -> None:
    """Runs every launch of a case in one order and compares; a warning of the machine fails the case too."""
    runs = case.runs()
    code = compile_case(case, runs)
    program = loaded(code.ptx)
    for run in runs:
        for symbol, value in run.symbols.items():
            address, nbytes = program.global_symbol(symbol)
            assert nbytes == value.nbytes
            ctypes.memmove(address, value.ctypes.data, nbytes)
        entry = code.lowered[run.kernel]
        arrays = {k: v.copy() for k, v in arrays_of(run).items()}
        packed = pack(run, code.ptx, entry, {k: v.ctypes.data for k, v in arrays.items()})
        table = [Allocation(a.ctypes.data, a.nbytes, f"argument {k}") for k, a in arrays.items()]
        options = LaunchOptions(order=order, seed=7)
        report = program.launch(entry, dims(run.grid), dims(run.block), packed, run.shared, table, options)
        assert not report.warnings, report.warnings[0]
        compare(case, run, arrays)


def arrays_of(run: Run) -> dict[int, np.ndarray]:
    """Returns the memory of a launch before it, by position of the argument."""
    found = {k: arg.array if isinstance(arg, Strided) else arg for k, arg in enumerate(run.args)}
    return {k: arg for k, arg in found.items() if isinstance(arg, np.ndarray)}


def pack(run: Run, ptx: str, entry: str, addresses: dict[int, int]) -> list[bytes]:
    """Returns every argument as the bytes of its parameter, with the arrays at `addresses`."""
    packed = []
    for position, (arg, parameter) in enumerate(zip(run.args, parameters(ptx, entry), strict=True)):
        if isinstance(arg, Strided):
            packed.append(arg.pack(addresses[position]))
        elif isinstance(arg, np.ndarray):
            packed.append(struct.pack("<Q", addresses[position]))
        elif isinstance(arg, float):
            packed.append(struct.pack("<f" if parameter.size == 4 else "<d", arg))
        else:
            packed.append(
                arg if isinstance(arg, bytes) else int(arg).to_bytes(parameter.size, "little", signed=arg < 0)
            )
    return packed


def compare(case: Case, run: Run, arrays: dict[int, np.ndarray]) -> None:
    """Compares the arrays after a launch with the case's expected ones."""
    for position, expected in run.expected.items():
        got = arrays[position]
        if position in run.unordered:
            got, expected = np.sort(got), np.sort(expected)
        _compare(f"{case.name}: argument {position} of {run.kernel}", got, expected, run.error)


def _compare(what: str, got: np.ndarray, expected: np.ndarray, error: float) -> None:
    assert got.shape == expected.shape, what
    if error == 0 or not np.issubdtype(got.dtype, np.floating):
        np.testing.assert_array_equal(got, expected, err_msg=what)
        return
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(got[~finite], expected[~finite], err_msg=what)
    scale = float(np.abs(expected[finite]).max(initial=0.0)) or 1.0
    difference = np.abs(got[finite].astype(np.float64) - expected[finite].astype(np.float64)) / scale
    assert difference.max(initial=0.0) <= error, f"{what}: off by {difference.max():.3g} of {scale:.3g}"


# --- what several files of cases use -------------------------------------------------------------------------------


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Returns single-precision values around zero."""
    return rng.standard_normal(shape).astype(np.float32)


def unwritten(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Returns an unwritten output: NaN, or -1 in integers."""
    empty = np.empty(shape, dtype)
    empty.view(np.uint8)[...] = 0xFF
    return empty


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """Returns the bits of bfloat16 numbers, rounded to nearest even; numpy has no such type."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_values(bits: np.ndarray) -> np.ndarray:
    """Returns the single-precision values of bfloat16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
