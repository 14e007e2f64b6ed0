"""The occupancy calculator: the values of CUDA's own, and invariants for any kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.errors import UsageError
from kernelwright.profile.occupancy import LIMITS, occupancy

KIB = 1024
arches = st.sampled_from(sorted(LIMITS))
threads = st.integers(1, 1024)
registers = st.integers(0, 255)
shared = st.integers(0, 230 * KIB)


@pytest.mark.parametrize(
    "arch, block, regs, smem, blocks, limiter",
    [
        (90, 256, 32, 0, 8, "registers"),
        (90, 256, 24, 0, 8, "warps"),
        (90, 256, 64, 0, 4, "registers"),
        (90, 1024, 64, 0, 1, "registers"),
        (90, 1024, 65, 0, 0, "registers"),
        (90, 128, 168, 0, 3, "registers"),
        (90, 128, 255, 0, 2, "registers"),
        (90, 32, 16, 0, 32, "blocks"),
        (90, 256, 32, 100 * KIB, 2, "shared memory"),
        (90, 256, 32, 227 * KIB, 1, "shared memory"),
        (90, 256, 32, 227 * KIB + 1, 0, "shared memory"),
        (75, 256, 32, 0, 4, "warps"),
        (75, 64, 32, 0, 16, "warps"),
        (80, 1024, 32, 0, 2, "registers"),
        (86, 1024, 32, 0, 1, "warps"),
        (89, 512, 40, 48 * KIB, 2, "shared memory"),
        (120, 256, 40, 0, 6, "registers"),
    ],
)
def test_known_values(arch: int, block: int, regs: int, smem: int, blocks: int, limiter: str) -> None:
    found = occupancy(arch, block, regs, smem)
    assert (found.blocks, found.limiter) == (blocks, limiter)
    assert found.warps == blocks * -(-block // 32)


@given(arches, threads, registers, shared)
def test_bounds(arch: int, block: int, regs: int, smem: int) -> None:
    found, most = occupancy(arch, block, regs, smem), LIMITS[arch]
    assert 0 <= found.fraction <= 1 and 0 <= found.blocks <= most.blocks and found.warps <= most.warps
    assert found.blocks * -(-block // 32) * 32 * regs <= most.registers
    assert found.blocks * (smem + most.reserved) <= most.shared


@given(arches, threads, registers, shared, st.integers(0, 50), st.integers(0, 20 * KIB))
def test_more_resources_never_fit_more_blocks(
    arch: int, block: int, regs: int, smem: int, more_regs: int, more: int
) -> None:
    first = occupancy(arch, block, regs, smem).blocks
    assert occupancy(arch, block, min(255, regs + more_regs), smem + more).blocks <= first


@given(arches, st.integers(1, 1023), registers, shared)
def test_larger_blocks_never_fit_more_often(arch: int, block: int, regs: int, smem: int) -> None:
    assert occupancy(arch, block + 1, regs, smem).blocks <= occupancy(arch, block, regs, smem).blocks


def test_what_cannot_be_asked() -> None:
    assert occupancy(90, 1025, 32).limiter == "block size"
    with pytest.raises(UsageError, match="sm_61"):
        occupancy(61, 128, 32)
    for wrong in ((90, 0, 32, 0), (90, 32, -1, 0), (90, 32, 32, -1)):
        with pytest.raises(UsageError, match="at least one thread"):
            occupancy(*wrong)
