"""Judges on this machine in separate processes: one for each GPU, and one for jobs that need no GPU.

This executor is for a caller that computes meanwhile, such as training. Judging many candidates at once is much Python
code, and an interpreter runs one thread at a time, so in one process generation and judging slow each other down.

A process that ends is replaced, and its unfinished jobs are judged once more. Ctrl-C reaches the caller alone: the
processes finish their jobs, and end when the caller tells them to or is gone.
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
"""Seconds that a process may take to end its children and exit."""
NICE = 5
"""The niceness of the process without a GPU and of its children, so that they do not delay the timing of others."""
SWITCH_SECONDS = 0.001
"""The interpreter's switch interval in a judging process. Most threads only pass on a message, and another one may
hold an exclusive GPU lease meanwhile."""


class Apart(OnThisMachine):
    """Judges on this machine, in other processes."""

    def __init__(
        self,
        jobs: int = 1,
        max_pending: int | None = None,
        gpus: tuple[str, ...] | None = None,
        device: str | None = None,
    ) -> None:
        """Takes the arguments of `Local`. A process is started with the first job for it."""
        super().__init__(jobs, max_pending, gpus)
        self._device = device
        self._slots = [_ProcessSlot(self.capacity, device) for _ in self.gpus]
        self._without = _ProcessSlot(self.capacity, device, NICE if self.gpus else 0)
        """The process for jobs without a GPU. Their work would delay the timing of other candidates."""

    def judge(self, job: Job, slot: int) -> Evaluation:
        gpu = self.gpu_of(slot) if self._device or job.options.resolved() == "gpu" else None
        at = self._without if gpu is None else self._slots[slot]
        answer = at.process().ask((job.task, job.candidate, job.options, gpu))
        if isinstance(answer, Evaluation):
            return answer
        raise as_raised(answer)

    def shut(self) -> None:
        for slot in (*self._slots, self._without):
            slot.close()


class _ProcessSlot:
    """Holds one process and its successors. Several threads may ask it."""

    def __init__(self, threads: int, device: str | None, nice: int = 0) -> None:
        self._how = threads, device, nice
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def process(self) -> _Process:
        """Returns the process; starts one where none is alive."""
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
    """A judging process, and the requests that it has not answered."""

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
        """Returns the answer, after any wait. Raises `Lost` when the process ends before it has answered."""
        future: Future[Evaluation | Failure] = Future()
        with self._lock:
            if self.gone:
                raise Lost(self._fate())
            self._number += 1
            number = self._number
            self._asked[number] = future
        with contextlib.suppress(OSError), self._sending:  # `_read` notices a process that is gone
            self._pipe.send((number, question))
        return future.result()

    def end(self) -> None:
        """Tells the process to end its children and exit; kills it after `LEAVING` seconds."""
        with contextlib.suppress(OSError), self._sending:
            self._pipe.send(None)
        try:
            self.popen.wait(LEAVING)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()

    def _read(self) -> None:
        """Hands answers to the waiting threads until the process is gone. Runs in a thread of its own."""
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
        self.popen.kill()  # it may have closed its end of the pipe and still run
        return f"the process that judged went away (status {self.popen.wait()})"


def _environment() -> dict[str, str]:
    """Returns our environment with `sys.path` as PYTHONPATH: only the caller may know where this package lies."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


# -- the other side


def _main(fd: int, threads: int, device: str | None, nice: int) -> None:
    """Serves judging requests until it is told to exit or the caller is gone."""
    pipe: Connection[Any, Any] = Connection(fd)
    os.dup2(2, 1)  # a library's prints must not reach the caller's stdout
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
    os._exit(0)  # no caller waits for jobs that are still being judged


def _judged(evaluators: Evaluators, task: Any, candidate: Any, options: EvalOptions, gpu: str | None) -> Any:
    try:
        return evaluators.get(options, gpu).evaluate(task, candidate, options)
    except KernelwrightError as error:
        return as_failure(error)
    except Exception as error:
        return as_failure(HarnessError(f"judging failed: {type(error).__name__}: {error}"[:500]))


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] or None, int(sys.argv[4]))
