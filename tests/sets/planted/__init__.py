"""Twelve correct kernels of our own and sixty planted bugs in them, which `planted_bugs.py` gives to the judge."""

from sets.planted import rows, tiles, warps
from sets.planted.case import Mutant, Original, named

__all__ = ["MUTANTS", "ORIGINALS", "Mutant", "Original", "named"]

ORIGINALS: tuple[Original, ...] = (*rows.CASES, *tiles.CASES, *warps.CASES)
MUTANTS: tuple[tuple[Original, Mutant], ...] = tuple((o, m) for o in ORIGINALS for m in o.mutants)
