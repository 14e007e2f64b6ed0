"""Gets the machine code of a candidate's kernels without a GPU: calls the candidate once, then compiles its builds.

The sandboxed processes that judge on the CPU execute the candidate (`call_work`). This reveals its builds, template
instances, block sizes and dynamic shared memory. The sandboxed builder then compiles the same device text for a real
architecture.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelwright.builds import BuildResult
from kernelwright.errors import CandidateError, UsageError
from kernelwright.evaluation.case import Case
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge.worker import Worker
from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.evaluation.trials import TaskPlan
from kernelwright.profile.call_work import CallWork, broken_build, count_call
from kernelwright.records import Candidate, Task, Workload


@dataclass(frozen=True)
class DeviceCode:
    """A candidate's machine code, and what its call does."""

    cubins: tuple[bytes, ...]
    call: CallWork
    failed_build: str = ""
    """The error of the first failed build, which the candidate may have caught."""


def compile_device_code(
    task: Task, candidate: Candidate, arch: str, options: EvalOptions, wanted: Workload | None = None
) -> DeviceCode:
    """Returns the cubins of a candidate's builds for `arch` (`sm_90a`), and its call at the size `wanted`, if possible.

    Raises `CandidateError` for a candidate that cannot be built or loaded, `TaskError` where the reference does not
    run, and `HarnessError`.
    """
    with Pool(options.sandbox) as pool:
        pool.warm()
        worker = Worker(pool)
        try:
            return compile_with(worker, task, candidate, arch, options, wanted)
        finally:
            worker.close()


def _unusable(failed: Failed) -> CandidateError:
    return CandidateError(
        f"the candidate cannot be profiled: {failed.verdict}: {failed.reason}",
        hint="`kernelwright eval` shows the whole error",
    )


def compile_with(
    worker: Worker, task: Task, candidate: Candidate, arch: str, options: EvalOptions, wanted: Workload | None
) -> DeviceCode:
    """Does the same with the processes of a worker."""
    reading = worker.reader.read(candidate, task)
    if reading.problem is not None:
        raise _unusable(reading.problem)
    plan = worker.plan(task)
    try:
        with worker.oracles.lent(task) as oracle:
            case = Case(task, candidate, reading, options, worker.builder, worker.devices, 1, plan, oracle)
            call = count_call(case, _size(plan, wanted))
    except Failed as failed:
        raise _unusable(failed) from None
    session = call.session
    cubins = [
        _cubin(worker, request, result, arch, options.build_timeout)
        for request, result in zip(session.requests, session.builds, strict=True)
        if result.status == "ok" and result.ptx
    ]
    broken = broken_build(session)
    if call.failed is not None and call.failed.verdict != "rejected" and not cubins and broken is not None:
        raise _unusable(broken)
    return DeviceCode(tuple(cubins), call, broken.reason if broken else "")


def _size(plan: TaskPlan, wanted: Workload | None) -> Workload | None:
    """Returns the plan's size with the wanted constants, else the task's own, else the largest."""
    stated = [*([plan.declared] if plan.declared else []), *plan.large]
    same = next((w for w in stated if wanted is not None and w.constants == wanted.constants), None)
    return same or next(iter(stated), None) or max(plan.workloads, key=lambda w: w.elements, default=None)


def _cubin(worker: Worker, request: Mapping[str, Any], result: BuildResult, arch: str, seconds: float) -> bytes:
    """Compiles one build's device text to machine code. Raises `UsageError` if it fails for this architecture."""
    again: dict[str, Any] = {
        # An extension's device text carries its flags; a plain build's does not.
        "kind": "device" if request.get("kind") == "device" else "instances",
        "cuda_source": result.device_source or "",
        "cuda_flags": list(request.get("cuda_flags", ())) if request.get("kind") == "device" else [],
        "expressions": list(result.lowered),
        "arch": arch,
    }
    made = worker.builder.build(again, seconds)
    if not made.cubin:
        lines = [line.strip() for line in made.log.splitlines() if line.strip()] or ["NVRTC made no machine code"]
        why = next((line for line in lines if "error" in line.lower()), lines[0])
        raise UsageError(
            f"the candidate does not compile for {arch}: {why[:300]}", hint="choose another architecture with --arch"
        )
    return base64.b64decode(made.cubin)
