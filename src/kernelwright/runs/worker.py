"""One worker of a run's queue: leases jobs, has them judged, stores their evaluations, and renews its leases."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait

from kernelwright.errors import KernelwrightError, StoreError, TaskError, UsageError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor import Executor, Job
from kernelwright.executor.lanes import CLOSING_SECONDS, failed
from kernelwright.records import Evaluation
from kernelwright.runs.jobqueue import Leased, Queue
from kernelwright.runs.store import Store

MOST_ATTEMPTS = 3
"""Attempts after which a job is not judged again: the job itself may have killed its workers."""
POLL_SECONDS = 0.5
"""Seconds between two looks at the queue while the worker has spare capacity."""

Progress = Callable[[Leased, Evaluation | None, str], None]
"""Called with each job that this worker finished and its evaluation, or with None and the reason."""


def serve(
    store: Store,
    executor: Executor,
    *,
    wait_seconds: float = 0.0,
    lease_seconds: float = 60.0,
    on_job: Progress | None = None,
) -> int:
    """Serves jobs until no worker has one left and none came for `wait_seconds`; returns the number it finished.

    On Ctrl-C it leases no more jobs, stores those that are being judged, and gives the rest back.
    """
    owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    worker = _Worker(Queue(store, owner), executor, lease_seconds, on_job)
    with worker.alive():
        return worker.run(wait_seconds)


class _Worker:
    def __init__(self, queue: Queue, executor: Executor, lease_seconds: float, on_job: Progress | None) -> None:
        self.queue = queue
        self.executor = executor
        self.lease_seconds = lease_seconds
        self.on_job = on_job
        self.held: dict[Job, Leased] = {}
        self.finished = 0
        self._ended = threading.Event()

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """Renews the leases in a thread, and at the end gives back the jobs that are not finished."""
        heart = threading.Thread(target=self._beat, daemon=True)
        heart.start()
        try:
            yield
        except BaseException:
            self._wind_up()
            raise
        finally:
            self._ended.set()
            heart.join(self.lease_seconds)
            self.queue.give_back()

    def _beat(self) -> None:
        while not self._ended.wait(self.lease_seconds / 3):
            with contextlib.suppress(StoreError):  # the next beat may succeed; if none does, others take over
                self.queue.renew(self.lease_seconds)

    def _wind_up(self) -> None:
        """Cancels the waiting jobs, and waits until the running ones are judged and stored."""
        judging = [job for job in self.held if not job.cancel()]
        wait(judging, CLOSING_SECONDS)

    def run(self, wait_seconds: float) -> int:
        idle_since = time.monotonic()
        while True:
            for leased in self.queue.lease(self.lease_seconds, self.executor.capacity - len(self.held)):
                self._begin(leased)
            if self.held:
                idle_since = time.monotonic()
                # A short wait, so that jobs that arrive meanwhile fill spare capacity.
                for job in wait(list(self.held), POLL_SECONDS, FIRST_COMPLETED).done:
                    assert isinstance(job, Job)
                    self._end(job)
                continue
            counts = self.queue.store.queue_counts()
            if counts.get("queued"):
                continue
            if not counts.get("leased") and time.monotonic() - idle_since >= wait_seconds:
                return self.finished
            time.sleep(min(POLL_SECONDS, self.lease_seconds / 3))

    def _begin(self, leased: Leased) -> None:
        options = EvalOptions.model_validate(leased.options)

        def keep(_job: Job, evaluation: Evaluation) -> None:
            if not self.queue.finish(leased.key, evaluation):
                raise _TakenOver

        if leased.attempts > MOST_ATTEMPTS:
            job = Job(leased.task, leased.candidate, options, keep=keep)
            job.finish(failed(job, f"{MOST_ATTEMPTS} workers died while they judged it"))
        else:
            job = self.executor.submit(leased.task, leased.candidate, options, keep=keep)
        self.held[job] = leased

    def _end(self, job: Job) -> None:
        leased = self.held[job]
        evaluation, note = None, ""
        try:
            evaluation = job.result()
        except TaskError as error:
            note = str(error)
            self.queue.fail(leased.key, note)
        except _TakenOver:
            del self.held[job]
            return
        except UsageError:  # it concerns this worker, and so every job
            raise
        except Exception as error:
            hint = f" ({error.hint})" if isinstance(error, KernelwrightError) and error.hint else ""
            evaluation = failed(job, f"{type(error).__name__}: {error}{hint}")
            self.queue.finish(leased.key, evaluation)
        del self.held[job]
        self.finished += 1
        if self.on_job is not None:
            self.on_job(leased, evaluation, note)


class _TakenOver(Exception):
    """The lease expired, and another worker has the job."""
