"""The table of all task families, in a fixed order on which the generated tasks depend."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache

from kernelwright.errors import UsageError
from kernelwright.generate.families import (
    binary,
    blocks,
    convolution,
    fused,
    indexing,
    losses,
    matmul,
    networks,
    norms,
    pooling,
    rare,
    reductions,
    scans,
    softmaxes,
    unary,
)
from kernelwright.generate.programs import programs
from kernelwright.generate.registry import Family


@cache
def table() -> tuple[Family, ...]:
    """Returns all families."""
    return (
        *matmul.families(),
        *convolution.families(),
        *norms.families(),
        *reductions.families(),
        *pooling.families(),
        *scans.families(),
        *losses.families(),
        *binary.families(),
        *softmaxes.families(),
        *indexing.families(),
        *fused.families(),
        *blocks.families(),
        *programs.families(),
        *networks.families(),
        *rare.families(),
        *(unary.family(op) for op in (*unary.ACTIVATIONS, *unary.MATH)),
    )


def named(names: Sequence[str] | None) -> list[Family]:
    """Returns families by their names or groups; all for None.

    Raises `UsageError` with near matches for an unknown name.
    """
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
    """Returns the groups of families, sorted."""
    return sorted({f.group for f in table()})
