"""Chooses the trials of a judgement: sizes, distributions and seeds."""

from __future__ import annotations

import numpy as np

from kernelwright.evaluation.trials import TaskPlan, Trial
from kernelwright.records import (
    Distribution,
    Workload,
)

DECLARED_ELEMENTS = 4_000_000
DECLARED_FLOPS = 200_000_000
"""A task's own size is part of every judgement up to these bounds."""
_KINDS: tuple[Distribution, ...] = (
    *("own", "far_below", "far_above", "tied_rows", "scaled_rows", "heavy_tail"),
    *("normal", "constant_rows", "uniform"),
)


def value_kinds(plan: TaskPlan) -> list[Distribution]:
    """Returns a plan's distributions in the order of use: the task's own, the gate's additions, the usual ones."""
    needed = [k for k in plan.distributions if k not in _KINDS]
    usual = [k for k in _KINDS if k in plan.distributions]
    if "far_below" in usual and "far_above" in usual:
        usual.remove("far_above")  # it is for references that take no negative values
    return [*usual[:1], *needed, *usual[1:]] or ["own"]


def trial_list(
    plan: TaskPlan, count: int, seed: int, limit: tuple[int, int] = (DECLARED_ELEMENTS, DECLARED_FLOPS)
) -> list[Trial]:
    """Returns trials: sizes with distributions and seeds. The first size comes twice, so that a cached result shows.

    All sizes that a task declares are included, its own up to the limit (elements, FLOPs), and as many derived sizes
    as `count` allows. Sizes with one dimension at its declared length come last, beyond the count.
    """
    rng = np.random.default_rng(seed)
    seeds = iter(int(s) for s in rng.integers(1, 2**31, size=4 * (count + len(plan.workloads) + len(plan.long)) + 8))
    # Of the judge's own kinds, signed values come first, then outliers: shortcuts should fail within few trials.
    kinds = value_kinds(plan)
    sizes: list[Workload] = list(plan.workloads)
    declared = plan.declared
    if declared is not None and (not sizes or (0 < declared.elements <= limit[0] and declared.flops <= limit[1])):
        sizes.append(declared)
    stated = [w for w in sizes if w.scope == "declared"]
    order = [sizes[0], sizes[0], *sizes[1:]] if count > 1 else [sizes[0]]
    picked = order[:count] + [w for w in stated if w not in order[:count]]
    while len(picked) < count:
        picked.append(sizes[len(picked) % len(sizes)])
    trials: list[Trial] = []
    for index, workload in enumerate([*picked, *plan.long]):
        again = index == 1 and workload == picked[0]
        trials.append(Trial(workload, kinds[index % len(kinds)], next(seeds), next(seeds), again))
    return trials
