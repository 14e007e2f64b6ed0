"""Right kernels of our own, and bugs in them that show only at the size that the task declares (`full_size.py`)."""

from sets.declared import flat, rows, tiles
from sets.declared.case import Mutant, Original

__all__ = ["MUTANTS", "ORIGINALS", "Mutant", "Original"]

ORIGINALS: tuple[Original, ...] = (*flat.CASES, *rows.CASES, *tiles.CASES)
MUTANTS: tuple[tuple[Original, Mutant], ...] = tuple((o, m) for o in ORIGINALS for m in o.mutants)
