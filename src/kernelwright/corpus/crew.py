"""The processes of a corpus builder: each gets chunks one after another, and says rows as they are judged.

A process that dies is replaced and its chunk goes on where it was; after three deaths over one chunk the build ends.
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
"""So many processes may die over one chunk."""


@dataclass(frozen=True)
class ChunkWork:
    """A chunk to be done: its number, its tasks, and the rows of it that are done already."""

    chunk: int
    tasks: int
    done: tuple[str, ...] = ()


class Crew:
    """Yields what the processes say, until every chunk has ended. Use as a context manager."""

    def __init__(self, first: dict[str, Any], jobs: int, work: Sequence[ChunkWork], on_gpus: bool = False) -> None:
        """`first` is what each process is told at its start; `on_gpus` spreads processes over the GPUs there are."""
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
                process.stdin.close()  # all at once, so that they end side by side
        for process in self._processes.values():
            if kind is not None:  # what they are judging is lost anyway, and judging ends with its process
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
            pass  # the stream was closed, or ends within a line: the process is gone
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

    def _bury(self, seat: int) -> None:
        """A process has ended: an error where it had work, unless another can take it."""
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
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
