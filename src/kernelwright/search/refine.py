"""Refine: one conversation in which each candidate is mended or sped up by what was seen of the one before."""

from __future__ import annotations

from kernelwright.policies import Policy
from kernelwright.records import Evaluation, Task, Trajectory
from kernelwright.search.rollout import Budget, Evaluate, OnTurn, rollout


def refine(
    task: Task, policy: Policy, evaluate: Evaluate, *, budget: Budget, seed: int, on_turn: OnTurn
) -> list[Trajectory]:
    """One rollout. Where nothing is timed, the first correct candidate is the goal; else all turns are used."""
    return [rollout(task, policy, evaluate, budget=budget, seed=seed, on_turn=on_turn, stop=is_goal)]


def is_goal(evaluation: Evaluation) -> bool:
    """Correct, and no clock that could tell a better one."""
    return evaluation.verdict == "correct" and evaluation.timing is None
