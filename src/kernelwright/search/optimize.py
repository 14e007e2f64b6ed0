"""The optimize job: plays rollouts on one task, stores everything and writes the best candidate to a file.

A rerun of a finished or interrupted job reuses the run folder: evaluations by key, answers by request.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelwright.errors import UsageError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.policies import Policy, load_policy
from kernelwright.records import Candidate, Evaluation, Task, Trajectory, Turn
from kernelwright.runs.folders import write_text
from kernelwright.runs.store import Store
from kernelwright.search import load_strategy
from kernelwright.search.circles import advice
from kernelwright.search.rollout import Budget, best_turn


@dataclass(frozen=True)
class OptimizeResult:
    """The result of a job: the best candidate, its evaluation and path, and the rollouts."""

    task_id: str
    best: Candidate | None
    evaluation: Evaluation | None
    trajectories: tuple[Trajectory, ...]
    path: Path | None
    hint: str | None = None
    """What to try next, where no answer was correct or the policy only repeated its answers."""

    def public(self) -> dict[str, Any]:
        """Returns the facts as plain data for scripts."""
        turns = [t for trajectory in self.trajectories for t in trajectory.turns]
        timing = self.evaluation.timing if self.evaluation else None
        prices = [t.usage.cost_usd for t in turns if t.usage.cost_usd is not None]
        return {
            "task_id": self.task_id,
            "verdict": self.evaluation.verdict if self.evaluation else None,
            "reason": self.evaluation.reason if self.evaluation else "no candidate was judged",
            "candidate_id": self.best.content_hash if self.best else None,
            "path": str(self.path) if self.path else None,
            "timing": timing.plain() if timing else None,
            "turns": len(turns),
            "tokens": sum(t.usage.prompt_tokens + t.usage.completion_tokens for t in turns),
            "dollars": sum(prices) if prices else None,
            "stop_reason": self.trajectories[-1].stop_reason if self.trajectories else "nothing was played",
            "hint": self.hint,
        }


def open_run(folder: Path, meta: dict[str, Any]) -> Store:
    """Creates or opens the run folder of a search. Raises `UsageError` for a run of another command."""
    if (folder / "run.sqlite").is_file():
        with Store.open(folder, writable=False) as store:
            verb = store.meta.get("verb")
        if verb != "optimize":
            raise UsageError(
                f"the run in {str(folder)!r} is of another verb, {verb}",
                hint="name another folder with --run; nothing in this one was changed",
            )
    return Store.open_or_create(folder, meta)


@dataclass(frozen=True)
class Search:
    """The settings of a search: the strategy's name, the budget of a rollout and the seed of the policy."""

    strategy: str = "refine"
    budget: Budget = Budget()
    seed: int = 0


def optimize(
    task: Task,
    policy: Policy | str = "template",
    *,
    run: Path | str | None = None,
    options: EvalOptions | None = None,
    turns: int = 6,
    seed: int = 0,
    out: Path | str | None = None,
    on_turn: Callable[[Turn], None] | None = None,
) -> OptimizeResult:
    """Searches for a correct (on a GPU: a faster) candidate for a task, as `kernelwright optimize` does.

    `policy` proposes candidates: a `Policy`, or a name as of `--policy`, such as `starter` or
    `openai:MODEL@BASE_URL`. `run` is the folder that keeps answers and evaluations; the same call continues it. Without
    `run` nothing is kept. A rollout ends after `turns` turns at the latest. `options` say how each candidate is judged,
    by default with `seed` as the seed of the inputs. The best candidate is written to `out` (default: `best.py` in
    `run`). `on_turn` is called with each turn.

    Raises `TaskError` when the reference fails, `PolicyError` when the policy does not answer, `ConfigError` for an
    unknown policy, and `StoreError` when the folder cannot be used.
    """
    if run is None:
        with tempfile.TemporaryDirectory(prefix="kernelwright-optimize-") as scratch:
            found = optimize(
                task, policy, run=scratch, options=options, turns=turns, seed=seed, out=out, on_turn=on_turn
            )
        return found if out is not None else replace(found, path=None)
    folder, how = Path(run), Search(budget=Budget(turns=turns), seed=seed)
    proposer = load_policy(policy, cache=folder / "answers") if isinstance(policy, str) else policy
    name = policy if isinstance(policy, str) else policy.name
    meta = {"verb": "optimize", "task": task.task_id, "policy": name, "strategy": how.strategy, "seed": seed}
    with open_run(folder, meta) as store, Evaluator(options or EvalOptions(seed=seed)) as evaluator:
        return search(task, proposer, evaluator, store, how, Path(out) if out is not None else None, on_turn)


def search(
    task: Task,
    policy: Policy,
    evaluator: Evaluator,
    store: Store,
    how: Search = Search(),
    out: Path | None = None,
    on_turn: Callable[[Turn], None] | None = None,
) -> OptimizeResult:
    """Searches for a candidate in an open run, with a warm evaluator.

    Raises `TaskError` when the reference fails and `PolicyError` when the policy does not answer.
    """
    play = load_strategy(how.strategy)
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
        store.add_turn(f"{task.task_id} · {policy.name} · seed {how.seed}", turn)
        if on_turn is not None:
            on_turn(turn)

    trajectories = play(task, policy, evaluate, budget=how.budget, seed=how.seed, on_turn=keep)
    best = best_turn([t for trajectory in trajectories for t in trajectory.turns])
    solved = best is not None and best.evaluation is not None and best.evaluation.verdict == "correct"
    circling = any(trajectory.stop_reason == "circles" for trajectory in trajectories)
    hint = advice(task, policy.name) if circling or not solved else None
    if best is None or best.candidate_id is None:
        return OptimizeResult(task.task_id, None, None, tuple(trajectories), None, hint)
    candidate = found[best.candidate_id]
    path = out or store.folder / "best.py"
    write_text(path, candidate.text)
    return OptimizeResult(task.task_id, candidate, best.evaluation, tuple(trajectories), path, hint)
