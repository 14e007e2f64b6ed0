"""Writes generated tasks to a JSONL file or a folder of .py files, with a gate on request; resumes earlier runs.

A file NAME.jsonl has one task a line. A folder has one .py file a task and `manifest.jsonl` with the same facts. Tasks
rejected by gate or lint are kept with the reason in NAME.rejected.jsonl (`rejected.jsonl` in a folder).
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.errors import TaskError, UsageError
from kernelwright.generate import GeneratedTask, generate
from kernelwright.records import Provenance, Task
from kernelwright.tasks import candidate_from_text

if TYPE_CHECKING:
    from kernelwright.evaluation import Evaluator

LICENCE = "Apache-2.0"
DEGENERATE = frozenset(
    "nondeterministic random-output mutates-inputs stateful not-finite uniform-output constant-output unread-input "
    "constant-input".split()
)
"""Lint rules that reject a generated task; the others (sizes, weights without effect) are kept as notes."""

TIMING: dict[str, Any] = {"backend": "gpu", "policy": "libraries", "trials": 1, "timing_seconds": 0.3}
"""Options of an evaluator that only times references."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Wish:
    """A request for generated tasks."""

    count: int
    """Number of tasks to keep."""
    seed: int
    families: tuple[str, ...] | None = None
    split: str = "train"

    def stream(self) -> Iterator[GeneratedTask]:
        """Yields the tasks in order, more than `count`, since some may be rejected."""
        return generate(self.seed, 2 * self.count + 100, families=self.families, split=self.split)


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    kept: int
    rejected: int
    resumed: int
    """Tasks that an earlier run wrote."""
    families: dict[str, int]
    seconds: float


def row_of(task: GeneratedTask) -> Row:
    """Returns a task as a line of a JSONL file."""
    return {
        "task_id": task.name,
        "family": task.family,
        "operators": list(task.operators),
        "signature": task.signature,
        "difficulty": task.difficulty,
        "split": task.split,
        "reference": task.source,
        "licence": LICENCE,
        "origin": "kernelwright tasks generate",
        "sha256": hashlib.sha256(task.source.encode()).hexdigest(),
    }


class Output:
    """A JSONL file or a folder that takes rows. Cuts off an incomplete last line of a killed run."""

    def __init__(self, path: Path) -> None:
        self.folder = None if path.suffix == ".jsonl" else path
        self.kept = path if self.folder is None else path / "manifest.jsonl"
        self.rejected = path.with_suffix(".rejected.jsonl") if self.folder is None else path / "rejected.jsonl"
        try:
            if self.folder is not None and path.exists() and not path.is_dir():
                raise UsageError(f"{str(path)!r} is a file", hint="name a .jsonl file or a folder")
            self.kept.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(self.kept.parent, error) from error

    def done(self) -> dict[str, str]:
        """Returns names and digests of the tasks already written, kept ones first."""
        found = {}
        for file in (self.kept, self.rejected):
            for line in _whole_lines(file):
                try:
                    row = json.loads(line)
                    found[str(row["task_id"])] = str(row["sha256"])
                except (ValueError, KeyError, TypeError) as error:
                    raise UsageError(
                        f"{str(file)!r} holds a line that this command did not write", hint="give another --out"
                    ) from error
        return found

    def count(self) -> int:
        """Returns the number of tasks kept so far."""
        return len(_whole_lines(self.kept))

    def keep(self, row: Row) -> None:
        """Adds a task."""
        if self.folder is not None:
            file = self.folder / f"{row['task_id']}.py"
            try:
                file.write_text(row["reference"], encoding="utf-8")
            except OSError as error:
                raise _unwritable(file, error) from error
            row = {k: v for k, v in row.items() if k != "reference"}
        _append(self.kept, row)

    def reject(self, row: Row) -> None:
        """Adds a rejected task; `row` has the reason."""
        _append(self.rejected, row)


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{str(path)!r} cannot be written: {error.strerror}", hint="check the path and the free space")


def _whole_lines(file: Path) -> list[str]:
    """Returns the lines of a file; truncates the file after its last newline."""
    try:
        if not file.exists():
            return []
        data = file.read_bytes()
        end = data.rfind(b"\n") + 1
        if end < len(data):
            with open(file, "r+b") as stream:
                stream.truncate(end)
    except OSError as error:
        raise _unwritable(file, error) from error
    return data[:end].decode("utf-8", errors="replace").splitlines()


def _append(file: Path, row: Row) -> None:
    try:
        with open(file, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
    except OSError as error:
        raise _unwritable(file, error) from error


def write(
    wish: Wish,
    path: Path,
    *,
    evaluator: Evaluator | None = None,
    timer: Evaluator | None = None,
    jobs: int = 1,
    show: Callable[[Row], None] | None = None,
) -> Outcome:
    """Writes the missing tasks. With an evaluator, each passes lint and gate first, `jobs` at once.

    `timer`, an evaluator on a GPU, measures the reference's time (`eager_ms`) of the tasks that pass.

    `show` gets each finished row, with `state` and `reason`. Raises `UsageError` where the output holds tasks of
    another request, or cannot be written.
    """
    started = time.monotonic()
    output = Output(path)
    done = output.done()
    kept = resumed = output.count()
    families: collections.Counter[str] = collections.Counter()
    stream = wish.stream()
    _compare(stream, done, str(path))
    if kept < wish.count:
        rows = _checked(stream, evaluator, timer, jobs) if evaluator is not None else (row_of(t) for t in stream)
        for row in rows:
            if row.get("state") in (None, "sound", "hardened"):
                output.keep(row)
                families[row["family"]] += 1
                kept += 1
            else:
                output.reject(row)
            if show is not None:
                show(row)
            if kept >= wish.count:
                break
    if kept < wish.count:
        raise UsageError(f"only {kept} of {wish.count} tasks were good", hint="see the reasons in the rejected file")
    rejected = len(_whole_lines(output.rejected))
    return Outcome(kept, rejected, resumed, dict(families), round(time.monotonic() - started, 2))


def _compare(stream: Iterator[GeneratedTask], done: dict[str, str], where: str) -> None:
    """Skips the finished tasks in a request's stream, of which they must be the first. Raises `UsageError`."""
    for task in itertools.islice(stream, len(done)):
        if done.get(task.name) != hashlib.sha256(task.source.encode()).hexdigest():
            raise UsageError(
                f"{where!r} holds other tasks than this request makes",
                hint="give another --out, or the --seed, --families and --split of before",
            )


def _checked(tasks: Iterator[GeneratedTask], evaluator: Evaluator, timer: Evaluator | None, jobs: int) -> Iterator[Row]:
    """Yields rows in order, each with the gate's state and the reason of a rejection."""
    evaluator.pool.warm()
    executor = ThreadPoolExecutor(max_workers=max(1, jobs))
    waiting: collections.deque[Future[Row]] = collections.deque()
    try:
        for task in tasks:
            waiting.append(executor.submit(examine, task, evaluator, timer))
            if len(waiting) >= max(1, jobs):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        executor.shutdown(wait=True, cancel_futures=True)


def examine(task: GeneratedTask, evaluator: Evaluator, timer: Evaluator | None = None) -> Row:
    """Judges a task; returns its row with `state`, `reason` and `notes`.

    `state` is `sound`, `hardened`, `quarantined`, `degenerate` or `cannot run`.
    With a timer, a passing task has `eager_ms`, or a note with the reason why not.
    """
    row = row_of(task)
    record = Task(
        task_id=task.name, source=task.source, provenance=Provenance(origin=str(row["origin"]), licence=LICENCE)
    )
    started = time.monotonic()
    try:
        gate = evaluator.check_gate(record).gate
    except TaskError as error:
        return row | {"state": "cannot run", "reason": str(error)}
    against = [note for note in gate.notes if note.partition(":")[0] in DEGENERATE]
    state = "degenerate" if against and gate.state != "quarantined" else gate.state
    notes = [n for n in gate.notes if n not in against]
    timed: Row = {}
    if timer is not None and state in ("sound", "hardened"):
        milliseconds, why = eager_ms(record, timer)
        timed = {"eager_ms": milliseconds}
        notes += [f"not-timed: {why}"] if why else []
    return row | {
        "state": state,
        "reason": "; ".join([*([gate.reason] if gate.reason else []), *against]),
        "distributions": list(gate.distributions),
        "notes": notes,
        **timed,
        "seconds": round(time.monotonic() - started, 2),
    }


def eager_ms(task: Task, timer: Evaluator) -> tuple[float | None, str]:
    """Returns the reference's time per call at its own size in ms, or the reason for None. It is its own candidate.

    `timer` allows libraries (`TIMING`).
    """
    candidate = candidate_from_text(f"{task.source}\n\nModelNew = Model\n", "the reference itself")
    try:
        found = timer.evaluate(task, candidate)
    except TaskError as error:
        return None, str(error)
    time_of_call = found.timing.eager_ms if found.timing else None
    return time_of_call, "" if time_of_call is not None else found.reason or "there is no timing"


def line(row: Row) -> str:
    """Returns one task as a line of progress."""
    state = row.get("state", "")
    return f"{row['task_id']}: {row['signature']}" + (f": {state}, {row['reason']}" if row.get("reason") else "")


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """Returns the number of rows per state."""
    return dict(collections.Counter(str(r.get("state", "not checked")) for r in rows))
