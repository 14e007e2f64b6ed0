"""Search strategies: they decide how many rollouts to play and how. One table, one module per strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kernelwright.errors import ConfigError, did_you_mean
from kernelwright.policies import Policy
from kernelwright.records import Task, Trajectory
from kernelwright.search.rollout import Budget, Evaluate, OnTurn


class Strategy(Protocol):
    """Plays rollouts within a budget and returns them."""

    def __call__(
        self, task: Task, policy: Policy, evaluate: Evaluate, *, budget: Budget, seed: int, on_turn: OnTurn
    ) -> list[Trajectory]: ...


def _refine() -> Strategy:
    from kernelwright.search.refine import refine

    return refine


STRATEGIES: dict[str, Callable[[], Strategy]] = {"refine": _refine}


def load_strategy(name: str) -> Strategy:
    """Returns the strategy with that name. Raises `ConfigError`."""
    if name not in STRATEGIES:
        hint = did_you_mean(name, STRATEGIES, f"strategies: {', '.join(STRATEGIES)}")
        raise ConfigError(f"there is no strategy {name!r}", hint=hint)
    return STRATEGIES[name]()
