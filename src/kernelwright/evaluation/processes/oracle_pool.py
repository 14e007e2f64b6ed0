"""Oracles of recently judged tasks, shared by the threads that judge further answers to them.

Answers to one task come one after another and to any thread, as in sampling and in reinforcement learning. An oracle
that has loaded the task and caches equal trials saves as much as a fifth of judging a small candidate.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from kernelwright.evaluation.processes.oracle_client import OracleClient
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task

KEPT_FOR_EACH = 8
"""A bound on the idle oracles per judging thread: each is a process of 15 MB beyond what all share."""


class Oracles:
    """The idle oracles of one evaluator's threads. An oracle serves one thread at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._idle: list[tuple[str, OracleClient]] = []
        """Pairs of a task's hash and its oracle, the most recently used last."""
        self._most = 0

    def join(self) -> None:
        """Counts one more thread that judges."""
        with self._lock:
            self._most += KEPT_FOR_EACH

    @contextlib.contextmanager
    def lent(self, task: Task) -> Iterator[OracleClient]:
        """Lends the oracle of a task, started at its first request. An exception ends it."""
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
        """Ends the idle oracles. May be called twice."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, session in idle:
            session.close()
