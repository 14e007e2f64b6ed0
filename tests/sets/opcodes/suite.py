"""All conformance cases, by family."""

from __future__ import annotations

from . import arithmetic, asynchronous, conversions, memory, tensor, warps
from .case import Case


def cases() -> list[Case]:
    """Returns every case; all names are distinct."""
    found = [c for module in (arithmetic, conversions, warps, memory, tensor, asynchronous) for c in module.cases()]
    unique = {case.name: case for case in found}
    assert len(unique) == len(found), sorted(c.name for c in found if unique[c.name] is not c)
    return found
