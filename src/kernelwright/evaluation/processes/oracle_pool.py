"""Oracles of tasks that were judged lately, for whichever thread judges the next answer to one of them.

Answers to one task come one after another and to any thread, as in sampling and in reinforcement learning: an oracle
that has the task at hand, and what equal trials gave, is worth as much as a fifth of judging a small candidate.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from kernelwright.evaluation.processes.oracle_client import OracleClient
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task

KEPT_FOR_EACH = 8
"""Oracles that are kept, at most, for each thread that judges: a process of 15 MB beyond what all share."""


class Oracles:
    """What threads of one evaluator share. An oracle serves one of them at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._idle: list[tuple[str, OracleClient]] = []
        """By the task's hash, the one that was used last at the end."""
        self._most = 0

    def join(self) -> None:
        """One more thread judges."""
        with self._lock:
            self._most += KEPT_FOR_EACH

    @contextlib.contextmanager
    def lent(self, task: Task) -> Iterator[OracleClient]:
        """The oracle of a task, started when first asked something. What was raised ends it."""
        session = self._taken(task)
        try:
            yield session
        except BaseException:
            session.close()
            raise
        with self._lock:
            self._idle.append((task.content_hash, session))
            more = max(0, len(self._idle) - self._most)
            over, self._idle = self._idle[:more], self._idle[more:]
        for _, old in over:
            old.close()

    def _taken(self, task: Task) -> OracleClient:
        with self._lock:
            for index in reversed(range(len(self._idle))):
                if self._idle[index][0] == task.content_hash:
                    return self._idle.pop(index)[1]
        return OracleClient(task, self._pool)

    def close(self) -> None:
        """Ends those that are not lent. May be called twice."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, session in idle:
            session.close()
