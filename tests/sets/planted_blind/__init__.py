"""Correct kernels of our own and planted bugs in them, all written before any was judged."""

from sets.planted.case import Mutant, Original
from sets.planted_blind import counts, moves, products, reductions, scans, waits

__all__ = ["MUTANTS", "ORIGINALS"]

ORIGINALS: tuple[Original, ...] = (
    *reductions.CASES,
    *products.CASES,
    *scans.CASES,
    *counts.CASES,
    *moves.CASES,
    *waits.CASES,
)
MUTANTS: tuple[tuple[Original, Mutant], ...] = tuple((o, m) for o in ORIGINALS for m in o.mutants)
