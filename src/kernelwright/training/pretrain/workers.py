"""Numbered jobs in worker processes that may die, raise or hang without stopping other jobs or losing results.

Each worker is a fresh interpreter that receives the function and then one job number after another. It sends
heartbeats; a silent worker is killed and handled like a dead one, and another worker retries its job. A job that fails
`TRIES` times is reported as lost. `multiprocessing` does not fit: its pool ends all jobs with one process, waits
forever for a hanging one, and needs the caller's script to be importable.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import queue
import selectors
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from kernelwright import errors
from kernelwright.errors import KernelwrightError

TRIES = 2
"""The number of attempts at a job."""
STARTING = 120.0
"""Seconds to a fresh worker's first message: on a busy machine, imports are slow."""
LEAVING = 10.0
"""Seconds that a worker may take to exit."""

Beat = Callable[[], None]
"""Sends a heartbeat; a job calls it regularly."""
Job = Callable[[int, Beat], Any]
"""Maps a number to a JSON value. Must be picklable, and importable by a fresh interpreter."""


@dataclass(frozen=True)
class Ended:
    """A finished job with its `value`, or with the reason in `lost` (empty for a job that returned)."""

    number: int
    value: Any = None
    lost: str = ""


@dataclass
class _WorkerProcess:
    """A worker process, its current job, and the deadline of its next message."""

    process: subprocess.Popen[bytes]
    out: IO[bytes]
    job: int | None
    deadline: float
    unread: bytes = b""


def run_jobs(job: Job, numbers: Sequence[int], workers: int, patience: float) -> Generator[Ended, None, None]:
    """Calls `job` with each number in any order, in `workers` processes. Yields each job as it ends.

    `patience`: the most seconds between heartbeats. A `KernelwrightError` in a job ends all jobs and is raised, since a
    retry does not help, e.g. with a full disk. Closing the iterator ends all processes.
    """
    crew = _Crew(job, numbers, workers, patience)
    try:
        yield from crew.ended()
    finally:
        crew.close()


class _Crew:
    def __init__(self, job: Job, numbers: Sequence[int], workers: int, patience: float) -> None:
        told = {"paths": sys.path, "job": base64.b64encode(pickle.dumps(job)).decode()}
        self._first = json.dumps(told).encode() + b"\n"
        self._waiting = deque(numbers)
        self._patience = patience
        self._failures: Counter[int] = Counter()
        self._running: list[_WorkerProcess] = []
        self._selector = selectors.DefaultSelector()
        self._workers = min(workers, len(numbers))

    def ended(self) -> Iterator[Ended]:
        """Yields jobs as they end."""
        for _ in range(self._workers):
            self._hire()
        while self._running:
            nearest = min(worker.deadline for worker in self._running)
            ready = self._selector.select(max(0.0, nearest - time.monotonic()))
            for key, _ in ready:
                yield from self._listen(key.data)
            now = time.monotonic()
            for worker in [s for s in self._running if s.deadline < now]:
                yield from self._fire(worker, f"said nothing for {self._patience:g} s")

    def close(self) -> None:
        """Kills the running workers; their jobs are lost."""
        for worker in list(self._running):
            self._leave(worker)
        self._selector.close()

    def _hire(self) -> None:
        """Starts a worker and gives it a waiting job."""
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # the parent handles Ctrl-C and ends its workers
            env=_environment(),
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        worker = _WorkerProcess(process, process.stdout, None, time.monotonic() + max(STARTING, self._patience))
        self._running.append(worker)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        self._send(worker, self._first)
        self._give(worker)

    def _give(self, worker: _WorkerProcess) -> None:
        """Gives a worker the next job, or ends it if no job is left."""
        if not self._waiting:
            self._leave(worker, kill=False)
            return
        worker.job = self._waiting.popleft()
        self._send(worker, b"%d\n" % worker.job)

    def _send(self, worker: _WorkerProcess, line: bytes) -> None:
        assert worker.process.stdin is not None
        with contextlib.suppress(OSError):  # `_listen` notices a dead worker
            worker.process.stdin.write(line)
            worker.process.stdin.flush()

    def _listen(self, worker: _WorkerProcess) -> Iterator[Ended]:
        """Reads and handles a worker's new messages."""
        if worker not in self._running:
            return
        said = worker.out.read(1 << 16)
        if not said:
            yield from self._fire(worker, "")
            return
        worker.deadline = time.monotonic() + self._patience
        *lines, worker.unread = (worker.unread + said).split(b"\n")
        for line in lines:
            yield from self._heard(worker, json.loads(line))

    def _heard(self, worker: _WorkerProcess, said: dict[str, Any]) -> Iterator[Ended]:
        if "raise" in said:
            kind = getattr(errors, said["raise"])
            raise kind(said["message"], hint=said["hint"])
        if "failed" in said:
            yield from self._fire(worker, said["failed"])
        elif "value" in said:
            number, worker.job = worker.job, None
            assert number is not None
            self._give(worker)
            yield Ended(number, said["value"])

    def _fire(self, worker: _WorkerProcess, why: str) -> Iterator[Ended]:
        """Ends a failed worker; its job is retried, or lost after `TRIES` failures."""
        number, worker.job = worker.job, None
        self._leave(worker)
        if number is not None:
            self._failures[number] += 1
            if self._failures[number] < TRIES:
                self._waiting.append(number)
            else:
                yield Ended(number, lost=why or f"its process ended with status {worker.process.returncode}")
        if self._waiting:
            self._hire()

    def _leave(self, worker: _WorkerProcess, *, kill: bool = True) -> None:
        self._running.remove(worker)
        self._selector.unregister(worker.out)
        if kill:
            worker.process.kill()
        for stream in (worker.process.stdin, worker.out):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()  # a worker exits at the end of its input
        try:
            worker.process.wait(LEAVING)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


def _environment() -> dict[str, str]:
    """Returns the workers' environment: they must find this package and use one core."""
    paths = [str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")]
    one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    path = os.pathsep.join(p for p in paths if p)
    return {**os.environ, **one, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}


# -- the worker's side


def _main() -> None:
    """Reads the function and then job numbers; writes a message for each. Exits when its parent is gone."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # libraries' prints must not mix with messages
    job = _told()
    numbers: queue.Queue[int] = queue.Queue()
    threading.Thread(target=_read_numbers, args=(numbers,), daemon=True).start()

    def say(**said: object) -> None:
        try:
            answers.write(json.dumps(said).encode() + b"\n")
        except BrokenPipeError:
            os._exit(0)

    while True:
        number = numbers.get()
        say(begun=number)
        try:
            value = job(number, partial(say, going=number))
        except KernelwrightError as error:
            say(**{"raise": type(error).__name__, "message": str(error), "hint": error.hint})
        except BaseException as error:
            say(failed=f"{type(error).__name__}: {error}"[:500])
        else:
            say(value=value)


def _told() -> Job:
    """Reads the job. Sets the parent's search path first, since the job's module may be found only there."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        os._exit(0)
    told = json.loads(line)
    sys.path[:] = told["paths"]
    job: Job = pickle.loads(base64.b64decode(told["job"]))
    return job


def _read_numbers(numbers: queue.Queue[int]) -> None:
    """Reads job numbers in a thread; exits the process at the end of input, even while a job hangs."""
    for line in sys.stdin.buffer:
        numbers.put(int(line))
    os._exit(0)


if __name__ == "__main__":
    _main()
