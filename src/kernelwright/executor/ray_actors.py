"""The executor of a cluster: Ray actors, one a GPU (`num_gpus=1`), or one a processor where nothing needs a GPU.

Each actor judges with evaluators of its own, in confined children as everywhere: a candidate's crash ends a child, not
the actor. An actor that goes away is replaced, and what it was judging is judged once more by another one.

Ray's own settings say which cluster: `RAY_ADDRESS`, else one that `ray start` began on this machine, else Ray begins
one here. Kernelwright must be installed on every machine of it, in the same version.
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
"""How long an actor may take to be placed and to import this package."""
END_SECONDS = 30.0
REACH_SECONDS = 10.0
SPARE_SECONDS = 1800.0
"""What judging may take besides the candidate's own time and builds: reference, sizes, waiting for the GPU."""


def import_ray() -> Any:
    """The library, or a `UsageError` that says how to get it."""
    # Ray reports its use to its makers, and warns about how it treats actors without a GPU, unless told otherwise.
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


class Judge:
    """What runs in an actor. Ray gave it a GPU, or none, by its CUDA_VISIBLE_DEVICES."""

    def __init__(self, device: str | None = None) -> None:
        self.evaluators = Evaluators(device)

    def hello(self) -> tuple[str, int, int]:
        """Version, protocol and process."""
        return __version__, PROTOCOL, os.getpid()

    def evaluate(self, task: Task, candidate: Candidate, options: EvalOptions) -> Evaluation | Failure:
        """One verdict, or what went wrong: exceptions change their type on Ray's way."""
        try:
            return self.evaluators.get(options, None).evaluate(task, candidate, options)
        except KernelwrightError as error:
            return as_failure(error)

    def close(self) -> None:
        """Ends every child."""
        self.evaluators.close()


class Seat:
    """One actor and its successors, asked by several threads."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._actor: Any = None

    def actor(self) -> Any:
        """The actor, started if there is none; raises what starting raises."""
        with self._lock:
            if self._actor is None:
                self._actor = self._make()
            return self._actor

    def gone(self, actor: Any) -> None:
        """Forgets an actor that one of the threads found dead, unless another one has done so."""
        with self._lock:
            if self._actor is actor:
                self._actor = None

    def empty(self) -> Any:
        """Takes the actor away."""
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
        """`jobs` candidates at once: at least one a GPU, or on one processor each where the cluster has no GPU.

        The backend `cpu`, or KERNELWRIGHT_BACKEND=cpu with `auto`, leaves GPUs alone. `device` is `cpu` only in tests,
        with GPUs that Ray was told of and that are not there.
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
        self._seats = [Seat(self._start_actor) for _ in range(self.seats)]

    def _start_actor(self) -> Any:
        together = math.ceil(self.capacity / self.seats)
        kind = self.ray.remote(Judge).options(max_concurrency=together + 1, max_restarts=0, **self._resources)
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

    def judge(self, job: Job, seat: int) -> Evaluation:
        options = self.settle(job.options)
        if options.backend == "gpu" and not self.gpus:
            raise UsageError("backend gpu: the Ray cluster has no GPU", hint="use --backend cpu")
        actor = self._seats[seat].actor()
        allowed = SPARE_SECONDS + 4 * (options.timeout + options.build_timeout + options.timing_seconds)
        try:
            answer = self.ray.get(actor.evaluate.remote(job.task, job.candidate, options), timeout=allowed)
        except self.ray.exceptions.RayTaskError as error:  # a bug of ours, in an actor that lives
            raise HarnessError(f"judging on the Ray cluster failed: {_words(error)}") from error
        except Exception as error:
            self._seats[seat].gone(actor)
            self._kill(actor)  # should it only hang
            raise Lost(f"the Ray actor that judged went away ({_words(error)})") from error
        if isinstance(answer, Evaluation):
            return answer
        raise as_raised(answer)

    def settle(self, options: EvalOptions) -> EvalOptions:
        """Decides by the cluster's GPUs what `auto` stands for: each actor's machine might decide otherwise."""
        if options.backend != "auto":
            return options
        return options.model_copy(update={"backend": "gpu" if self.gpus else "cpu"})

    def _kill(self, actor: Any) -> None:
        with contextlib.suppress(Exception):
            self.ray.kill(actor)

    def shut(self) -> None:
        actors = [actor for seat in self._seats if (actor := seat.empty()) is not None]
        with contextlib.suppress(Exception):
            self.ray.wait([a.close.remote() for a in actors], num_returns=len(actors) or 1, timeout=END_SECONDS)
        for actor in actors:
            self._kill(actor)
        if self._begun_here and self.ray.is_initialized():
            self.ray.shutdown()


def _answers(address: str) -> None:
    """Raises `OSError` when nothing listens at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "://" not in address:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()


def _words(error: Exception) -> str:
    """An error of Ray's in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
