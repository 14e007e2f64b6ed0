"""The entry point of judging: `evaluate(task, candidate)` and `evaluate_many`, for all code that makes or uses
candidates.

`judge` in this process and confined children (`oracle`, `builder`, `runner`) do the work. Importing this module is
cheap: numpy, but no torch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from kernelwright.errors import TaskError, UsageError
from kernelwright.evaluation.options import EvalOptions, gpu_count, visible_gpus
from kernelwright.records import Candidate, Evaluation, Task

if TYPE_CHECKING:
    from kernelwright.evaluation.judge.null_kernel_gate import Checked
    from kernelwright.evaluation.judge.worker import Worker
    from kernelwright.evaluation.processes.gpu_seats import Gpu
    from kernelwright.evaluation.processes.oracle_pool import Oracles
    from kernelwright.evaluation.processes.pool import Pool
    from kernelwright.evaluation.trials import TaskPlan

__all__ = ["EvalOptions", "Evaluator", "check_task", "evaluate", "evaluate_many"]


MAKERS = 4
"""The number of runners opened at once when candidates are timed. Opening a GPU disturbs what is timed on it, and takes
a large part of a second."""


class Evaluator:
    """Keeps the warm worker process and its helpers between evaluations; use as a context manager.

    Threads may share one evaluator: each gets a worker of its own.
    """

    def __init__(
        self,
        options: EvalOptions | None = None,
        device: str | None = None,
        gpu: str | None = None,
        pool: Pool | None = None,
        plan_budget: dict[str, int] | None = None,
    ) -> None:
        """Names the GPU `gpu` as CUDA_VISIBLE_DEVICES does; None takes the first one that this process may use.

        With `pool`, children are made there, and it stays open. `device` is `cpu` only in tests, which take the GPU's
        path without a GPU. `plan_budget` (`element_budget`, `flop_budget`) bounds the sizes that are derived, for
        judging many candidates cheaply. It is no part of a result's key, so such evaluations must not be cached among
        usual ones.
        """
        from kernelwright.evaluation.processes.pool import Pool

        self.options = options or EvalOptions()
        if self.options.backend == "gpu" and not gpu_count() and device is None:
            raise UsageError(
                "backend gpu: there is no NVIDIA GPU that torch could use here",
                hint="use --backend cpu: candidates run on the functional CUDA machine, without timing",
            )
        self.pool = pool or Pool(self.options.sandbox)
        self._owns_pool = pool is None
        self._plan_budget = plan_budget
        self._device = device or ("cuda" if self.options.resolved() == "gpu" else None)
        self._index = gpu or next(iter(visible_gpus()), "0")
        self._gpu: Gpu | None = None
        self._oracles: Oracles | None = None
        self._local = threading.local()
        self._workers: list[Worker] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _worker(self) -> Worker:
        from kernelwright.evaluation.judge.worker import Worker
        from kernelwright.evaluation.processes.oracle_pool import Oracles

        worker: Worker | None = getattr(self._local, "worker", None)
        if worker is None:
            with self._lock:
                if self._device is not None and self._gpu is None:
                    from kernelwright.evaluation.processes.gpu_seats import Gpu

                    many = min(6, max(2, (os.cpu_count() or 2) // 2))
                    makers = MAKERS if self.options.timing_seconds > 0 else many
                    self._gpu = Gpu(self.pool, self._index, self._device, makers)
                self._oracles = self._oracles or Oracles(self.pool)
                worker = self._local.worker = Worker(self.pool, self._gpu, self._plan_budget, self._oracles)
                self._workers.append(worker)
        return worker

    def evaluate(self, task: Task, candidate: Candidate, options: EvalOptions | None = None) -> Evaluation:
        """Returns the evaluation of one candidate. Raises `TaskError` when the task's own reference does not run.

        `options` in place of the evaluator's own must have the same backend and sandbox.
        """
        return self._worker().evaluate(task, candidate, options or self.options)

    def check_task(self, task: Task) -> TaskPlan:
        """Runs a task's reference and returns the sizes and value distributions it will be judged at."""
        return self._worker().plan(task)

    def check_gate(self, task: Task) -> Checked:
        """Tries a task against null kernels; the state is kept, and later evaluations use it."""
        return self._worker().check(task)

    def close(self) -> None:
        """Ends every child. May be called twice."""
        with self._lock:
            for worker in self._workers:
                worker.close()
            self._workers.clear()
            if self._gpu is not None:
                self._gpu.close()
        if self._owns_pool:
            self.pool.close()


def evaluate(
    task: Task, candidate: Candidate, options: EvalOptions | None = None, pool: Evaluator | None = None
) -> Evaluation:
    """Judges one candidate; with `pool`, in an evaluator that is already warm (its options then apply)."""
    if pool is not None:
        return pool.evaluate(task, candidate)
    with Evaluator(options) as evaluator:
        return evaluator.evaluate(task, candidate)


def check_task(task: Task, options: EvalOptions | None = None, pool: Evaluator | None = None) -> TaskPlan:
    """Runs a task's reference and returns its plan; raises `TaskError` with the task's fault."""
    if pool is not None:
        return pool.check_task(task)
    with Evaluator(options) as evaluator:
        return evaluator.check_task(task)


def evaluate_many(
    pairs: Iterable[tuple[Task, Candidate]],
    options: EvalOptions | None = None,
    jobs: int = 1,
    pool: Evaluator | None = None,
) -> Iterator[Evaluation | TaskError]:
    """Judges pairs on `jobs` threads and yields results in input order; a task that fails yields its `TaskError`.

    At most `2 * jobs` pairs are taken ahead of the next result, so `pairs` may be long or endless.
    """
    owned = None if pool is not None else Evaluator(options)
    evaluator = pool or owned
    assert evaluator is not None

    def one(task: Task, candidate: Candidate) -> Evaluation | TaskError:
        try:
            return evaluator.evaluate(task, candidate)
        except TaskError as error:
            return error

    executor = ThreadPoolExecutor(max_workers=max(1, jobs))
    waiting: list[Future[Evaluation | TaskError]] = []
    try:
        for task, candidate in pairs:
            waiting.append(executor.submit(one, task, candidate))
            if len(waiting) >= 2 * max(1, jobs):
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()
    finally:
        for future in waiting:
            future.cancel()
        executor.shutdown(wait=True, cancel_futures=True)
        if owned is not None:
            owned.close()
