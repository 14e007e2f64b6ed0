"""The executor of this machine with its judging in processes of their own: one a GPU, and one for what needs none.

For whoever computes beside it, as training does: judging many candidates at once is much Python, and an interpreter
runs one thread at a time, so that a policy that generates in the same process and its judges hold each other up.

A process that goes away is replaced, and what it was judging is judged once more. Ctrl-C is for the caller: the
processes finish what they judge, and end when they are told to or when their caller is gone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection, Pipe
from typing import Any

from kernelwright.errors import HarnessError, KernelwrightError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor.lanes import Failure, Job, Lost, as_failure, as_raised
from kernelwright.executor.local import Evaluators, OnThisMachine
from kernelwright.records import Evaluation

LEAVING = 60.0
"""Seconds that a process may take to end its children and leave."""
NICE = 5
"""By how much the process that needs no GPU, and its children, give way to those that have one."""
SWITCH_SECONDS = 0.001
"""How long a thread of such a process holds Python while another wants it: most only pass on a message, and somebody
may have a GPU alone meanwhile."""


class Apart(OnThisMachine):
    """Judges on this machine, in other processes."""

    def __init__(
        self,
        jobs: int = 1,
        max_pending: int | None = None,
        gpus: tuple[str, ...] | None = None,
        device: str | None = None,
    ) -> None:
        """As `Local`; a process is started with the first job for it."""
        super().__init__(jobs, max_pending, gpus)
        self._device = device
        self._seats = [_Seat(self.capacity, device) for _ in self.gpus]
        self._without = _Seat(self.capacity, device, NICE if self.gpus else 0)
        """Where jobs go that need no GPU: much work, which would hold up who times candidates."""

    def judge(self, job: Job, seat: int) -> Evaluation:
        gpu = self.gpu_of(seat) if self._device or job.options.resolved() == "gpu" else None
        at = self._without if gpu is None else self._seats[seat]
        answer = at.process().ask((job.task, job.candidate, job.options, gpu))
        if isinstance(answer, Evaluation):
            return answer
        raise as_raised(answer)

    def shut(self) -> None:
        for seat in (*self._seats, self._without):
            seat.close()


class _Seat:
    """One process and its successors, asked by several threads."""

    def __init__(self, threads: int, device: str | None, nice: int = 0) -> None:
        self._how = threads, device, nice
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def process(self) -> _Process:
        """The process, started if there is none that lives."""
        with self._lock:
            if self._process is None or self._process.gone:
                self._process = _Process(*self._how)
            return self._process

    def close(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.end()
            self._process = None


class _Process:
    """A process that judges, and the questions that it has not answered."""

    def __init__(self, threads: int, device: str | None, nice: int) -> None:
        ours, theirs = Pipe()
        words = [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), str(threads), device or "", str(nice)]
        with theirs:
            self.popen = subprocess.Popen(
                words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=_environment(), start_new_session=True
            )
        self._pipe = ours
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._asked: dict[int, Future[Evaluation | Failure]] = {}
        self._number = 0
        self.gone = False
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, question: tuple[Any, ...]) -> Evaluation | Failure:
        """The answer, whenever it comes. Raises `Lost` when the process goes away before."""
        future: Future[Evaluation | Failure] = Future()
        with self._lock:
            if self.gone:
                raise Lost(self._fate())
            self._number += 1
            number = self._number
            self._asked[number] = future
        with contextlib.suppress(OSError), self._sending:  # that it is gone shows where it is read
            self._pipe.send((number, question))
        return future.result()

    def end(self) -> None:
        """Has it end its children and leave; kills it when it does not."""
        with contextlib.suppress(OSError), self._sending:
            self._pipe.send(None)
        try:
            self.popen.wait(LEAVING)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()

    def _read(self) -> None:
        """A thread's work: hands answers to those who wait, until the process is gone."""
        with contextlib.suppress(OSError, EOFError), self._pipe:
            while True:
                number, answer = self._pipe.recv()
                with self._lock:
                    waiting = self._asked.pop(number)
                waiting.set_result(answer)
        with self._lock:
            self.gone = True
            left, self._asked = list(self._asked.values()), {}
        for waiting in left:
            waiting.set_exception(Lost(self._fate()))

    def _fate(self) -> str:
        self.popen.kill()  # one that only closed its end
        return f"the process that judged went away (status {self.popen.wait()})"


def _environment() -> dict[str, str]:
    """Ours, with the place of this package: the caller may have found it by a path that only it knows."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


# -- the other side


def _main(fd: int, threads: int, device: str | None, nice: int) -> None:
    """Judges what is asked until it is told to leave, or until nobody is there to ask."""
    pipe: Connection[Any, Any] = Connection(fd)
    os.dup2(2, 1)  # what a library prints is not the caller's output
    sys.setswitchinterval(SWITCH_SECONDS)
    os.nice(nice)
    evaluators, sending = Evaluators(device), threading.Lock()

    def answer(number: int, question: tuple[Any, ...]) -> None:
        told = _judged(evaluators, *question)
        with contextlib.suppress(OSError), sending:
            pipe.send((number, told))

    pool = ThreadPoolExecutor(threads)
    with contextlib.suppress(EOFError, OSError):
        while (asked := pipe.recv()) is not None:
            pool.submit(answer, *asked)
    evaluators.close()
    os._exit(0)  # who is gone does not wait for what is still judged


def _judged(evaluators: Evaluators, task: Any, candidate: Any, options: EvalOptions, gpu: str | None) -> Any:
    try:
        return evaluators.get(options, gpu).evaluate(task, candidate, options)
    except KernelwrightError as error:
        return as_failure(error)
    except Exception as error:
        return as_failure(HarnessError(f"judging failed: {type(error).__name__}: {error}"[:500]))


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] or None, int(sys.argv[4]))
