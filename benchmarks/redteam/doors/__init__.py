"""The doors: ways to obtain or make up an answer without own kernels that compute it, by family."""

from __future__ import annotations

from redteam.doors import below, conditions, harness, moves, native, operators, records, smuggled, timing, values
from redteam.pieces import Door

__all__ = ["DOORS"]

DOORS: tuple[Door, ...] = (
    *operators.DOORS,
    *below.DOORS,
    *values.DOORS,
    *native.DOORS,
    *moves.DOORS,
    *conditions.DOORS,
    *smuggled.DOORS,
    *harness.DOORS,
    *records.DOORS,
    *timing.DOORS,
)
