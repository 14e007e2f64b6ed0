"""Autotuning: judges and times every schedule that the solution library has for a task.

Each schedule's text is an ordinary candidate: `runs.batch.judge_rows` judges it and stores it in the run folder, so a
stopped sweep can be resumed. Without a GPU, schedules are compared by verdict and by counted instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kernelwright import generate
from kernelwright.errors import TaskError, UsageError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor import Executor
from kernelwright.records import Evaluation, Task
from kernelwright.runs.batch import judge_rows
from kernelwright.runs.store import Store
from kernelwright.solutions import schedules, write
from kernelwright.solutions.read.reading import Unreadable
from kernelwright.tasks import Row, candidate_from_text, load_task


@dataclass(frozen=True)
class ScheduleTrial:
    """One schedule of one task to judge."""

    task: Task
    schedule: str
    row: Row


@dataclass(frozen=True)
class Measured:
    """The result of one schedule: times in milliseconds, thread instructions counted on the functional machine."""

    task: str
    schedule: str
    verdict: str
    reason: str
    candidate_ms: float | None
    eager_ms: float | None
    speedup: float | None
    instructions: int
    best: bool = False
    """True if no other correct schedule is faster (or, without timing, needs fewer instructions)."""

    def plain(self) -> dict[str, object]:
        """Returns plain data for JSON."""
        return dict(vars(self))


def tasks_of(spec: str, count: int, seed: int) -> list[Task]:
    """Loads the task of a file, folder or name, or generates `count` tasks of a family. Raises `TaskError`."""
    try:
        return [load_task(spec)]
    except TaskError:
        known = {name for family in generate.families() for name in family}
        if spec not in known:
            raise
    found = generate.generate(seed, count, families=[spec])
    return [Task(task_id=task.name, source=task.source) for task in found]


def trials(tasks: Iterable[Task], form: str = "module", names: Sequence[str] = ()) -> list[ScheduleTrial]:
    """Returns every schedule of every task, without duplicate texts. Raises `UsageError` if there is none."""
    found: list[ScheduleTrial] = []
    reasons = []
    for task in tasks:
        seen: set[str] = set()
        try:
            wanted = [s for s in schedules(task.source) if not names or s.name in names]
            texts = [(s.name, write(task.source, s, form=form)) for s in wanted]
        except Unreadable as reason:
            reasons.append(f"{task.task_id}: {reason}")
            continue
        for name, text in texts:
            if text not in seen:
                seen.add(text)
                candidate = candidate_from_text(text, f"solutions:{name}")
                row = Row(len(found), f"{task.task_id}#{name}", task, candidate)
                found.append(ScheduleTrial(task, name, row))
    if not found:
        why = reasons[0] if reasons else "no schedule has such a name"
        hint = "`kernelwright solutions write TASK --list` lists schedules"
        raise UsageError(f"there is nothing to tune: {why}", hint=hint)
    return found


def tune(
    wanted: Sequence[ScheduleTrial],
    store: Store,
    options: EvalOptions,
    executor: Executor,
    on_trial: Callable[[str, Evaluation | None, str], None] | None = None,
    fresh: bool = False,
) -> list[Measured]:
    """Judges the trials or reads them from the store, and marks the best schedule of each task."""
    judged: dict[int, tuple[Evaluation | None, str]] = {}

    def note(row: Row, evaluation: Evaluation | None, problem: str) -> None:
        judged[row.index] = (evaluation, problem)
        if on_trial:
            on_trial(row.item_id, evaluation, problem)

    judge_rows([t.row for t in wanted], store, options, on_row=note, fresh=fresh, executor=executor)
    return ranked([_measured(t, *judged[t.row.index]) for t in wanted])


def _measured(trial: ScheduleTrial, evaluation: Evaluation | None, problem: str) -> Measured:
    task = trial.task.task_id
    if evaluation is None:
        return Measured(task, trial.schedule, "bad_task", problem, None, None, None, 0)
    timing = evaluation.timing
    return Measured(
        task=task,
        schedule=trial.schedule,
        verdict=evaluation.verdict,
        reason=evaluation.reason,
        candidate_ms=timing.candidate_ms if timing else None,
        eager_ms=timing.eager_ms if timing else None,
        speedup=timing.speedup if timing else None,
        instructions=sum(launch.instructions for launch in evaluation.launches),
    )


def ranked(found: Sequence[Measured]) -> list[Measured]:
    """Marks the best schedule of each task: the fastest correct one, or without timing the fewest instructions."""
    best: dict[str, tuple[float, int]] = {}
    for i, m in enumerate(found):
        if m.verdict == "correct":
            cost = m.candidate_ms if m.candidate_ms is not None else float(m.instructions)
            best[m.task] = min(best.get(m.task, (float("inf"), -1)), (cost, i))
    chosen = {i for _, i in best.values()}
    return [Measured(**{**vars(m), "best": i in chosen}) for i, m in enumerate(found)]
