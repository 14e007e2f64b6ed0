"""The record of a task family: a function that fills a `Draft`, with its name, group and weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kernelwright.generate.draft import Draft

Make = Callable[[Draft], None]


@dataclass(frozen=True)
class Family:
    """One operator family: its name, the group that it belongs to, its weight when families are drawn."""

    name: str
    group: str
    weight: float
    make: Make
    held_out: bool = False
    """True for a family that training data has only inside fused chains (split `families`)."""


def rows(group: str, weight: float, makers: Iterable[tuple[str, Make]]) -> list[Family]:
    """Makes families of one group that share its weight evenly."""
    found = list(makers)
    return [Family(name, group, weight / len(found), make) for name, make in found]
