"""Reads runs (`store`) and corpora (`corpus build`) into episodes. Judges nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelwright.corpus.shards import MANIFEST, UNFINISHED, read_rows, unfinished_rows
from kernelwright.curation.samples import Episode, Sample
from kernelwright.errors import StoreError
from kernelwright.records import (
    Evaluation,
    Finding,
    Provenance,
    Task,
    Timing,
    Turn,
    WorkloadResult,
)
from kernelwright.store import Store


def gather(runs: Sequence[Path | str]) -> list[Episode]:
    """The episodes of runs and corpora, in their order; of a corpus that is not built to its end, the rows so far.

    Raises `StoreError` where a folder is neither, or is empty.
    """
    found: list[Episode] = []
    for run in runs:
        path = Path(run)
        if (path / MANIFEST).is_file() or (path / UNFINISHED).is_file():
            found += [Episode((sample,)) for sample in _corpus(path)]
            continue
        with Store.open(path, writable=False) as store:
            found += _run(path, store)
    if not found:
        names = ", ".join(repr(str(run)) for run in runs)
        raise StoreError(f"nothing was judged in {names}", hint="name folders that eval --run or corpus build wrote")
    return found


def _run(path: Path, store: Store) -> Iterator[Episode]:
    """Rollouts by their turns, and what was judged without any."""
    tasks = {task.content_hash: task for task in store.tasks()}
    shown: set[tuple[str, str]] = set()
    for rollout, turns in store.turns().items():
        # What a stopped run had not judged yet is neither a candidate nor none.
        samples = [_turn(path, store, rollout, turn, tasks) for turn in turns if turn.evaluation or turn.parse_failure]
        known = [s for s in samples if s is not None]
        task = next((s.task for s in known if s.evaluation), None) or _named(rollout, tasks.values())
        if task is None or not known:
            continue
        shown |= {(s.task.content_hash, s.evaluation.candidate_id) for s in known if s.evaluation}
        yield Episode(tuple(s if s.evaluation else _with_task(s, task) for s in known))
    for evaluation in store.evaluations():
        task = tasks.get(evaluation.task_hash)
        candidate = store.candidate(evaluation.candidate_id)
        if task is None or candidate is None or (evaluation.task_hash, evaluation.candidate_id) in shown:
            continue
        shown.add((evaluation.task_hash, evaluation.candidate_id))
        policy = candidate.provenance.policy or ""
        sample = Sample(task, candidate.text, candidate.text, evaluation, str(path), policy=policy)
        yield Episode((sample,))


def _named(rollout: str, tasks: Collection[Task]) -> Task | None:
    """The task that a rollout's name begins with: of one without any candidate nothing else says it."""
    begins = {f"{t.task_id} · ": t for t in tasks} | {f"{t.task_id} · {t.short_hash} · ": t for t in tasks}
    fitting = [begin for begin in begins if rollout.startswith(begin)]
    return begins[max(fitting, key=len)] if fitting else None


_NO_TASK = Task(task_id="?", source="?")


def _turn(path: Path, store: Store, rollout: str, turn: Turn, tasks: dict[str, Task]) -> Sample | None:
    """One turn; without an evaluation its task is filled in by the caller."""
    candidate = store.candidate(turn.candidate_id) if turn.candidate_id else None
    task = tasks.get(turn.evaluation.task_hash, _NO_TASK) if turn.evaluation else _NO_TASK
    if turn.evaluation is not None and task is _NO_TASK:
        return None
    return Sample(
        task,
        turn.answer,
        candidate.text if candidate else "",
        turn.evaluation,
        str(path),
        rollout,
        turn.index,
        turn.messages,
        candidate.provenance.policy or "" if candidate else "",
        turn.parse_failure,
        tokens=turn.usage.completion_tokens or None,
    )


def _with_task(sample: Sample, task: Task) -> Sample:
    fields = {name: getattr(sample, name) for name in sample.__dataclass_fields__}
    return Sample(**{**fields, "task": task})


def _corpus(path: Path) -> Iterator[Sample]:
    """Judged rows of a corpus; those that were not judged have no verdict to go by."""
    for row in read_rows(path) if (path / MANIFEST).is_file() else unfinished_rows(path):
        if row["judged"]:
            yield sample_of_row(row, str(path))


def sample_of_row(row: dict[str, Any], run: str) -> Sample:
    """A corpus's row as a sample. Its evaluation holds what the row holds: verdict, reason, timing."""
    origin = Provenance(origin="corpus", licence="Apache-2.0")  # the task's: rows of one task are one task's
    task = Task(task_id=row["task_id"], source=row["reference"], provenance=origin)
    timing = None
    if row["candidate_ms"] is not None and row["verdict"] == "correct":
        low, high = row["speedup_low"], row["speedup_high"]
        timing = Timing(
            candidate_ms=row["candidate_ms"],
            eager_ms=row["eager_ms"],
            speedup=row["speedup"],
            interval=None if low is None else (low, high),
        )
    right = row["verdict"] == "correct"
    finding = Finding(rule="corpus", evidence=row["reason"] or "rejected", severity="reject")
    evaluation = Evaluation(
        task_id=task.task_id,
        task_hash=task.content_hash,
        candidate_id=row["row_id"],
        verdict=row["verdict"],
        reason=row["reason"],
        backend=row["backend"],
        workloads=(WorkloadResult(name="corpus", passed=True),) if right else (),
        timing=timing,
        findings=(finding,) if row["verdict"] == "rejected" else (),
    )
    policy = f"solutions:{row['schedule']}" if row["right"] else f"mistake:{row['mistake']}"
    return Sample(task, row["answer"], row["answer"], evaluation, run, policy=policy, note=row["trace"])
