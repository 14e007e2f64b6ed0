"""The optimize job: a strategy plays rollouts on one task, everything is kept, the best candidate becomes a file.

A rerun of a finished or interrupted job replays what the run folder holds: evaluations by key, answers by request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.errors import UsageError
from kernelwright.evaluation import Evaluator
from kernelwright.policies import Policy
from kernelwright.records import Candidate, Evaluation, Task, Trajectory, Turn
from kernelwright.runs.folders import write_text
from kernelwright.runs.store import Store
from kernelwright.search import load_strategy
from kernelwright.search.rollout import Budget, best_turn


@dataclass(frozen=True)
class OptimizeResult:
    """What a job found: the best candidate and its evaluation, where it was written, and the rollouts."""

    task_id: str
    best: Candidate | None
    evaluation: Evaluation | None
    trajectories: tuple[Trajectory, ...]
    path: Path | None

    def public(self) -> dict[str, Any]:
        """The facts for scripts."""
        turns = [t for trajectory in self.trajectories for t in trajectory.turns]
        timing = self.evaluation.timing if self.evaluation else None
        return {
            "task_id": self.task_id,
            "verdict": self.evaluation.verdict if self.evaluation else None,
            "reason": self.evaluation.reason if self.evaluation else "no candidate was judged",
            "candidate_id": self.best.content_hash if self.best else None,
            "path": str(self.path) if self.path else None,
            "timing": timing.plain() if timing else None,
            "turns": len(turns),
            "tokens": sum(t.usage.prompt_tokens + t.usage.completion_tokens for t in turns),
            "stop_reason": self.trajectories[-1].stop_reason if self.trajectories else "nothing was played",
        }


def open_run(folder: Path, meta: dict[str, Any]) -> Store:
    """The run folder of a search, new or continued. Raises `UsageError` for a run of another verb."""
    if (folder / "run.sqlite").is_file():
        with Store.open(folder, writable=False) as store:
            verb = store.meta.get("verb")
        if verb != "optimize":
            raise UsageError(
                f"the run in {str(folder)!r} is of another verb, {verb}",
                hint="name another folder with --run; nothing in this one was changed",
            )
    return Store.open_or_create(folder, meta)


def optimize(
    task: Task,
    policy: Policy,
    evaluator: Evaluator,
    store: Store,
    *,
    strategy: str = "refine",
    budget: Budget | None = None,
    seed: int = 0,
    out: Path | None = None,
    on_turn: Callable[[Turn], None] | None = None,
) -> OptimizeResult:
    """Searches for a candidate. Raises `TaskError` when the reference fails and `PolicyError` when no one answers."""
    play = load_strategy(strategy)
    store.add_task(task)
    found: dict[str, Candidate] = {}

    def evaluate(wanted: Task, candidate: Candidate) -> Evaluation:
        key = evaluator.options.key(wanted, candidate)
        kept = store.find_evaluation(key)
        if kept is not None:
            return kept.model_copy(update={"candidate_id": candidate.content_hash})
        evaluation = evaluator.evaluate(wanted, candidate)
        store.add_candidate(candidate)
        store.add_evaluation(evaluation, key)
        return evaluation

    def keep(turn: Turn, candidate: Candidate | None) -> None:
        if candidate is not None:
            found[candidate.content_hash] = candidate
            store.add_candidate(candidate)
        store.add_turn(f"{task.task_id} · {policy.name} · seed {seed}", turn)
        if on_turn is not None:
            on_turn(turn)

    trajectories = play(task, policy, evaluate, budget=budget or Budget(), seed=seed, on_turn=keep)
    best = best_turn([t for trajectory in trajectories for t in trajectory.turns])
    if best is None or best.candidate_id is None:
        return OptimizeResult(task.task_id, None, None, tuple(trajectories), None)
    candidate = found[best.candidate_id]
    path = out or store.folder / "best.py"
    write_text(path, candidate.text)
    return OptimizeResult(task.task_id, candidate, best.evaluation, tuple(trajectories), path)
