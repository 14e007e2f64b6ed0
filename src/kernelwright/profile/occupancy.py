"""Computes occupancy, the resident warps of a kernel on a multiprocessor, as CUDA's own calculator does.

Limits come from the CUDA Programming Guide's table of technical specifications per compute capability. They are
combined as in `cuda_occupancy.h`, which ships with the toolkit. No GPU is queried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from kernelwright.errors import UsageError
from kernelwright.profile.facts import Occupancy

WARP = 32
MAX_BLOCK = 1024
MAX_REGISTERS = 255
"""The bound on registers per thread, for every capability listed here."""
KIB = 1024
_NO_LIMIT = 1 << 20
_Limiter = Literal["registers", "shared memory", "warps", "blocks"]


@dataclass(frozen=True)
class OccupancyLimits:
    """Limits of one multiprocessor, in registers and bytes."""

    warps: int
    blocks: int
    shared: int
    """Shared memory of all blocks together."""
    shared_block: int
    """The bound on one block's shared memory, with opt-in."""
    shared_unit: int
    reserved: int
    """Shared memory that the driver reserves per block."""
    registers: int = 65536
    register_unit: int = 256
    """Allocation granularity of a warp's registers."""
    partitions: int = 4
    """Partitions of the register file; a warp's registers come from one of them."""


LIMITS: dict[int, OccupancyLimits] = {
    70: OccupancyLimits(64, 32, 96 * KIB, 96 * KIB, 256, 0),
    72: OccupancyLimits(64, 32, 96 * KIB, 96 * KIB, 256, 0),
    75: OccupancyLimits(32, 16, 64 * KIB, 64 * KIB, 256, 0),
    80: OccupancyLimits(64, 32, 164 * KIB, 163 * KIB, 128, KIB),
    86: OccupancyLimits(48, 16, 100 * KIB, 99 * KIB, 128, KIB),
    87: OccupancyLimits(48, 16, 164 * KIB, 163 * KIB, 128, KIB),
    89: OccupancyLimits(48, 24, 100 * KIB, 99 * KIB, 128, KIB),
    90: OccupancyLimits(64, 32, 228 * KIB, 227 * KIB, 128, KIB),
    100: OccupancyLimits(64, 32, 228 * KIB, 227 * KIB, 128, KIB),
    103: OccupancyLimits(64, 32, 228 * KIB, 227 * KIB, 128, KIB),
    110: OccupancyLimits(48, 24, 228 * KIB, 227 * KIB, 128, KIB),
    120: OccupancyLimits(48, 24, 100 * KIB, 99 * KIB, 128, KIB),
    121: OccupancyLimits(48, 24, 100 * KIB, 99 * KIB, 128, KIB),
}


def limits(arch: int) -> OccupancyLimits:
    """Returns the limits of a compute capability times ten (90 for 9.0); raises `UsageError` if it is not listed."""
    if arch not in LIMITS:
        known = ", ".join(f"sm_{a}" for a in LIMITS)
        raise UsageError(f"no occupancy limits are known for sm_{arch}", hint=f"known are {known}")
    return LIMITS[arch]


def occupancy(arch: int, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Computes the occupancy of a kernel launched with blocks of `threads` threads.

    `registers` is per thread; `shared_bytes` is static plus dynamic shared memory per block, without the driver's
    reservation. A block that cannot be launched gives 0 blocks. Raises `UsageError` for an unlisted capability and
    for negative numbers.
    """
    if threads < 1 or registers < 0 or shared_bytes < 0:
        raise UsageError("a block has at least one thread, and no negative registers or bytes")
    most = limits(arch)
    if threads > MAX_BLOCK:
        return Occupancy(threads=threads, blocks=0, warps=0, fraction=0.0, limiter="block size")
    warps = -(-threads // WARP)
    fits: dict[str, int] = {
        "warps": most.warps // warps,
        "blocks": most.blocks,
        "registers": _by_registers(most, warps, registers),
        "shared memory": _by_shared(most, shared_bytes),
    }
    blocks = min(fits.values())
    # Of equal limits, report the one that a programmer can change.
    limiter = next(name for name in get_args(_Limiter) if fits[name] == blocks)
    resident = blocks * warps
    return Occupancy(threads=threads, blocks=blocks, warps=resident, fraction=resident / most.warps, limiter=limiter)


def _by_registers(most: OccupancyLimits, warps: int, registers: int) -> int:
    if registers == 0:
        return _NO_LIMIT
    if registers > MAX_REGISTERS:
        return 0
    a_warp = _up(registers * WARP, most.register_unit)
    if a_warp * _up(warps, most.partitions) > most.registers:
        return 0
    return most.registers // most.partitions // a_warp * most.partitions // warps


def _by_shared(most: OccupancyLimits, shared_bytes: int) -> int:
    if shared_bytes == 0:  # the driver's reservation alone is never the limit
        return _NO_LIMIT
    if shared_bytes > most.shared_block:
        return 0
    return most.shared // _up(shared_bytes + most.reserved, most.shared_unit)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
