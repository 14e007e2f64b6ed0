"""Judges on this machine, in threads of this process: one evaluator and one lease for each GPU.

All GPUs share the processes that need no GPU: one zygote, its builders and oracles. Without a GPU there is one
evaluator, and a thread for each candidate that is judged at once.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.options import visible_gpus
from kernelwright.executor.lanes import Job, Lanes
from kernelwright.records import Evaluation

if TYPE_CHECKING:
    from kernelwright.evaluation.processes.pool import Pool


class Evaluators:
    """Holds an evaluator for each GPU, backend and sandbox, since an evaluator cannot change them."""

    def __init__(self, device: str | None = None) -> None:
        """Takes `device` as `Evaluator` does."""
        self._device = device
        self._lock = threading.Lock()
        self._pools: dict[str, Pool] = {}
        self._made: dict[tuple[str, str, str | None], Evaluator] = {}

    def get(self, options: EvalOptions, gpu: str | None) -> Evaluator:
        """Returns the evaluator for a job on a GPU (None: the first that this process may use, or no GPU)."""
        from kernelwright.evaluation.processes.pool import Pool

        backend = options.resolved()
        kind = (backend, options.sandbox, gpu if backend == "gpu" or self._device else None)
        with self._lock:
            if kind not in self._made:
                if options.sandbox not in self._pools:
                    self._pools[options.sandbox] = Pool(options.sandbox)
                self._made[kind] = Evaluator(options, self._device, kind[2], self._pools[options.sandbox])
            return self._made[kind]

    def close(self) -> None:
        """Ends every child. May be called twice."""
        with self._lock:
            for evaluator in self._made.values():
                evaluator.close()
            for pool in self._pools.values():
                pool.close()
            self._made.clear()
            self._pools.clear()


class OnThisMachine(Lanes):
    """The base of the executors of one machine: a slot for each GPU, or one slot without a GPU."""

    def __init__(self, jobs: int, max_pending: int | None, gpus: tuple[str, ...] | None) -> None:
        """Judges `jobs` candidates at once, at least one for each GPU. `gpus` are named as in CUDA_VISIBLE_DEVICES;
        None: all of them.

        Several jobs for each GPU let builds go on while another candidate holds the GPU.
        """
        if gpus is None:
            gpus = visible_gpus() if EvalOptions().resolved() == "gpu" else ()
        self.gpus = gpus
        super().__init__(jobs, len(self.gpus), max_pending)

    def gpu_of(self, slot: int) -> str | None:
        """Returns the GPU of a slot; None without a GPU."""
        return self.gpus[slot] if self.gpus else None


class Local(OnThisMachine):
    """Judges in threads of this process."""

    def __init__(
        self,
        jobs: int = 1,
        max_pending: int | None = None,
        gpus: tuple[str, ...] | None = None,
        device: str | None = None,
    ) -> None:
        """Takes the arguments of `OnThisMachine`, and `device` as `Evaluator` does."""
        super().__init__(jobs, max_pending, gpus)
        self.evaluators = Evaluators(device)

    def judge(self, job: Job, slot: int) -> Evaluation:
        evaluator = self.evaluators.get(job.options, self.gpu_of(slot))
        return evaluator.evaluate(job.task, job.candidate, job.options)

    def shut(self) -> None:
        self.evaluators.close()
