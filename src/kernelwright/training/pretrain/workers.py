"""Numbered jobs in processes that may die, raise or hang: none of that stops the others or loses what is done.

Each process is a fresh interpreter that is told what to call and then one number after another. It says a line now and
then; one that is silent for too long is killed like one that has died, and its job is given to another. A job that
fails `TRIES` times is given up and reported as lost. Not `multiprocessing`: its pool ends all jobs with one process,
waits for ever for one that hangs, and needs the caller's script to be importable.
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
"""Processes that may fail over one job."""
STARTING = 120.0
"""Seconds that a fresh process may take until it speaks: on a busy machine, imports alone take many."""
LEAVING = 10.0
"""Seconds that a process may take to leave when there is nothing left to do."""

Beat = Callable[[], None]
"""What a job calls now and then to say that it goes on."""
Job = Callable[[int, Beat], Any]
"""From a number to something that JSON can hold. Must be picklable, and importable by a fresh interpreter."""


@dataclass(frozen=True)
class Ended:
    """A job that is over. `lost`: why it was given up, empty where `value` is what it returned."""

    number: int
    value: Any = None
    lost: str = ""


@dataclass
class _WorkerProcess:
    """A process, the job that it has, and by when it must say something."""

    process: subprocess.Popen[bytes]
    out: IO[bytes]
    job: int | None
    deadline: float
    unread: bytes = b""


def run_jobs(job: Job, numbers: Sequence[int], workers: int, patience: float) -> Generator[Ended, None, None]:
    """Calls `job` with each number in some order, `workers` at a time. Yields each as it ends.

    `patience`: seconds that a job may be silent. An error of ours (`KernelwrightError`) in a job ends everything and is
    raised, as it would be without processes: a full disk is no bad luck. Closing the iterator ends all processes.
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
        self._seats: list[_WorkerProcess] = []
        self._selector = selectors.DefaultSelector()
        self._workers = min(workers, len(numbers))

    def ended(self) -> Iterator[Ended]:
        """Jobs as they end."""
        for _ in range(self._workers):
            self._hire()
        while self._seats:
            nearest = min(seat.deadline for seat in self._seats)
            ready = self._selector.select(max(0.0, nearest - time.monotonic()))
            for key, _ in ready:
                yield from self._listen(key.data)
            now = time.monotonic()
            for seat in [s for s in self._seats if s.deadline < now]:
                yield from self._fire(seat, f"said nothing for {self._patience:g} s")

    def close(self) -> None:
        """Ends what still runs; what it was doing is lost."""
        for seat in list(self._seats):
            self._leave(seat)
        self._selector.close()

    def _hire(self) -> None:
        """A new process, with a job from those that wait."""
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent, which ends them
            env=_environment(),
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        seat = _WorkerProcess(process, process.stdout, None, time.monotonic() + max(STARTING, self._patience))
        self._seats.append(seat)
        self._selector.register(process.stdout, selectors.EVENT_READ, seat)
        self._send(seat, self._first)
        self._give(seat)

    def _give(self, seat: _WorkerProcess) -> None:
        """The next job; a process for which there is none ends."""
        if not self._waiting:
            self._leave(seat, kill=False)
            return
        seat.job = self._waiting.popleft()
        self._send(seat, b"%d\n" % seat.job)

    def _send(self, seat: _WorkerProcess, line: bytes) -> None:
        assert seat.process.stdin is not None
        with contextlib.suppress(OSError):  # that it is gone shows where it is read
            seat.process.stdin.write(line)
            seat.process.stdin.flush()

    def _listen(self, seat: _WorkerProcess) -> Iterator[Ended]:
        """What a process has said since it was last listened to."""
        if seat not in self._seats:
            return
        said = seat.out.read(1 << 16)
        if not said:
            yield from self._fire(seat, "")
            return
        seat.deadline = time.monotonic() + self._patience
        *lines, seat.unread = (seat.unread + said).split(b"\n")
        for line in lines:
            yield from self._heard(seat, json.loads(line))

    def _heard(self, seat: _WorkerProcess, said: dict[str, Any]) -> Iterator[Ended]:
        if "raise" in said:
            kind = getattr(errors, said["raise"])
            raise kind(said["message"], hint=said["hint"])
        if "failed" in said:
            yield from self._fire(seat, said["failed"])
        elif "value" in said:
            number, seat.job = seat.job, None
            assert number is not None
            self._give(seat)
            yield Ended(number, said["value"])

    def _fire(self, seat: _WorkerProcess, why: str) -> Iterator[Ended]:
        """Ends a process that failed, gives its job to another, or gives it up."""
        number, seat.job = seat.job, None
        self._leave(seat)
        if number is not None:
            self._failures[number] += 1
            if self._failures[number] < TRIES:
                self._waiting.append(number)
            else:
                yield Ended(number, lost=why or f"its process ended with status {seat.process.returncode}")
        if self._waiting:
            self._hire()

    def _leave(self, seat: _WorkerProcess, *, kill: bool = True) -> None:
        self._seats.remove(seat)
        self._selector.unregister(seat.out)
        if kill:
            seat.process.kill()
        for stream in (seat.process.stdin, seat.out):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()  # a process leaves when its input ends
        try:
            seat.process.wait(LEAVING)
        except subprocess.TimeoutExpired:
            seat.process.kill()
            seat.process.wait()


def _environment() -> dict[str, str]:
    """Ours, so that a process finds this package and takes one core."""
    paths = [str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")]
    one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    path = os.pathsep.join(p for p in paths if p)
    return {**os.environ, **one, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}


# -- the other side


def _main() -> None:
    """Reads what to call, then numbers; says a line for each. Ends at once when its parent is gone."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints is no answer
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
    """What to call: the parent's search path comes first, since the job may be in a file that only it knows."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        os._exit(0)
    told = json.loads(line)
    sys.path[:] = told["paths"]
    job: Job = pickle.loads(base64.b64decode(told["job"]))
    return job


def _read_numbers(numbers: queue.Queue[int]) -> None:
    """A thread's work: a parent that is gone ends this process, even in the middle of a job that hangs."""
    for line in sys.stdin.buffer:
        numbers.put(int(line))
    os._exit(0)


if __name__ == "__main__":
    _main()
