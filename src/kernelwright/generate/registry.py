"""The table of task families: each is one function that fills a `Draft`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from kernelwright.errors import UsageError
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
    """Whether training data has it only inside fused chains (split `families`)."""


def rows(group: str, weight: float, makers: Iterable[tuple[str, Make]]) -> list[Family]:
    """Families of one group that share its weight evenly."""
    found = list(makers)
    return [Family(name, group, weight / len(found), make) for name, make in found]


@cache
def table() -> tuple[Family, ...]:
    """All families, in a fixed order."""
    from kernelwright.generate import catalogue

    return tuple(catalogue.families())


def named(names: Sequence[str] | None) -> list[Family]:
    """Families by their names or groups; all for None. Raises `UsageError` with near matches for an unknown one."""
    if names is None:
        return list(table())
    found: list[Family] = []
    known = sorted({f.name for f in table()} | {f.group for f in table()})
    for name in names:
        chosen = [f for f in table() if name in (f.name, f.group)]
        if not chosen:
            near = difflib.get_close_matches(name, known, 3)
            hint = f"near matches: {', '.join(near)}" if near else f"groups: {', '.join(groups())}"
            raise UsageError(f"there is no task family {name!r}", hint=hint)
        found += [f for f in chosen if f not in found]
    return found


def groups() -> list[str]:
    """The groups of families, sorted."""
    return sorted({f.group for f in table()})
