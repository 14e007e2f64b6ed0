"""All task families in a fixed order: what is generated depends on it."""

from __future__ import annotations

from kernelwright.tasks.generate import convolution, matmul, norms, reductions, unary
from kernelwright.tasks.generate.registry import Family


def families() -> list[Family]:
    """Every family."""
    return [
        *matmul.families(),
        *convolution.families(),
        *norms.families(),
        *reductions.families(),
        *(unary.family(op) for op in (*unary.ACTIVATIONS, *unary.MATH)),
    ]
