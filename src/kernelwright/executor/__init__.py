"""Judges many candidates at once, here or on a cluster: one interface, `Executor`, and a table of its kinds.

    with load_executor("local", jobs=8) as executor:
        job = executor.submit(task, candidate, options, priority=1)
        print(job.result().verdict)

`local` judges on this machine, with every GPU that it may use. `apart` does the same in processes of its own, for a
caller that computes meanwhile. `ray` uses actors of a Ray cluster (extra `ray`). All take the job of the highest
priority first, and the oldest among equals. Jobs of a raised priority leave a share of the lanes to others
(`lanes.URGENT_SHARE`). `submit` blocks while `max_pending` jobs are not done, so that a long list need not fit into
memory. This module imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from concurrent.futures import as_completed
from typing import Protocol, Self

from kernelwright.errors import ConfigError, TaskError
from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.options import visible_gpus
from kernelwright.executor.lanes import Full, Job, Keep
from kernelwright.records import Candidate, Evaluation, Task

__all__ = ["KINDS", "Executor", "Full", "Job", "Keep", "as_completed", "in_order", "load_executor"]

KINDS = ("local", "apart", "ray")


class Executor(Protocol):
    """Judges candidates, several at once."""

    capacity: int
    """The number of candidates judged at once."""

    def settle(self, options: EvalOptions) -> EvalOptions:
        """Returns the options with the backend that `auto` stands for on this executor's machines."""
        ...

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
        """Returns a job, whose result is the evaluation. Blocks while `max_pending` jobs are not done, or raises `Full`
        without `block`.

        `keep` gets the evaluation in the thread that judged, before the job counts as done: an evaluation that it has
        stored is not lost when the caller is interrupted. An exception of `keep` becomes the job's.
        """
        ...

    def close(self, drain: bool = False) -> None:
        """Finishes the jobs that are being judged, with `drain` also those that wait; cancels the rest. May be called
        twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, /, *exc: object) -> None: ...


def load_executor(kind: str, jobs: int, backend: str = "auto", max_pending: int | None = None) -> Executor:
    """Returns the executor of a name in `KINDS`. Raises `ConfigError` for another name, and `UsageError` where a
    package that it needs is not installed.

    `backend` is the backend of most jobs: `cpu` leaves GPUs alone.
    """
    if kind in ("local", "apart"):
        from kernelwright.executor.apart import Apart
        from kernelwright.executor.local import Local

        on_gpus = EvalOptions.model_validate({"backend": backend}).resolved() == "gpu"
        return (Local if kind == "local" else Apart)(jobs, max_pending, visible_gpus() if on_gpus else ())
    if kind == "ray":
        from kernelwright.executor.ray_actors import RayActors

        return RayActors(jobs, max_pending, backend)
    raise ConfigError(f"--executor {kind!r} is not an executor", hint=f"use one of {', '.join(KINDS)}")


def in_order(
    executor: Executor,
    pairs: Iterable[tuple[Task, Candidate]],
    options: EvalOptions | None = None,
    keep: Keep | None = None,
) -> Generator[Evaluation | TaskError, None, None]:
    """Judges pairs and yields results in input order; a task that fails yields its `TaskError`.

    Takes at most `2 * capacity` pairs ahead of the result that the caller waits for.
    """
    waiting: list[Job] = []
    try:
        for task, candidate in pairs:
            if len(waiting) >= 2 * executor.capacity:
                yield _outcome(waiting.pop(0))
            waiting.append(executor.submit(task, candidate, options, keep=keep))
        while waiting:
            yield _outcome(waiting.pop(0))
    finally:
        for job in waiting:
            job.cancel()


def _outcome(job: Job) -> Evaluation | TaskError:
    try:
        return job.result()
    except TaskError as error:
        return error
