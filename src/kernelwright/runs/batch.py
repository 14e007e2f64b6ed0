"""Judges many rows into a run folder, or queues them there. Resumes a folder; reports progress by a callback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace

from kernelwright.errors import TaskError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor import Executor, Job, in_order, load_executor
from kernelwright.records import Evaluation
from kernelwright.runs.jobqueue import Queue
from kernelwright.runs.store import Store
from kernelwright.tasks import Row


@dataclass
class BatchSummary:
    """Counts over the rows of one run."""

    rows: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    no_candidate: int = 0
    bad_tasks: int = 0
    resumed: int = 0
    queued: int = 0


Progress = Callable[[Row, Evaluation | None, str], None]
"""Called with each finished row and its evaluation, or with None and the reason."""


def judge_rows(
    rows: Sequence[Row],
    store: Store,
    options: EvalOptions,
    jobs: int = 1,
    on_row: Progress | None = None,
    fresh: bool = False,
    executor: Executor | None = None,
) -> BatchSummary:
    """Judges every row that has a task and a candidate, and notes the others. Raises the harness's errors.

    A row whose evaluation is in the store is not judged again, unless `fresh`. Each evaluation is stored at once, and
    passed to `on_row` in the order of the rows. Without an `executor`, this machine judges `jobs` candidates at once.
    """
    judging: AbstractContextManager[Executor] = (
        nullcontext(executor) if executor else load_executor("local", jobs, options.backend)
    )
    with judging as running:
        return _judge_rows(rows, store, running.settle(options), running, on_row, fresh)


def _judge_rows(
    rows: Sequence[Row], store: Store, options: EvalOptions, executor: Executor, on_row: Progress | None, fresh: bool
) -> BatchSummary:
    def keep(job: Job, evaluation: Evaluation) -> None:
        store.add_task(job.task)
        store.add_candidate(job.candidate)
        store.add_evaluation(evaluation, options.key(job.task, job.candidate))

    summary = BatchSummary(rows=len(rows))
    waiting = [row for row in rows if row.task is not None and row.candidate is not None]
    found = {row.index: None if fresh else store.find_evaluation(_key(row, options)) for row in waiting}
    missing = [row for row in waiting if found[row.index] is None]
    summary.resumed = len(waiting) - len(missing)
    pairs = ((row.task, row.candidate) for row in missing if row.task and row.candidate)
    with closing(in_order(executor, pairs, options, keep)) as results:
        for row in rows:
            _settle(row, found.get(row.index), results, store, options, summary, on_row)
    return summary


def finished(rows: Sequence[Row], store: Store, options: EvalOptions) -> int:
    """Counts the rows with an outcome in the store, shown or not. `options` as the executor settled them."""
    noted = {item.position for item in store.items() if item.status != "judged"}
    return sum(
        row.index in noted
        or (
            row.task is not None and row.candidate is not None and store.find_evaluation(_key(row, options)) is not None
        )
        for row in rows
    )


def queue_rows(
    rows: Sequence[Row], store: Store, options: EvalOptions, priority: int = 0, fresh: bool = False
) -> BatchSummary:
    """Queues every row that has a task and a candidate for workers of the run, and notes the others.

    A row whose evaluation is in the store is not queued, unless `fresh`.
    """
    summary = BatchSummary(rows=len(rows))
    options = options.model_copy(update={"backend": options.resolved()})
    queue = Queue(store)
    for row in rows:
        if row.task is None or row.candidate is None:
            row = replace(row, index=queue.place(row.index, row.item_id))
            _settle(row, None, iter(()), store, options, summary, None)
            continue
        fields, item = options.model_dump(mode="json"), (row.index, row.item_id)
        done = queue.add(row.task, row.candidate, fields, _key(row, options), item, priority, fresh)
        summary.resumed += done == "judged"
        summary.queued += done == "queued"
    return summary


def _key(row: Row, options: EvalOptions) -> str:
    assert row.task is not None and row.candidate is not None
    return options.key(row.task, row.candidate)


def _settle(
    row: Row,
    found: Evaluation | None,
    results: Iterator[Evaluation | TaskError],
    store: Store,
    options: EvalOptions,
    summary: BatchSummary,
    on_row: Progress | None,
) -> None:
    """Stores the outcome of one row: judged, no candidate, or a task that cannot be judged."""
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
        summary.verdicts[evaluation.verdict] += 1
        store.set_item(row.index, row.item_id, "judged", _key(row, options))
    if on_row:
        on_row(row, evaluation, note)
