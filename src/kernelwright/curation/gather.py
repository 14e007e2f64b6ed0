"""Reads runs (`store`) and corpora (`corpus build`) into episodes. Judges nothing."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelwright.bench.numbers import task_name
from kernelwright.corpus.shards import MANIFEST, UNFINISHED, read_rows, unfinished_rows
from kernelwright.curation.samples import CuratedSample, Episode
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
from kernelwright.runs.store import Store


def gather(runs: Sequence[Path | str]) -> list[Episode]:
    """Reads the episodes of runs and corpora, in order; an unfinished corpus gives its rows so far.

    Raises `StoreError` where a folder is neither, or nothing in the folders was judged.
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
    """Yields a run's rollouts, then its evaluations outside rollouts."""
    tasks = {task.content_hash: task for task in store.tasks()}
    unfit = {str(e.data.get("name")) for e in store.events() if e.kind == "bad_task"}
    shown: set[tuple[str, str]] = set()
    for rollout, turns in _in_order(store.turns()):
        # A turn with neither an evaluation nor a parse failure was interrupted; it does not mean "no candidate".
        ended = [t for t in turns if t.evaluation is not None or t.parse_failure is not None]
        known = [s for t in ended if (s := _turn(path, store, rollout, t, tasks)) is not None]
        task = next((s.task for s in known if s.evaluation), None) or _task_by_name(rollout, tasks.values(), unfit)
        if task is None or not known:
            continue  # the task is unknown, or cannot be judged
        shown |= {(s.task.content_hash, s.evaluation.candidate_id) for s in known if s.evaluation}
        yield Episode(tuple(s if s.evaluation else _with_task(s, task) for s in known))
    for evaluation in store.evaluations():
        task = tasks.get(evaluation.task_hash)
        candidate = store.candidate(evaluation.candidate_id)
        if task is None or candidate is None or (evaluation.task_hash, evaluation.candidate_id) in shown:
            continue
        shown.add((evaluation.task_hash, evaluation.candidate_id))
        policy = candidate.provenance.policy or ""
        sample = CuratedSample(task, candidate.text, candidate.text, evaluation, str(path), policy=policy)
        yield Episode((sample,))


def _in_order(rollouts: dict[str, list[Turn]]) -> list[tuple[str, list[Turn]]]:
    """Sorts the rollouts of a task by number.

    The store has them in order of completion, short ones first: the first five of eight would be the five shortest.
    """
    place: dict[str, int] = {}

    def key(item: tuple[str, list[Turn]]) -> tuple[int, int]:
        head, _, number = item[0].rpartition(" ")
        return place.setdefault(head, len(place)), int(number) if number.isdigit() else 0

    return sorted(rollouts.items(), key=key)


def _task_by_name(rollout: str, tasks: Iterable[Task], unfit: Container[str]) -> Task | None:
    """Finds the task of a rollout without any verdict by the rollout's name; None where it is ambiguous or unfit.

    `bench` names rollouts `TASK · HASH · sample N`, `optimize` names them `TASK · POLICY · seed N`.
    """
    named = [t for t in tasks if rollout.startswith(f"{t.task_id} · ")]
    exact = [t for t in named if rollout.startswith(f"{task_name(t)} · ")]
    found = exact or named
    return found[0] if len(found) == 1 and task_name(found[0]) not in unfit else None


_NO_TASK = Task(task_id="?", source="?")


def _turn(path: Path, store: Store, rollout: str, turn: Turn, tasks: dict[str, Task]) -> CuratedSample | None:
    """Makes the sample of one turn; without an evaluation the caller fills in the task."""
    candidate = store.candidate(turn.candidate_id) if turn.candidate_id else None
    task = tasks.get(turn.evaluation.task_hash, _NO_TASK) if turn.evaluation else _NO_TASK
    if turn.evaluation is not None and task is _NO_TASK:
        return None
    return CuratedSample(
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


def _with_task(sample: CuratedSample, task: Task) -> CuratedSample:
    fields = {name: getattr(sample, name) for name in sample.__dataclass_fields__}
    return CuratedSample(**{**fields, "task": task})


def _corpus(path: Path) -> Iterator[CuratedSample]:
    """Yields the judged rows of a corpus as samples."""
    for row in read_rows(path) if (path / MANIFEST).is_file() else unfinished_rows(path):
        if row["judged"]:
            yield sample_of_row(row, str(path))


def sample_of_row(row: dict[str, Any], run: str) -> CuratedSample:
    """Makes a sample of a corpus row. Its evaluation holds the row's verdict, reason and timing."""
    origin = Provenance(origin="corpus", licence="Apache-2.0")  # the same for all rows, so that a task's rows share it
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
    return CuratedSample(task, row["answer"], row["answer"], evaluation, run, policy=policy, note=row["trace"])
