"""Judging many candidates at once, here or on a cluster: one interface, `Executor`, and a small table of kinds.

    with load_executor("local", jobs=8) as executor:
        job = executor.submit(task, candidate, options, priority=1)
        print(job.result().verdict)

`local` judges on this machine, with every GPU that it may use; `apart` does so in processes of its own, beside a caller
that computes; `ray` with actors of a Ray cluster (extra `ray`). All take the job of the highest priority first, and the
oldest of equals; jobs of a raised priority leave a share of the lanes to others (`lanes.URGENT_SHARE`). `submit` blocks
while `max_pending` jobs are not done, so that a long list does not have to fit into memory. This module imports neither
torch nor ray.
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
    """Something that judges candidates, several at once."""

    capacity: int
    """How many are judged at once."""

    def settle(self, options: EvalOptions) -> EvalOptions:
        """The options with what this executor's machines decide: what the backend `auto` stands for."""
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
        """A job, to be asked for its result. Blocks while there are too many, or raises `Full` without `block`.

        `keep` gets the evaluation before the job counts as done, in whatever thread judged it: what it has stored is
        not lost when the caller is interrupted. What it raises becomes the job's.
        """
        ...

    def close(self, drain: bool = False) -> None:
        """Finishes what is being judged, with `drain` also what waits; cancels the rest. May be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, /, *exc: object) -> None: ...


def load_executor(kind: str, jobs: int, backend: str = "auto", max_pending: int | None = None) -> Executor:
    """The executor of a name in `KINDS`; raises `UsageError` where what it needs is not installed.

    `backend` is that of most jobs: `cpu` leaves GPUs alone.
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

    At most twice as many pairs as are judged at once are taken ahead of the one that is waited for.
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
