"""Forms the referee's results of comparisons: of calls that need none, of slices, and for messages."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from kernelwright.evaluation.compare import on_host

UNJUDGED = on_host.Comparison(True, 0.0, 0.0, 1.0)
"""The result for what may hold anything."""


def near_results(differences: list[float], limits: list[float]) -> list[dict[str, Any]] | None:
    """Returns one call's results; None if an output was not near."""
    if any(math.isinf(d) for d in differences):
        return None
    return [
        {"passed": True, "max_abs_error": difference, "max_rel_error": limit / 2, "tolerance": limit}
        for difference, limit in zip(differences, limits, strict=True)
    ]


def facts(result: on_host.Comparison) -> dict[str, Any]:
    """Returns a comparison in a message's form."""
    found = {f.name: getattr(result, f.name) for f in dataclasses.fields(result) if f.name != "doubt"}
    return {**found, "errors": result.errors.plain() if result.errors is not None else None}


def worst(turns: list[on_host.Comparison]) -> on_host.Comparison:
    """Joins the comparisons of one output's slices."""
    chosen = next((r for r in turns if not r.passed), turns[-1])
    return dataclasses.replace(
        chosen,
        max_abs_error=max((r.max_abs_error for r in turns if r.max_abs_error is not None), default=None),
        max_rel_error=max((r.max_rel_error for r in turns if r.max_rel_error is not None), default=None),
        honest_error=max((r.honest_error for r in turns if r.honest_error is not None), default=None),
        errors=next((r.errors for r in turns if r.errors is not None), None),
        forgiven=sum(r.forgiven for r in turns),
    )
