"""Whole kernels of our own: `RIGHT` are judged `correct`, each of `MUTANTS` has one declared mistake."""

from __future__ import annotations

from . import elementwise, extensions, movement, products, rows
from .family import Edit, Family, Member

__all__ = ["FAMILIES", "MUTANTS", "RIGHT", "Edit", "Family", "Member"]

FAMILIES: tuple[Family, ...] = (
    *elementwise.FAMILIES,
    *rows.FAMILIES,
    *products.FAMILIES,
    *movement.FAMILIES,
    *extensions.FAMILIES,
)
RIGHT: tuple[Member, ...] = tuple(member for family in FAMILIES for member in family.right())
MUTANTS: tuple[Member, ...] = tuple(member for family in FAMILIES for member in family.mutants())
