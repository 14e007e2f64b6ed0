"""What all executors share: jobs by priority, a bound on how many there are, threads that serve them.

A lane is a thread of this process that takes one job after another and has it judged: by an evaluator beside it, or by
an actor on another machine.
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
"""Of the lanes, so many serve jobs of a raised priority while others wait: who comes first may be what is waited for
later, and a raised job that only waits beside others of its kind is no sooner done."""
CLOSING_SECONDS = 3600.0
"""How long closing waits for what is being judged; each judgement ends by deadlines of its own long before."""
ATTEMPTS = 2


class Full(KernelwrightError):
    """As many jobs as may be are not done yet."""


class Lost(Exception):
    """Whoever judged a job is gone, with the reason in words; the job may be given to another."""


class Job(Future[Evaluation]):
    """One candidate to be judged, and the future of its evaluation; `concurrent.futures.wait` takes it, too.

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
        """The seat (see `Lanes`) that has lost it already."""

    def begin(self) -> bool:
        """Whether it is still to be judged; from here on it cannot be cancelled."""
        with self._turn:
            self.attempts += 1
            return not self.cancelled() and (self.attempts > 1 or self.set_running_or_notify_cancel())

    def cancel(self) -> bool:
        """Whether it will never be judged; who waits for it is told at once."""
        with self._turn:
            if not self.cancelled() and super().cancel():
                self.set_running_or_notify_cancel()
            return self.cancelled()

    def finish(self, evaluation: Evaluation) -> None:
        """Keeps the evaluation, then gives it to whoever waits, or what keeping raised."""
        try:
            if self.keep is not None:
                self.keep(self, evaluation)
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(evaluation)


Entry = tuple[int, int, Job]
"""A job that waits, behind what orders it: its priority negated, and a number that grows."""


class Lanes:
    """Base of the executors: `judge` and `shut` are theirs.

    Lanes sit on seats, several on each: an evaluator's, or an actor's. A job that a seat has lost (`Lost`) goes once
    more to another one where there is another.
    """

    def __init__(self, lanes: int, seats: int, max_pending: int | None = None) -> None:
        self.seats = max(1, seats)
        self.capacity = max(1, lanes, self.seats)
        self.max_pending = max_pending or 4 * self.capacity
        self._changed = threading.Condition()
        self._waiting: list[Entry] = []
        self._numbers = itertools.count()
        self._open, self._urgent = 0, 0
        """Jobs that are not done, and those of a raised priority that are being judged."""
        self._closed = False
        self._threads: list[threading.Thread] = []

    def judge(self, job: Job, seat: int) -> Evaluation:
        """Has one job judged, in one of the seat's lanes. Raises `Lost`, or what becomes the job's exception."""
        raise HarnessError(f"{type(self).__name__} does not say how it judges")

    def shut(self) -> None:
        """Ends whatever judged; no lane is judging any more, unless the caller was interrupted while waiting."""

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
        """Starts lanes until there are as many as wanted, or as may be."""
        while len(self._threads) < min(self.capacity, wanted):
            seat = len(self._threads) % self.seats
            # A daemon: a second Ctrl-C, while the first one waits for what is being judged, ends the program.
            thread = threading.Thread(target=self._serve, args=(seat,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _done(self, _job: Future[Evaluation]) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _take(self, seat: int) -> Entry | None:
        """The next job for this seat; None when there will be none."""
        with self._changed:
            while True:
                fitting = [entry for entry in self._waiting if entry[2].avoid != seat or self.seats == 1]
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

    def _serve(self, seat: int) -> None:
        while (entry := self._take(seat)) is not None:
            try:
                self._judged(entry, seat)
            finally:
                with self._changed:
                    self._urgent -= entry[0] < 0

    def _judged(self, entry: Entry, seat: int) -> None:
        """Has one job judged that was taken."""
        job = entry[2]
        if not job.begin():
            return
        try:
            evaluation = self.judge(job, seat)
        except Lost as lost:
            self._lost(entry, seat, lost)
        except BaseException as error:
            job.set_exception(error)
        else:
            job.finish(evaluation)

    def _lost(self, entry: Entry, seat: int, lost: Lost) -> None:
        job = entry[2]
        with self._changed:
            if job.attempts < ATTEMPTS and not self._closed:
                job.avoid = seat
                self._waiting.append(entry)  # with its old number: before those that came after it
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
"""An exception of ours on its way from another process: its kind, its words, its hint."""


def as_failure(error: KernelwrightError) -> Failure:
    return type(error).__name__, str(error), error.hint


def as_raised(failure: Failure) -> KernelwrightError:
    """The exception again."""
    name, words, hint = failure
    kind: type[KernelwrightError] = getattr(errors, name, HarnessError)
    return kind(words, hint=hint)


def failed(job: Job, reason: str) -> Evaluation:
    """The verdict on a job that nobody could finish: ours, not the candidate's."""
    from kernelwright.evaluation.judge.worker import harness_error

    return harness_error(job.task, job.candidate, job.options, HarnessError(reason), job.options.resolved())
