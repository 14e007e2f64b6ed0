"""All task families in a fixed order: what is generated depends on it."""

from __future__ import annotations

from kernelwright.generate.families import (
    binary,
    blocks,
    convolution,
    fused,
    indexing,
    losses,
    matmul,
    networks,
    norms,
    pooling,
    rare,
    reductions,
    scans,
    softmaxes,
    unary,
)
from kernelwright.generate.programs import programs
from kernelwright.generate.registry import Family


def families() -> list[Family]:
    """Every family."""
    return [
        *matmul.families(),
        *convolution.families(),
        *norms.families(),
        *reductions.families(),
        *pooling.families(),
        *scans.families(),
        *losses.families(),
        *binary.families(),
        *softmaxes.families(),
        *indexing.families(),
        *fused.families(),
        *blocks.families(),
        *programs.families(),
        *networks.families(),
        *rare.families(),
        *(unary.family(op) for op in (*unary.ACTIVATIONS, *unary.MATH)),
    ]
