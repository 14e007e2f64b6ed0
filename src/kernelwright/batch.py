"""Judging many rows into a run folder: in order, resumable, with progress. Knows nothing of terminals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

from kernelwright.errors import TaskError
from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Candidate, Evaluation, Task
from kernelwright.store import Store
from kernelwright.tasks import Row


@dataclass
class BatchSummary:
    """Counts over the rows of one run."""

    rows: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    no_candidate: int = 0
    bad_tasks: int = 0
    resumed: int = 0


Progress = Callable[[Row, Evaluation | None, str], None]
"""Called for each row when it is done: its evaluation, or None and why there is none."""


def judge_rows(
    rows: Sequence[Row],
    store: Store,
    options: EvalOptions,
    jobs: int = 1,
    on_row: Progress | None = None,
    fresh: bool = False,
) -> BatchSummary:
    """Judges every row that has a task and a candidate, and notes the others. Raises what the harness raises.

    Rows whose evaluation the store already holds are taken from there, unless `fresh`. Interrupting loses at most what
    is in flight.
    """
    summary = BatchSummary(rows=len(rows))
    waiting = [row for row in rows if row.task is not None and row.candidate is not None]
    found = {row.index: None if fresh else store.find_evaluation(_key(row, options)) for row in waiting}
    missing = [row for row in waiting if found[row.index] is None]
    summary.resumed = len(waiting) - len(missing)
    results = _judged(missing, options, jobs)
    try:
        for row in rows:
            _settle(row, found.get(row.index), results, store, options, summary, on_row)
    finally:
        results.close()
    return summary


def _key(row: Row, options: EvalOptions) -> str:
    assert row.task is not None and row.candidate is not None
    return options.key(row.task, row.candidate)


def _judged(rows: Sequence[Row], options: EvalOptions, jobs: int) -> Generator[Evaluation | TaskError, None, None]:
    if not rows:
        return
    pairs: Iterator[tuple[Task, Candidate]] = ((r.task, r.candidate) for r in rows if r.task and r.candidate)
    with Evaluator(options) as evaluator:
        yield from evaluate_many(pairs, pool=evaluator, jobs=jobs)


def _settle(
    row: Row,
    found: Evaluation | None,
    results: Iterator[Evaluation | TaskError],
    store: Store,
    options: EvalOptions,
    summary: BatchSummary,
    on_row: Progress | None,
) -> None:
    """Keeps what became of one row."""
    evaluation: Evaluation | None = found
    note = ""
    if row.task is None:
        summary.bad_tasks += 1
        note = row.problem or "no task"
        store.set_item(row.index, row.item_id, "bad_task", note=note)
    elif row.candidate is None:
        summary.no_candidate += 1
        note = "no candidate"
        store.set_item(row.index, row.item_id, "no_candidate", note=note)
    else:
        if evaluation is None:
            result = next(results)
            if isinstance(result, TaskError):
                summary.bad_tasks += 1
                store.set_item(row.index, row.item_id, "bad_task", note=str(result))
                if on_row:
                    on_row(row, None, str(result))
                return
            evaluation = result
            store.add_task(row.task)
            store.add_candidate(row.candidate)
            store.add_evaluation(evaluation, _key(row, options))
        summary.verdicts[evaluation.verdict] += 1
        store.set_item(row.index, row.item_id, "judged", _key(row, options))
    if on_row:
        on_row(row, evaluation, note)
