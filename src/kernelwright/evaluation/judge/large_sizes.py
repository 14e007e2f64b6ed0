"""The judge's look at a size that is too large to run: a few blocks of each launch, on memory that is mostly empty.

A candidate that is right wherever it could be run may still overflow a 32-bit index, exceed a limit of the device, or
leave an allocation at the size that its task states. Such a fault is told; that there was none says little, and
whatever cannot be decided in the time and memory given, nothing. Outputs are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.backends.triton import triton_support
from kernelwright.errors import TaskError
from kernelwright.evaluation.case import Case
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.messages import CallState, MachineFinding
from kernelwright.evaluation.trials import Trial
from kernelwright.machine.runtime import BUDGET
from kernelwright.records import Finding, Workload

SECONDS = 6.0
"""Wall seconds that it may take, builds not counted; most candidates need a tenth."""
RESIDENT_MB = 1536
"""Memory that it may touch beyond what a runner has by itself."""
ADDRESSES_MB = 1 << 20
"""Addresses that it may reserve: tensors of any size take these, and no memory."""
MOST_ELEMENTS = 1 << 36
INSTRUCTIONS_A_FLOP = 16
"""Of a plain kernel that reads both operands from memory; of the library's convolutions it is eight."""
LANGUAGES = ("cuda", "triton")
_RUNNER_MB = 512


@dataclass(frozen=True)
class Look:
    """What was seen. `note` is for the result's environment; `session`, which is over, has what the machine found."""

    note: str
    session: CandidateClient | None = None

    @property
    def faults(self) -> list[MachineFinding]:
        """What is sure to go wrong on a GPU, too."""
        found = self.session.last.findings if self.session is not None else []
        return [f for f in found if f.severity == "fault"]


def size_to_sample(case: Case, trials: Sequence[Trial]) -> Workload | None:
    """The largest size that the task states and that was not run; None where there is none, or none is wanted."""
    options, plan = case.options, case.plan
    if not options.sample_large or options.small_sizes or case.candidate.language not in LANGUAGES:
        return None
    stated = [*plan.large, *([plan.declared] if plan.declared else [])]
    unseen = [w for w in stated if not any(t.workload.constants == w.constants for t in trials)]
    fitting = [w for w in unseen if w.elements <= MOST_ELEMENTS]
    return max(fitting, key=lambda w: w.elements, default=None)


def look(case: Case, size: Workload, trial: Trial) -> Look:
    """One sampled call at `size`, with values as `trial` has them, in a process of its own."""
    try:
        outline = case.oracle.outline(size, trial)
    except TaskError as error:
        return Look(f"{size.name}: not looked at ({error})")
    if isinstance(outline, str):
        return Look(f"{size.name}: not looked at ({outline})")
    limits = case.options.model_copy(update={"timeout": min(case.options.timeout, SECONDS)})
    preload = ("triton",) if triton_support.wanted(case.source) else ()
    child = case.pool.spawn(
        "sampler",
        cpu_seconds=int(SECONDS * 2) + 5,
        memory_mb=ADDRESSES_MB,
        resident_mb=RESIDENT_MB + _RUNNER_MB,
        preload=preload,
    )
    session = CandidateClient(case.candidate, case.source, limits, case.pool, case.builder, child)
    ended: Failed | None = None
    try:
        session.load(case.task)
        session.sampled(outline, trial)
    except Failed as failed:
        ended = failed
    finally:
        session.close()
    seen = Look("", session)
    note = seen.faults[0].rule if seen.faults else _note(session, ended)
    return Look(f"{size.name}: {note}", session)


def _note(session: CandidateClient, ended: Failed | None) -> str:
    launches = sum(one.count for one in session.last.facts.launches) if isinstance(session.last, CallState) else 0
    if ended is not None:
        return f"not decided ({ended.verdict}: {ended.reason})"[:300]
    return f"nothing found in a sample of the blocks of {launches} launches" if launches else "no launch was sampled"


def fault(finding: Finding, trial: Trial | None) -> Failed:
    """The verdict on a candidate that faults in a call. Where a launch was stopped that may take as many instructions
    for its size alone, there is none: who is slow cannot be told from who never ends."""
    flops = trial.workload.flops if trial is not None else 0
    if finding.rule == "instruction-budget" and flops * INSTRUCTIONS_A_FLOP > BUDGET:
        limit = f"the functional machine ends a launch after {BUDGET} thread instructions"
        return Failed("unsupported", f"size: {limit}, and the {flops} FLOPs of this one may take as many")
    return Failed("runtime_error", f"{finding.rule}: {finding.evidence}"[:500], finding)


def verdict(finding: Finding, size: Workload) -> Failed:
    """The verdict on a candidate that faults at a size of its task."""
    where = f"at the task's own size ({size.elements} elements), of which a sample of the blocks was run"
    return Failed("runtime_error", f"{finding.rule} {where}: {finding.evidence}"[:500], finding)
