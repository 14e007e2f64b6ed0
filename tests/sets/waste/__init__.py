"""Kernels with a known waste each, and efficient ones, for the tests of `profile`."""

from sets.waste import arithmetic, efficient, memory, shared, whole
from sets.waste.case import Waste

CASES: tuple[Waste, ...] = (*memory.CASES, *shared.CASES, *arithmetic.CASES, *whole.CASES)
EFFICIENT: tuple[Waste, ...] = efficient.CASES
