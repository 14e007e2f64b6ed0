"""Holds the state of one judging thread between evaluations: a builder, the plans of tasks, shared oracles."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from kernelwright.errors import HarnessError, UnsupportedTask
from kernelwright.evaluation.case import Case, Submission
from kernelwright.evaluation.judge import null_kernel_gate as gates
from kernelwright.evaluation.judge.full_size import judge_on_gpu
from kernelwright.evaluation.judge.kernelbench_protocol import judge_strict
from kernelwright.evaluation.judge.small_sizes import judge
from kernelwright.evaluation.options import PROTOCOL, SMALL_BUDGET, EvalOptions
from kernelwright.evaluation.processes.builder_client import BuilderClient
from kernelwright.evaluation.processes.device_client import Devices
from kernelwright.evaluation.processes.gpu_seats import Gpu
from kernelwright.evaluation.processes.oracle_pool import Oracles
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.evaluation.processes.reader_client import ReaderClient
from kernelwright.evaluation.trials import TaskPlan
from kernelwright.records import Candidate, Evaluation, Seconds, Task, VerdictName, Workload

_PLANNING = [threading.Lock() for _ in range(64)]
"""Locks by a task's key: several answers to one task come at once, and one thread of the process derives its plan."""
PLAN_BUDGET = {
    "element_budget": 262_144,
    "flop_budget": 60_000_000,
    "long_elements": 4_000_000,
    "long_flops": 300_000_000,
}


class Worker:
    """Judges candidates one after another. Belongs to one thread."""

    def __init__(
        self,
        pool: Pool,
        gpu: Gpu | None = None,
        budget: dict[str, int] | None = None,
        oracles: Oracles | None = None,
    ) -> None:
        """Joins `oracles`, which other threads may share.

        `budget` replaces `PLAN_BUDGET`, the limit on derived sizes; a larger declared size is then not run.
        """
        self.pool = pool
        self.gpu = gpu
        self.budget = budget or PLAN_BUDGET
        self.builder = BuilderClient(pool)
        self.devices = Devices(pool)
        self.reader = ReaderClient(pool)
        self.oracles = oracles or Oracles(pool)
        self.oracles.join()
        self.plans: dict[str, TaskPlan] = {}

    def evaluate(self, task: Task, candidate: Candidate, options: EvalOptions) -> Evaluation:
        """Returns one evaluation. Raises `TaskError`.

        A fault of ours is retried once and then becomes `harness_error`.
        """
        seed = secrets.randbits(31) if options.seed is None else options.seed
        for attempt in (1, 2):
            try:
                self.pool.warm()  # so that starting the worker process is not counted as the candidate's time
                found = self._judge(task, candidate, options, seed, exclusive=attempt > 1)
                return gates.marked(found, gates.stored(task, self.pool.cache))
            except UnsupportedTask as error:
                return _unjudged(task, candidate, options, "unsupported", f"task: {error}", self.gpu is not None)
            except HarnessError as error:
                self.close()  # the remaining children may belong to a dead worker process
                if attempt == 2:
                    return harness_error(task, candidate, options, error, "cpu" if self.gpu is None else "gpu")
        raise HarnessError("unreachable: judging ends within two attempts")

    def _judge(self, task: Task, candidate: Candidate, options: EvalOptions, seed: int, exclusive: bool) -> Evaluation:
        reading = self.reader.read(candidate, task.at(options.precision))
        if options.strict_kernelbench:
            return judge_strict(Submission(task, candidate, reading, options, self.builder, self.devices), self.gpu)
        small = options.small_sizes and self.gpu is None
        plan = self.plan(task, SMALL_BUDGET if small else None)
        with self.oracles.lent(task) as oracle:
            case = Case(task, candidate, reading, options, self.builder, self.devices, seed, plan, oracle)
            if self.gpu is not None and candidate.language != "cpp":  # C++ candidates have no kernels for a GPU
                first = self.plan(task, SMALL_BUDGET) if options.program_first else None
                return judge_on_gpu(case, self.gpu, exclusive, first)
            return judge(case)

    def plan(self, task: Task, budget: dict[str, int] | None = None) -> TaskPlan:
        """Returns the sizes and distributions at which a task is judged, including those that its gate added.

        `budget` replaces the worker's own for derived sizes, if the task can be made that small.
        """
        gate = gates.stored(task, self.pool.cache)
        plan = self._plan(task, budget or self.budget)
        if budget is not None and self._too_large(plan.workloads[0]):
            plan = self._plan(task, self.budget)
        if self.budget != PLAN_BUDGET and plan.declared is not None and self._too_large(plan.declared):
            plan = replace(plan, declared=None, large=[])
        return gates.hardened(plan, gate.distributions if gate else ())

    def _too_large(self, size: Workload) -> bool:
        return size.elements > self.budget["element_budget"] or size.flops > self.budget["flop_budget"]

    def check(self, task: Task) -> gates.Checked:
        """Runs the null-kernel gate and the lint on a task, and writes the state to the cache folder."""
        plan = self._plan(task, self.budget)
        with self.oracles.lent(task) as oracle:
            checked = gates.examine(task, plan, oracle)
        gates.store(checked.gate, task, self.pool.cache)
        return checked

    def _plan(self, task: Task, budget: dict[str, int]) -> TaskPlan:
        """Returns a task's plan without its gate. Cached on disk: deriving costs more than judging most candidates."""
        key = hashlib.sha256(f"{PROTOCOL} {_deriving_code()} {task.content_hash} {budget}".encode()).hexdigest()
        if key in self.plans:
            return self.plans[key]
        path = self.pool.cache / "plans" / f"{key}.json"
        with _PLANNING[int(key[:4], 16) % len(_PLANNING)]:
            plan = _read_plan(path)
            if plan is None:
                # The seed only decides which values prove a distribution usable, so a fixed one gives a fixed plan.
                with self.oracles.lent(task) as oracle:
                    plan = oracle.plan(budget, seed=int(key[:7], 16))
                _write_plan(path, plan)
        self.plans[key] = plan
        return plan

    def close(self) -> None:
        self.builder.close()
        self.devices.close()
        self.reader.close()
        self.oracles.close()


@cache
def _deriving_code() -> str:
    """Returns a fingerprint of all modules that make plans, so that a plan never outlives the code that made it.

    These are the whole of `tasks/` and of `evaluation/reference/`: the oracle derives sizes, runs the reference at them
    and measures its errors. Raises `HarnessError` where a folder is missing.
    """
    package = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for folder in (package / "tasks", package / "evaluation" / "reference"):
        files = sorted(folder.rglob("*.py"))
        if not files:
            raise HarnessError(f"the code that makes plans is missing: {folder}")
        for path in files:
            digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _read_plan(path: Path) -> TaskPlan | None:
    try:
        data = json.loads(path.read_text())
        return TaskPlan(
            [Workload.model_validate(w) for w in data["workloads"]],
            Workload.model_validate(data["declared"]) if data["declared"] else None,
            data["distributions"],
            data["notes"],
            [Workload.model_validate(w) for w in data["large"]],
            [Workload.model_validate(w) for w in data["long"]],
        )
    except (OSError, ValueError, KeyError):
        return None


def _write_plan(path: Path, plan: TaskPlan) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "workloads": [w.model_dump(mode="json") for w in plan.workloads],
        "declared": plan.declared.model_dump(mode="json") if plan.declared else None,
        "distributions": plan.distributions,
        "notes": plan.notes,
        "large": [w.model_dump(mode="json") for w in plan.large],
        "long": [w.model_dump(mode="json") for w in plan.long],
    }
    temporary = path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
    temporary.write_text(json.dumps(data))
    os.replace(temporary, path)


def harness_error(
    task: Task, candidate: Candidate, options: EvalOptions, error: HarnessError, backend: str
) -> Evaluation:
    """Returns an evaluation that reports a failure of our own machinery."""
    return _unjudged(task, candidate, options, "harness_error", f"{type(error).__name__}: {error}", backend == "gpu")


def _unjudged(
    task: Task, candidate: Candidate, options: EvalOptions, verdict: VerdictName, reason: str, on_gpu: bool
) -> Evaluation:
    """Returns an evaluation of a candidate that was never called."""
    return Evaluation(
        task_id=task.task_id,
        task_hash=task.content_hash,
        candidate_id=candidate.content_hash,
        verdict=verdict,
        reason=reason[:500],
        backend="gpu" if on_gpu else "cpu",
        seconds=Seconds(),
        options=options.model_dump(mode="json", exclude={"seed"}),
    )


Progress = Callable[[Evaluation], None]
