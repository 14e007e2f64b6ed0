"""The processes of a corpus builder: each takes one chunk after another and reports rows as they are judged.

A process that dies is replaced and its chunk continues; after three deaths over one chunk the build ends.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from kernelwright.corpus.processes import send, start, stop
from kernelwright.errors import HarnessError

MODULE = "kernelwright.corpus.judging"
DEATHS = 3
"""The build ends when this many processes have died over one chunk."""


@dataclass(frozen=True)
class ChunkWork:
    """A chunk to do: its number, its count of tasks, and the ids of its finished rows."""

    chunk: int
    tasks: int
    done: tuple[str, ...] = ()


class Crew:
    """Yields the messages of the processes until every chunk has ended. Use as a context manager.

    Raises `HarnessError` where a process reports a failure, or `DEATHS` processes died over one chunk.
    """

    def __init__(self, first: dict[str, Any], jobs: int, work: Sequence[ChunkWork], on_gpus: bool = False) -> None:
        """`first` is the first message to each process; `on_gpus` spreads the processes over the visible GPUs."""
        self._first = first
        self._waiting = deque(work)
        self._said: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
        self._at_work: dict[int, ChunkWork] = {}
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._deaths: dict[int, int] = {}
        self._jobs = min(jobs, len(work))
        self._gpus = _gpus() if on_gpus else ()

    def __enter__(self) -> Self:
        for seat in range(self._jobs):
            self._hire(seat)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for process in self._processes.values():
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()  # all first, so that they end in parallel
        for process in self._processes.values():
            if kind is not None:  # their current rows are lost anyway
                process.terminate()
            stop(process, 20.0)

    def _hire(self, seat: int) -> None:
        environment = {"CUDA_VISIBLE_DEVICES": self._gpus[seat % len(self._gpus)]} if self._gpus else {}
        process = self._processes[seat] = start(MODULE, self._first, environment)
        threading.Thread(target=self._listen, args=(seat, process), daemon=True).start()
        self._give(seat)

    def _give(self, seat: int) -> None:
        if self._waiting:
            work = self._at_work[seat] = self._waiting.popleft()
            send(self._processes[seat], {"chunk": work.chunk, "tasks": work.tasks, "done": work.done})

    def _listen(self, seat: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.endswith("\n"):
                    self._said.put((seat, json.loads(line)))
        except ValueError:
            pass  # the stream was closed, or ends in the middle of a line: the process is gone
        self._said.put((seat, None))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while self._at_work:
            seat, said = self._said.get()
            if said is None:
                self._bury(seat)
                continue
            if "failed" in said:
                raise HarnessError(f"a process of the builder failed: {said['failed']}")
            if "row" in said:
                work = self._at_work[seat]
                self._at_work[seat] = replace(work, done=(*work.done, said["row"]["row_id"]))
            if "end" in said:
                del self._at_work[seat]
                self._give(seat)
            yield said

    @property
    def at_work(self) -> int:
        """The number of chunks that processes have."""
        return len(self._at_work)

    def reported(self) -> Iterator[dict[str, Any]]:
        """Yields what the processes have said and nobody has read yet; gives them no more work."""
        while not self._said.empty():
            seat, said = self._said.get()
            if said is None or "failed" in said:
                continue
            if "end" in said:
                self._at_work.pop(seat, None)
            yield said

    def _bury(self, seat: int) -> None:
        """Replaces an ended process that had work, and requeues the work. Raises `HarnessError` after `DEATHS`."""
        work = self._at_work.pop(seat, None)
        if work is None:
            return
        status = self._processes[seat].wait()
        self._deaths[work.chunk] = self._deaths.get(work.chunk, 0) + 1
        if self._deaths[work.chunk] >= DEATHS:
            raise HarnessError(
                f"{DEATHS} processes died over chunk {work.chunk}, the last with status {status}",
                hint="the same command continues; with less memory, give fewer --jobs",
            )
        self._waiting.appendleft(work)
        self._hire(seat)


def _gpus() -> tuple[str, ...]:
    from kernelwright.evaluation.options import visible_gpus

    return visible_gpus()


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
