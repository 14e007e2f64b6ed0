"""Judges on a cluster by Ray actors: one for each GPU (`num_gpus=1`), or one for each processor without GPUs.

Each actor judges with evaluators of its own, in confined children as everywhere: a candidate's crash ends a child, not
the actor. An actor that ends is replaced, and another one judges its unfinished jobs once more.

Ray's own settings choose the cluster: `RAY_ADDRESS`, else the cluster that `ray start` began on this machine, else Ray
starts one here. Kernelwright must be installed on every machine of the cluster, in the same version.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
from typing import Any

from kernelwright import __version__
from kernelwright.errors import HarnessError, KernelwrightError, UsageError
from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.options import PROTOCOL
from kernelwright.executor.lanes import Failure, Job, Lanes, Lost, as_failure, as_raised
from kernelwright.executor.local import Evaluators
from kernelwright.records import Candidate, Evaluation, Task

START_SECONDS = 180.0
"""Seconds that an actor may take to be placed and to import this package."""
END_SECONDS = 30.0
"""Seconds that actors may take to end their children."""
REACH_SECONDS = 10.0
"""Seconds within which the address of a cluster must accept a connection."""
SPARE_SECONDS = 1800.0
"""Seconds that a judgement may take besides the candidate's own time and builds: reference, sizes, waiting for the
GPU."""


def import_ray() -> Any:
    """Returns the module `ray`. Raises `UsageError`, which says how to install it."""
    # By default Ray sends usage statistics, and warns about how it treats actors without a GPU.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f"the ray executor needs Ray, which cannot be imported: {error}",
            hint='pip install "kernelwright[ray]", or use --executor local',
        ) from error
    return ray


class RayJudge:
    """Judges inside an actor. Ray sets the actor's CUDA_VISIBLE_DEVICES to its GPU, or to none."""

    def __init__(self, device: str | None = None) -> None:
        self.evaluators = Evaluators(device)

    def hello(self) -> tuple[str, int, int]:
        """Returns this machine's version of Kernelwright, its protocol and the actor's process."""
        return __version__, PROTOCOL, os.getpid()

    def evaluate(self, task: Task, candidate: Candidate, options: EvalOptions) -> Evaluation | Failure:
        """Returns the evaluation, or our exception as a `Failure`: Ray changes the type of an exception that it passes
        on."""
        try:
            return self.evaluators.get(options, None).evaluate(task, candidate, options)
        except KernelwrightError as error:
            return as_failure(error)

    def close(self) -> None:
        """Ends every child."""
        self.evaluators.close()


class ActorSlot:
    """Holds one actor and its successors. Several threads may ask it."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._actor: Any = None

    def actor(self) -> Any:
        """Returns the actor; starts one where there is none, and raises what starting raises."""
        with self._lock:
            if self._actor is None:
                self._actor = self._make()
            return self._actor

    def gone(self, actor: Any) -> None:
        """Drops an actor that a thread found dead, unless another thread has replaced it."""
        with self._lock:
            if self._actor is actor:
                self._actor = None

    def empty(self) -> Any:
        """Removes the actor and returns it; None where there is none."""
        with self._lock:
            actor, self._actor = self._actor, None
            return actor


class RayActors(Lanes):
    """Judges on a Ray cluster."""

    def __init__(
        self,
        jobs: int = 1,
        max_pending: int | None = None,
        backend: str = "auto",
        device: str | None = None,
    ) -> None:
        """Judges `jobs` candidates at once: at least one for each GPU, or on one processor each in a cluster without
        GPUs.

        The backend `cpu`, or KERNELWRIGHT_BACKEND=cpu with `auto`, leaves GPUs alone. `device` is `cpu` only in tests,
        where Ray is told of GPUs that do not exist.
        """
        self.ray = import_ray()
        self._device = device
        self._begun_here = not self.ray.is_initialized()
        if self._begun_here:
            try:
                _answers(os.environ.get("RAY_ADDRESS", ""))
                self.ray.init(include_dashboard=False, log_to_driver=False, logging_level="warning")
            except (OSError, ValueError, RuntimeError) as error:
                hint = "look at RAY_ADDRESS and `ray status`, or use --executor local"
                raise UsageError(f"Ray cannot begin or be reached: {_words(error)}", hint=hint) from error
        has = self.ray.cluster_resources()
        if backend == "auto":
            backend = "cpu" if os.environ.get("KERNELWRIGHT_BACKEND") == "cpu" else "gpu"
        self.gpus = int(has.get("GPU", 0)) if backend == "gpu" else 0
        actors = self.gpus or min(jobs, int(has.get("CPU", 1)))
        super().__init__(jobs if self.gpus else actors, actors, max_pending)
        self._resources = {"num_cpus": 1, "num_gpus": 1 if self.gpus else 0}
        self._slots = [ActorSlot(self._start_actor) for _ in range(self.slots)]

    def _start_actor(self) -> Any:
        together = math.ceil(self.capacity / self.slots)
        kind = self.ray.remote(RayJudge).options(max_concurrency=together + 1, max_restarts=0, **self._resources)
        actor = kind.remote(self._device)
        try:
            version, protocol, _ = self.ray.get(actor.hello.remote(), timeout=START_SECONDS)
        except Exception as error:
            self._kill(actor)
            raise Lost(f"no Ray actor came up ({_words(error)})") from error
        if (version, protocol) != (__version__, PROTOCOL):
            self._kill(actor)
            raise UsageError(
                f"a machine of the Ray cluster has Kernelwright {version}, this one {__version__}",
                hint="install the same version everywhere",
            )
        return actor

    def judge(self, job: Job, slot: int) -> Evaluation:
        options = self.settle(job.options)
        if options.backend == "gpu" and not self.gpus:
            raise UsageError("backend gpu: the Ray cluster has no GPU", hint="use --backend cpu")
        actor = self._slots[slot].actor()
        allowed = SPARE_SECONDS + 4 * (options.timeout + options.build_timeout + options.timing_seconds)
        try:
            answer = self.ray.get(actor.evaluate.remote(job.task, job.candidate, options), timeout=allowed)
        except self.ray.exceptions.RayTaskError as error:  # a bug of ours, in an actor that lives
            raise HarnessError(f"judging on the Ray cluster failed: {_words(error)}") from error
        except Exception as error:
            self._slots[slot].gone(actor)
            self._kill(actor)  # it may hang rather than be dead
            raise Lost(f"the Ray actor that judged went away ({_words(error)})") from error
        if isinstance(answer, Evaluation):
            return answer
        raise as_raised(answer)

    def settle(self, options: EvalOptions) -> EvalOptions:
        """Resolves the backend `auto` by the cluster's GPUs: the actors' machines might disagree."""
        if options.backend != "auto":
            return options
        return options.model_copy(update={"backend": "gpu" if self.gpus else "cpu"})

    def _kill(self, actor: Any) -> None:
        with contextlib.suppress(Exception):
            self.ray.kill(actor)

    def shut(self) -> None:
        actors = [actor for slot in self._slots if (actor := slot.empty()) is not None]
        with contextlib.suppress(Exception):
            self.ray.wait([a.close.remote() for a in actors], num_returns=len(actors) or 1, timeout=END_SECONDS)
        for actor in actors:
            self._kill(actor)
        if self._begun_here and self.ray.is_initialized():
            self.ray.shutdown()


def _answers(address: str) -> None:
    """Raises `OSError` when nothing listens at HOST:PORT. Ray itself would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "://" not in address:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()


def _words(error: Exception) -> str:
    """Returns an error of Ray as one line of at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
