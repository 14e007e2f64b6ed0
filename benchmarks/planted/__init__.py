"""Twelve right kernels of our own and sixty planted bugs in them: what `planted_bugs.py` shows to the judge."""

from benchmarks.planted import rows, tiles, warps
from benchmarks.planted.case import Mutant, Original

ORIGINALS: tuple[Original, ...] = (*rows.CASES, *tiles.CASES, *warps.CASES)
MUTANTS: tuple[tuple[Original, Mutant], ...] = tuple((o, m) for o in ORIGINALS for m in o.mutants)
