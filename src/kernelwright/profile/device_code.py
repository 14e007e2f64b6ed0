"""Gets the machine code of a candidate's kernels without a GPU: runs the candidate once, then compiles its builds.

The sandboxed runner that judges on the CPU executes the candidate at a small size of its task. This reveals its builds,
template instances, block sizes and dynamic shared memory. The sandboxed builder then compiles the same device text for
a real architecture.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelwright.builds import BuildResult
from kernelwright.errors import CandidateError, UsageError
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge.small_sizes import ESCALATE_ELEMENTS, ESCALATE_FLOPS
from kernelwright.evaluation.judge.worker import Worker
from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.oracle_client import OracleClient
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.evaluation.trials import TaskPlan, Trial
from kernelwright.records import Candidate, Task, Workload


@dataclass(frozen=True)
class DeviceCode:
    """A candidate's machine code and its launches."""

    cubins: tuple[bytes, ...]
    launches: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By entry: `count`, and `grid`, `block` and `shared_bytes` of the last launch, at the size named `size`."""
    size: str = ""
    problem: str = ""
    """The reason why the call failed; empty when it succeeded. Builds may be known in either case."""
    failed_build: str = ""
    """The error of the first failed build, which the candidate may have caught."""


def compile_device_code(task: Task, candidate: Candidate, arch: str, options: EvalOptions) -> DeviceCode:
    """Returns the cubins of a candidate's builds for `arch` (`sm_90a`), and its launches.

    Raises `CandidateError` for a candidate that cannot be built or loaded, `TaskError` where the reference does not
    run, and `HarnessError`.
    """
    with Pool(options.sandbox) as pool:
        pool.warm()
        worker = Worker(pool)
        try:
            return _compiled(worker, task, candidate, arch, options)
        finally:
            worker.close()


def _unusable(failed: Failed) -> CandidateError:
    return CandidateError(
        f"the candidate cannot be profiled: {failed.verdict}: {failed.reason}",
        hint="`kernelwright eval` shows the whole error",
    )


def _compiled(worker: Worker, task: Task, candidate: Candidate, arch: str, options: EvalOptions) -> DeviceCode:
    reading = worker.reader.read(candidate, task)
    if reading.problem is not None:
        raise _unusable(reading.problem)
    plan = worker.plan(task)
    session = CandidateClient(candidate, reading, options, worker.pool, worker.builder)
    launches: dict[str, dict[str, Any]] = {}
    size, problem = "", ""
    try:
        session.load(task)
        try:
            with worker.oracles.lent(task) as oracle:
                size, launches = _called(session, plan, oracle)
        except Failed as failed:
            problem = f"{failed.verdict}: {failed.reason}"
        cubins = [
            _cubin(worker, request, result, arch, options.build_timeout)
            for request, result in zip(session.requests, session.builds, strict=True)
            if result.status == "ok" and result.ptx
        ]
    except Failed as failed:
        raise _unusable(_broken(session) or failed) from None
    finally:
        session.close()
    if problem and not cubins and (broken := _broken(session)) is not None:
        raise _unusable(broken)
    failed_build = _broken(session)
    return DeviceCode(tuple(cubins), launches, size, problem, failed_build.reason if failed_build else "")


def _broken(session: CandidateClient) -> Failed | None:
    """Returns the first failed build, with the compiler's message; None if there is none."""
    for result in session.builds:
        if result.status == "compile_error":
            lines = [line.strip() for line in result.log.splitlines() if line.strip()]
            return Failed("compile_error", next((line for line in lines if "error" in line.lower()), lines[0])[:400])
        if result.status == "unsupported":
            return Failed("unsupported", f"missing: {', '.join(result.missing)}"[:400])
    return None


def _called(session: CandidateClient, plan: TaskPlan, oracle: OracleClient) -> tuple[str, dict[str, dict[str, Any]]]:
    """Runs one forward at the smallest size, and if no kernel ran, at the task's own. Returns the size's name and the
    launches by entry. Raises `Failed`.
    """
    sizes: list[Workload] = sorted(plan.workloads, key=lambda w: w.elements)[:1]
    own = plan.declared
    if own is not None and (not sizes or 0 < own.elements <= ESCALATE_ELEMENTS and own.flops <= ESCALATE_FLOPS):
        sizes.append(own)
    launches: dict[str, dict[str, Any]] = {}
    size = ""
    for workload in sizes:
        trial = Trial(workload, "own", weight_seed=1, input_seed=2)
        data = oracle.trial(trial, call_seed=3)
        session.make(data, trial.weight_seed, keep=False)
        facts = session.call(data, call_seed=3, reuse=False).facts.facts
        launches, size = {launch.kernel: launch.model_dump() for launch in facts.launches}, workload.name
        if launches:
            break
    return size, launches


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
