"""Refine: one conversation; each candidate is repaired or sped up from the feedback on the one before."""

from __future__ import annotations

from dataclasses import replace

from kernelwright.policies import Policy
from kernelwright.records import Evaluation, Task, Trajectory
from kernelwright.search.circles import REPEATS
from kernelwright.search.rollout import Budget, Evaluate, OnTurn, rollout


def refine(
    task: Task, policy: Policy, evaluate: Evaluate, *, budget: Budget, seed: int, on_turn: OnTurn
) -> list[Trajectory]:
    """Plays one rollout. Without timing it ends at the first correct candidate; with timing it uses all turns.

    A policy that only repeats its answers is stopped (`circles.REPEATS`), unless the budget sets another limit.
    """
    limits = budget if budget.repeats is not None else replace(budget, repeats=REPEATS)
    return [rollout(task, policy, evaluate, budget=limits, seed=seed, on_turn=on_turn, stop=is_goal)]


def is_goal(evaluation: Evaluation) -> bool:
    """Tells whether a candidate is correct and untimed: without times, no later one can be better."""
    return evaluation.verdict == "correct" and evaluation.timing is None
