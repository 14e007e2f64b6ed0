"""The queue in a run: candidates that wait to be judged, served by any number of worker processes on this machine.

A job is named by the key of its evaluation, so equal requests are one job. A worker leases jobs for some seconds and
renews its leases while it runs. When it is killed, its leases expire and other workers take them over. Only the holder
of a lease can finish a job, and finishing is one transaction: evaluation, items and state. So no job is stored twice,
and none is lost.

    queued -> leased -> done | failed        leased -> leased by another worker, when it expired; -> queued, given back
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from kernelwright.errors import StoreError
from kernelwright.records import Candidate, Evaluation, Gate, Task
from kernelwright.runs.store import ADD_EVALUATION, Store

State = Literal["queued", "leased", "done", "failed"]

_ADD = """
INSERT INTO queue (key, task, candidate, gate, options, priority, after, state, attempts, note, created)
VALUES (?, ?, ?, ?, ?, ?, ?, 'queued', 0, '', ?)
ON CONFLICT (key) DO UPDATE SET
    priority = max(priority, excluded.priority),
    after = CASE WHEN state IN ('done', 'failed') THEN excluded.after ELSE after END,
    attempts = CASE WHEN state IN ('done', 'failed') THEN 0 ELSE attempts END,
    note = '',
    state = CASE WHEN state IN ('done', 'failed') THEN 'queued' ELSE state END
"""
# Each half is read in the order of the index, so that a long queue costs no more than a short one.
_NEXT = """
WITH queued AS (SELECT * FROM queue WHERE state = 'queued' ORDER BY priority DESC, id LIMIT :count),
     expired AS (SELECT * FROM queue WHERE state = 'leased' AND expires < :now ORDER BY priority DESC, id LIMIT :count)
SELECT key, task, candidate, gate, options, attempts FROM (SELECT * FROM queued UNION ALL SELECT * FROM expired)
ORDER BY priority DESC, id LIMIT :count
"""
_FOUND = "SELECT max(id) FROM evaluations WHERE key = ? AND verdict != 'harness_error' AND id > ?"


@dataclass(frozen=True)
class Leased:
    """A job that a worker has leased."""

    key: str
    task: Task
    candidate: Candidate
    options: dict[str, Any]
    attempts: int
    """Times that the job was leased, this time included: more than one where a worker died."""
    items: tuple[str, ...]
    """The rows of the input that wait for it."""


class Queue:
    """The queue of an open run, for one worker (`owner`) or for a process that adds jobs. Threads may share it."""

    def __init__(self, store: Store, owner: str = "", now: Callable[[], float] = time.time) -> None:
        self.store = store
        self.owner = owner
        self._now = now

    def add(
        self,
        task: Task,
        candidate: Candidate,
        options: dict[str, Any],
        key: str,
        item: tuple[int, str],
        priority: int = 0,
        fresh: bool = False,
    ) -> Literal["queued", "judged"]:
        """Queues the job of one input row (`item`: its position and name), unless the run has its evaluation.

        With `fresh` the job is judged again. A job that waits already gets the higher of both priorities.
        """
        gate = task.gate.model_dump_json() if task.gate else None
        position = self.place(*item)
        named = (key, self.store.add_task(task), self.store.add_candidate(candidate), gate, json.dumps(options))
        with self.store.transaction() as db:
            found = db.execute(_FOUND, (key, 0)).fetchone()[0]
            if found and not fresh:
                _judged(db, [(position, item[1])], found, self._now())
                return "judged"
            db.execute(_ADD, (*named, priority, found or 0, self._now()))
            db.execute("INSERT OR REPLACE INTO queue_items VALUES (?, ?, ?)", (position, item[1], key))
        return "queued"

    def place(self, position: int, item_id: str) -> int:
        """Returns the position of an input row among the run's items: several inputs may be queued in one run.

        The row keeps its own position, unless another row has it. Then it keeps the position that it was given before,
        or goes behind all others.
        """
        both = "SELECT {0} FROM queue_items WHERE {1} = ? UNION SELECT {0} FROM items WHERE {1} = ?"
        with self.store.transaction() as db:
            names = db.execute(both.format("item_id", "position"), (position, position)).fetchall()
            if not names or (item_id,) in names:
                return position
            if known := db.execute(both.format("position", "item_id"), (item_id, item_id)).fetchone():
                return int(known[0])
            last = "SELECT max(position) FROM (SELECT position FROM queue_items UNION ALL SELECT position FROM items)"
            return int(db.execute(last).fetchone()[0]) + 1

    def lease(self, seconds: float, count: int = 1) -> list[Leased]:
        """Leases up to `count` jobs for `seconds`: those of the highest priority, and the oldest among equals."""
        now = self._now()
        taken = []
        with self.store.transaction() as db:
            for key, *rest in db.execute(_NEXT, {"now": now, "count": count}).fetchall():
                if self._settled(db, key):
                    continue
                db.execute(
                    "UPDATE queue SET state = 'leased', owner = ?, expires = ?, attempts = attempts + 1 WHERE key = ?",
                    (self.owner, now + seconds, key),
                )
                names = db.execute("SELECT item_id FROM queue_items WHERE key = ? ORDER BY position", (key,))
                taken.append((key, *rest, tuple(name for (name,) in names)))
        return [self._leased(*row) for row in taken]

    def renew(self, seconds: float) -> int:
        """Renews this owner's leases, also expired ones that no other worker took; returns their number."""
        with self.store.transaction() as db:
            return db.execute(
                "UPDATE queue SET expires = ? WHERE state = 'leased' AND owner = ?", (self._now() + seconds, self.owner)
            ).rowcount

    def finish(self, key: str, evaluation: Evaluation) -> bool:
        """Stores a job's evaluation. Stores nothing and returns False when another worker has taken the job over."""
        record = self.store.pack(evaluation.plain())
        now = self._now()
        row = (key, evaluation.task_hash, evaluation.candidate_id, evaluation.verdict, record, now)
        with self.store.transaction() as db:
            if not self._holds(db, key):
                return False
            if not self._settled(db, key):
                number = int(db.execute(ADD_EVALUATION, row).lastrowid or 0)
                state: State = "failed" if evaluation.verdict == "harness_error" else "done"
                _end(db, key, state, number, now)
        return True

    def fail(self, key: str, note: str) -> bool:
        """Stores why a job cannot be judged (its task fails). Returns False when another worker has taken it over."""
        with self.store.transaction() as db:
            if not self._holds(db, key):
                return False
            db.execute(
                "INSERT INTO items (position, item_id, status, evaluation, note, created) "
                "SELECT position, item_id, 'bad_task', NULL, ?, ? FROM queue_items WHERE key = ?",
                (note, self._now(), key),
            )
            _close(db, key, "failed", note)
        return True

    def give_back(self) -> None:
        """Returns this owner's leased jobs to the queue; the attempt does not count."""
        with self.store.transaction() as db:
            db.execute(
                "UPDATE queue SET state = 'queued', owner = NULL, expires = NULL, attempts = attempts - 1 "
                "WHERE state = 'leased' AND owner = ?",
                (self.owner,),
            )

    def _holds(self, db: sqlite3.Connection, key: str) -> bool:
        held = db.execute("SELECT 1 FROM queue WHERE key = ? AND state = 'leased' AND owner = ?", (key, self.owner))
        return held.fetchone() is not None

    def _settled(self, db: sqlite3.Connection, key: str) -> bool:
        """Marks the job done and returns True if the run got its evaluation in another way since it was queued."""
        (after,) = db.execute("SELECT after FROM queue WHERE key = ?", (key,)).fetchone()
        found = db.execute(_FOUND, (key, after)).fetchone()[0]
        if found:
            _end(db, key, "done", found, self._now())
        return bool(found)

    def _leased(
        self, key: str, task: str, candidate: str, gate: str | None, options: str, attempts: int, items: tuple[str, ...]
    ) -> Leased:
        wanted, given = self.store.task(task), self.store.candidate(candidate)
        if wanted is None or given is None:
            raise StoreError(f"job {key[:12]} names a task or a candidate that the run does not have")
        if gate is not None:
            wanted = wanted.model_copy(update={"gate": Gate.model_validate_json(gate)})
        return Leased(key, wanted, given, json.loads(options), attempts + 1, items)


def _judged(db: sqlite3.Connection, items: Iterable[tuple[int, str]], evaluation: int, now: float) -> None:
    db.executemany(
        "INSERT INTO items (position, item_id, status, evaluation, note, created) VALUES (?, ?, 'judged', ?, '', ?)",
        [(position, name, evaluation, now) for position, name in items],
    )


def _end(db: sqlite3.Connection, key: str, state: State, evaluation: int, now: float) -> None:
    """Gives a job's evaluation to the items that wait for it, and closes the job."""
    items = db.execute("SELECT position, item_id FROM queue_items WHERE key = ? ORDER BY position", (key,)).fetchall()
    _judged(db, items, evaluation, now)
    _close(db, key, state, "")


def _close(db: sqlite3.Connection, key: str, state: State, note: str) -> None:
    db.execute("DELETE FROM queue_items WHERE key = ?", (key,))
    db.execute("UPDATE queue SET state = ?, note = ?, owner = NULL, expires = NULL WHERE key = ?", (state, note, key))
