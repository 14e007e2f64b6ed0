"""The base of all executors: a priority queue of jobs with a bound on its length, and the threads that serve it.

A lane is a thread of this process that takes one job after another and has it judged, by an evaluator in this process,
in another process, or by an actor on another machine.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Self

from kernelwright import errors
from kernelwright.errors import HarnessError, KernelwrightError
from kernelwright.evaluation import EvalOptions
from kernelwright.records import Candidate, Evaluation, Task

Keep = Callable[["Job", Evaluation], None]
"""Stores a job's evaluation."""

URGENT_SHARE = 0.6
"""The largest share of lanes that serve jobs of a raised priority while other jobs wait. The caller may soon wait for
one of the other jobs, and a raised job gains nothing by waiting beside many of its kind."""
CLOSING_SECONDS = 3600.0
"""Seconds that closing waits for running jobs. Deadlines of its own end each judgement long before."""
ATTEMPTS = 2
"""Times that a job is given to a slot before it becomes `harness_error`."""


class Full(KernelwrightError):
    """The executor holds `max_pending` jobs that are not done."""


class Lost(Exception):
    """The process or actor that judged a job is gone; the message says why. Another one may take the job."""


class Job(Future[Evaluation]):
    """One candidate to be judged, and the future of its evaluation. `concurrent.futures.wait` accepts it.

    `result` raises `TaskError` when the task's own reference does not run. `cancel` works until judging begins.
    """

    def __init__(
        self, task: Task, candidate: Candidate, options: EvalOptions, priority: int = 0, keep: Keep | None = None
    ) -> None:
        super().__init__()
        self.task = task
        self.candidate = candidate
        self.options = options
        self.priority = priority
        self.keep = keep
        self.attempts = 0
        self._turn = threading.RLock()
        self.avoid: int | None = None
        """The slot (see `Lanes`) that has lost the job already."""

    def begin(self) -> bool:
        """Tells whether the job is still to be judged. From here on it cannot be cancelled."""
        with self._turn:
            self.attempts += 1
            return not self.cancelled() and (self.attempts > 1 or self.set_running_or_notify_cancel())

    def cancel(self) -> bool:
        """Tells whether the job will never be judged. Threads that wait for its result are woken at once."""
        with self._turn:
            if not self.cancelled() and super().cancel():
                self.set_running_or_notify_cancel()
            return self.cancelled()

    def finish(self, evaluation: Evaluation) -> None:
        """Stores the evaluation by `keep`, then sets it as the result, or the exception that `keep` raised."""
        try:
            if self.keep is not None:
                self.keep(self, evaluation)
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(evaluation)


Entry = tuple[int, int, Job]
"""A waiting job after its sort key: the negated priority, and a number that grows with each job."""


class Lanes:
    """Base of the executors: `judge` and `shut` are theirs.

    Several lanes share a slot: an evaluator, a process or an actor. A job that a slot has lost (`Lost`) is judged once
    more, by another slot where there is one.
    """

    def __init__(self, lanes: int, slots: int, max_pending: int | None = None) -> None:
        self.slots = max(1, slots)
        self.capacity = max(1, lanes, self.slots)
        self.max_pending = max_pending or 4 * self.capacity
        self._changed = threading.Condition()
        self._waiting: list[Entry] = []
        self._numbers = itertools.count()
        self._open, self._urgent = 0, 0
        """Numbers of jobs that are not done, and of jobs of a raised priority that are being judged."""
        self._closed = False
        self._threads: list[threading.Thread] = []

    def judge(self, job: Job, slot: int) -> Evaluation:
        """Judges one job in one of the slot's lanes. Raises `Lost`; any other exception becomes the job's."""
        raise HarnessError(f"{type(self).__name__} does not say how it judges")

    def shut(self) -> None:
        """Ends the evaluators, processes or actors. No lane judges by then, unless an interrupt cut the wait short."""

    def settle(self, options: EvalOptions) -> EvalOptions:
        """See `Executor.settle`."""
        return options.model_copy(update={"backend": options.resolved()})

    def submit(
        self,
        task: Task,
        candidate: Candidate,
        options: EvalOptions | None = None,
        priority: int = 0,
        *,
        keep: Keep | None = None,
        block: bool = True,
    ) -> Job:
        """See `Executor.submit`."""
        job = Job(task, candidate, options or EvalOptions(), priority, keep)
        with self._changed:
            while self._open >= self.max_pending and not self._closed:
                if not block:
                    raise Full(f"{self._open} jobs are not done yet")
                self._changed.wait(1.0)
            if self._closed:
                raise HarnessError("this executor is closed")
            self._open += 1
            self._waiting.append((-priority, next(self._numbers), job))
            self._start(self._open)
            self._changed.notify_all()
        job.add_done_callback(self._done)
        return job

    def _start(self, wanted: int) -> None:
        """Starts lanes until there are `wanted` or `capacity` of them."""
        while len(self._threads) < min(self.capacity, wanted):
            slot = len(self._threads) % self.slots
            # A daemon: a second Ctrl-C ends the program while the first one still waits for running jobs.
            thread = threading.Thread(target=self._serve, args=(slot,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _done(self, _job: Future[Evaluation]) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _take(self, slot: int) -> Entry | None:
        """Returns the next job for this slot; None once the executor is closed and no job is left."""
        with self._changed:
            while True:
                fitting = [entry for entry in self._waiting if entry[2].avoid != slot or self.slots == 1]
                if fitting:
                    if self._urgent >= max(1, int(URGENT_SHARE * self.capacity)):
                        fitting = [entry for entry in fitting if entry[0] >= 0] or fitting
                    first = min(fitting)
                    self._waiting.remove(first)
                    self._urgent += first[0] < 0
                    return first
                if self._closed:
                    return None
                self._changed.wait(1.0)

    def _serve(self, slot: int) -> None:
        while (entry := self._take(slot)) is not None:
            try:
                self._judged(entry, slot)
            finally:
                with self._changed:
                    self._urgent -= entry[0] < 0

    def _judged(self, entry: Entry, slot: int) -> None:
        """Judges a job that was taken."""
        job = entry[2]
        if not job.begin():
            return
        try:
            evaluation = self.judge(job, slot)
        except Lost as lost:
            self._lost(entry, slot, lost)
        except BaseException as error:
            job.set_exception(error)
        else:
            job.finish(evaluation)

    def _lost(self, entry: Entry, slot: int, lost: Lost) -> None:
        job = entry[2]
        with self._changed:
            if job.attempts < ATTEMPTS and not self._closed:
                job.avoid = slot
                self._waiting.append(entry)  # with its old number, so that it keeps its place
                self._start(self.capacity)
                self._changed.notify_all()
                return
        job.finish(failed(job, f"{lost}, {job.attempts} times"))

    def close(self, drain: bool = False) -> None:
        """See `Executor.close`."""
        try:
            with self._changed:
                while drain and self._open:
                    self._changed.wait(1.0)
        finally:
            self._end()

    def _end(self) -> None:
        try:
            with self._changed:
                self._closed = True
                waiting, self._waiting = self._waiting, []
                self._changed.notify_all()
            for _, _, job in waiting:
                job.cancel()
            deadline = time.monotonic() + CLOSING_SECONDS
            for thread in self._threads:
                thread.join(max(0.0, deadline - time.monotonic()))
        finally:
            self.shut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exc: object) -> None:
        self.close(drain=kind is None)


Failure = tuple[str, str, str | None]
"""An exception of ours as it travels between processes: its class, its message, its hint."""


def as_failure(error: KernelwrightError) -> Failure:
    """Returns an exception in the form that travels between processes."""
    return type(error).__name__, str(error), error.hint


def as_raised(failure: Failure) -> KernelwrightError:
    """Returns the exception that `as_failure` was given; a class that is not ours becomes `HarnessError`."""
    name, words, hint = failure
    kind: type[KernelwrightError] = getattr(errors, name, HarnessError)
    return kind(words, hint=hint)


def failed(job: Job, reason: str) -> Evaluation:
    """Returns the verdict `harness_error` for a job that no process could finish."""
    from kernelwright.evaluation.judge.worker import harness_error

    return harness_error(job.task, job.candidate, job.options, HarnessError(reason), job.options.resolved())
