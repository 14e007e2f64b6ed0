"""Samples a size too large to run: a few blocks of each launch, on memory that is mostly untouched.

A candidate that is right at every size that could be run may still overflow a 32-bit index, exceed a limit of the
device, or leave an allocation at the size that its task states. A fault found here decides. Finding none says little,
and a sample that exceeds its time or memory says nothing. Outputs are not compared.
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
from kernelwright.evaluation.processes.pool import ChildLimits
from kernelwright.evaluation.trials import Trial
from kernelwright.machine.runtime import BUDGET
from kernelwright.records import Finding, Workload

SECONDS = 6.0
"""The limit in wall seconds, builds not counted; most candidates need a tenth."""
RESIDENT_MB = 1536
"""The limit in MB on memory that the candidate may touch beyond the runner's own."""
ADDRESSES_MB = 1 << 20
"""The limit in MB on addresses that it may reserve: tensors of any size take addresses, but no memory."""
MOST_ELEMENTS = 1 << 36
INSTRUCTIONS_A_FLOP = 16
"""The instructions per FLOP of a plain kernel that reads both operands from memory; our library's convolutions take
eight."""
LANGUAGES = ("cuda", "triton")
_RUNNER_MB = 512


@dataclass(frozen=True)
class Look:
    """The result of sampling. `note` goes into the environment; `session`, which is closed, holds the findings."""

    note: str
    session: CandidateClient | None = None

    @property
    def faults(self) -> list[MachineFinding]:
        """Returns the findings that are certain to fail on a GPU, too."""
        found = self.session.last.findings if self.session is not None else []
        return [f for f in found if f.severity == "fault"]


def size_to_sample(case: Case, trials: Sequence[Trial]) -> Workload | None:
    """Returns the largest stated size that was not run; None if there is none, or sampling is off."""
    options, plan = case.options, case.plan
    if not options.sample_large or options.small_sizes or case.candidate.language not in LANGUAGES:
        return None
    stated = [*plan.large, *([plan.declared] if plan.declared else [])]
    unseen = [w for w in stated if not any(t.workload.constants == w.constants for t in trials)]
    fitting = [w for w in unseen if w.elements <= MOST_ELEMENTS]
    return max(fitting, key=lambda w: w.elements, default=None)


def look(case: Case, size: Workload, trial: Trial) -> Look:
    """Samples one call at `size`, with the distribution and seeds of `trial`, in a process of its own."""
    try:
        outline = case.oracle.outline(size, trial)
    except TaskError as error:
        return Look(f"{size.name}: not looked at ({error})")
    if isinstance(outline, str):
        return Look(f"{size.name}: not looked at ({outline})")
    limits = case.options.model_copy(update={"timeout": min(case.options.timeout, SECONDS)})
    preload = ("triton",) if triton_support.wanted(case.source) else ()
    bounds = ChildLimits(int(SECONDS * 2) + 5, ADDRESSES_MB, resident_mb=RESIDENT_MB + _RUNNER_MB)
    child = case.pool.spawn("sampler", bounds, preload=preload)
    session = CandidateClient(case.candidate, case.reading, limits, case.pool, case.builder, child)
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
    """Returns the verdict on a candidate that faults in a call.

    `unsupported` if a launch was stopped for its instruction count although its size alone may need as many: a slow
    kernel cannot be told from an endless one.
    """
    flops = trial.workload.flops if trial is not None else 0
    if finding.rule == "instruction-budget" and flops * INSTRUCTIONS_A_FLOP > BUDGET:
        limit = f"the functional machine ends a launch after {BUDGET} thread instructions"
        return Failed("unsupported", f"size: {limit}, and the {flops} FLOPs of this one may take as many")
    return Failed("runtime_error", f"{finding.rule}: {finding.evidence}"[:500], finding)


def verdict(finding: Finding, size: Workload) -> Failed:
    """Returns the verdict on a candidate that faults at a size of its task."""
    where = f"at the task's own size ({size.elements} elements), of which a sample of the blocks was run"
    return Failed("runtime_error", f"{finding.rule} {where}: {finding.evidence}"[:500], finding)
