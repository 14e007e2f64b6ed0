"""Samples a size too large to run: a few blocks of each launch, on memory that is mostly untouched.

A candidate that is right at every size that could be run may still overflow a 32-bit index, exceed a limit of the
device, or leave an allocation at the size that its task states. A fault found here decides. Finding none says little,
and a sample that exceeds its time or memory says nothing. Elements whose values are certain are compared with the
reference, where that can be computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelwright.errors import TaskError
from kernelwright.evaluation.case import Case
from kernelwright.evaluation.compare import on_host
from kernelwright.evaluation.compare.on_host import Array, OutputSpec
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge import rules
from kernelwright.evaluation.judge.attempt import extents
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.messages import Called, CallState, MachineFinding
from kernelwright.evaluation.processes.pool import ChildLimits
from kernelwright.evaluation.processes.program_client import ProgramClient
from kernelwright.evaluation.trials import Outline, Picked, Trial
from kernelwright.machine.runtime import BUDGET
from kernelwright.machine.sampled import DROPPED
from kernelwright.records import Finding, Workload
from kernelwright.tasks import metric

SECONDS = 6.0
"""The limit in wall seconds, builds not counted; most candidates need a tenth."""
RESIDENT_MB = 1536
"""The limit in MB on memory that the candidate may touch beyond the runner's own."""
ADDRESSES_MB = 1 << 20
"""The limit in MB on addresses that it may reserve: tensors of any size take addresses, but no memory."""
INSTRUCTIONS_A_FLOP = 16
"""The instructions per FLOP of a plain kernel that reads both operands from memory; our library's convolutions take
eight."""
RULES = ("no-own-kernel", "library-op", "foreign-output")
"""Rules that hold at every size."""
WHOLE_SHARE, LEAST_SHARE = 0.9, 0.25
"""Kernels that store this share of the outputs at every size that was run must store at least the second one here."""
_RUNNER_MB = 512


@dataclass(frozen=True)
class Look:
    """The result of sampling. `note` goes into the environment; `session`, which is closed, holds the findings.
    `failed` is the verdict of a rule that the candidate breaks at this size."""

    note: str
    session: ProgramClient | None = None
    failed: Failed | None = None
    shape: str = ""
    """The extents of the largest input."""
    compared: int = 0
    """Elements of the outputs that were compared with the reference."""
    not_compared: str = ""
    """Why none were; empty where some were, or where values were not asked for."""

    @property
    def faults(self) -> list[MachineFinding]:
        """Returns the findings that are certain to fail on a GPU, too."""
        found = self.session.last.findings if self.session is not None else []
        return [f for f in found if f.severity == "fault"]


def look(case: Case, size: Workload, trial: Trial, stored_share: float, values: ReferenceRun | None = None) -> Look:
    """Samples one call at `size`, with the distribution and seeds of `trial`, in processes of their own. At the sizes
    that were run, kernels stored at least `stored_share` of the outputs' bytes. With `values`, what sampled blocks
    wrote is compared with the reference."""
    try:
        outline = case.oracle.outline(size, trial, values.most_real if values is not None else 0)
    except TaskError as error:
        return Look(f"{size.name}: not looked at ({error})")
    if isinstance(outline, str):
        return Look(f"{size.name}: not looked at ({outline})")
    shape = extents(outline.shapes)
    limits = case.options.model_copy(update={"timeout": min(case.options.timeout, SECONDS)})
    bounds = ChildLimits(int(SECONDS * 2) + 5, ADDRESSES_MB, resident_mb=RESIDENT_MB + _RUNNER_MB)
    session = ProgramClient(case, limits, "sampled_device", bounds)
    ended: Failed | None = None
    facts: Called | None = None
    picked: Picked | None = None
    try:
        session.load(case.task)
        facts, picked = session.sampled_call(outline, trial)
    except Failed as failed:
        ended = failed
    finally:
        session.close()
    seen = Look("", session)
    note = seen.faults[0].rule if seen.faults else _note(session, ended)
    broken = _broken(case, size, facts, outline, stored_share) if facts is not None else ended
    if broken is not None and _raised_by_itself(broken, session):
        broken = replace(broken, reason=f"at the task's own size: {broken.reason}"[:500])
    elif broken is not None and broken.verdict not in ("rejected", "wrong"):
        broken = None  # what a sample cannot do says nothing about the candidate
    found = Look(f"{size.name}: {note}", session, broken, shape)
    if values is None or ended is not None or broken is not None or seen.faults:
        return found
    return _with_values(case, size, trial, found, outline, picked, values)


@dataclass(frozen=True)
class ReferenceRun:
    """States how the reference may be computed: on inputs of up to `most_real` elements as they are, and on repeated
    ones beyond; with `whole`, on all of the real inputs, else on some rows of them."""

    most_real: int
    whole: bool


def _with_values(
    case: Case, size: Workload, trial: Trial, found: Look, outline: Outline, picked: Picked | None, values: ReferenceRun
) -> Look:
    """Returns the look with the comparison of what sampled blocks wrote."""
    if picked is None or not any(len(t.data) for t in picked.indices):
        return replace(found, not_compared=outline.no_values or "no value of a sampled block is certain")
    try:
        small = [] if values.whole and outline.real else case.plan.workloads
        wanted = case.oracle.elements(size, trial, outline, picked, small)
    except TaskError as error:
        return replace(found, not_compared=f"the reference cannot be run there: {error}")
    if isinstance(wanted, str):
        return replace(found, not_compared=wanted)
    kept = [t.array() for t in wanted.kept]
    got = [Array(t.array()[k], t.dtype) for t, k in zip(picked.values, kept, strict=True)]
    spec = [OutputSpec(t.dtype, t.shape, wanted.input_scale) for t in wanted.honest]
    exact, honest = [t.array() for t in wanted.exact], [t.array() for t in wanted.honest]
    try:
        outcome = on_host.compare(got, exact, honest, spec, case.task.tolerance, nearby=wanted.nearby)
    except TaskError as error:  # of the second look
        return replace(found, not_compared=f"the reference cannot be run again there: {error}")
    compared = sum(len(k) for k in kept)
    if outcome.passed or not compared:
        return replace(found, compared=compared)
    where = [t.array()[k] for t, k in zip(picked.indices, kept, strict=True)]
    evidence = _difference(got, exact, where, picked.shapes) or outcome.reason
    finding = Finding(rule="wrong-values", evidence=evidence[:600], severity="fault", workload=f"{size.name} (sampled)")
    reason = f"at the task's own size, of which a sample of the blocks was run: {evidence}"
    return replace(found, compared=compared, failed=Failed("wrong", reason[:500], finding))


def _difference(
    got: Sequence[Array], exact: Sequence[np.ndarray], where: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]]
) -> str:
    """Describes the sampled element with the largest error relative to its output's size."""
    worst: tuple[float, str] = (0.0, "")
    for number, (out, ref, at, shape) in enumerate(zip(got, exact, where, shapes, strict=True)):
        if not len(at) or out.values.shape != ref.shape:
            continue
        mine, right = metric.as_real(out.values).reshape(len(at), -1), metric.as_real(ref).reshape(len(at), -1)
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(mine - right).max(axis=1)
        error = np.where(np.isfinite(error), error, np.where((mine == right).all(axis=1), 0.0, np.inf))
        k, size = int(error.argmax()), float(np.abs(right[np.isfinite(right)]).mean() or 1.0)
        place = [int(i) for i in np.unravel_index(int(at[k]), shape)]
        text = f"output {number} differs at {place}: got {out.values[k]:.7g}, expected {ref[k]:.7g}"
        worst = max(worst, (float(error[k]) / (size or 1.0), f"{text} ({len(at)} elements were compared)"))
    return worst[1]


def _raised_by_itself(failed: Failed, session: ProgramClient) -> bool:
    """Tells whether an exception is the candidate's own: its host code has met no refusal and no unknown value.

    Host code then knows sizes, dtypes and its own constants alone, and a GPU gives it the same.
    """
    seen, last = session.seen, session.last
    own = failed.finding is not None and failed.finding.rule == "exception" and not failed.cause
    return own and not (seen.undecided or seen.error or seen.refused or seen.downloaded or last.unsupported)


def _broken(case: Case, size: Workload, facts: Called, outline: Outline, stored_share: float) -> Failed | None:
    """Returns the verdict of a rule that the candidate breaks at full size, or None."""
    largest = max((math.prod(shape) for shape in outline.shapes), default=0)
    where = f"at the task's own size ({size.elements} elements)"
    found = rules.rejecting(rules.call_findings(facts, case.rule, largest, size.name))
    if found is not None and found.rule in RULES:
        return Failed("rejected", f"{found.rule} {where}: {found.evidence}"[:500], found)
    for number, made in enumerate(facts.origins or ()):
        if made.get("unwritten"):
            evidence = f"output {number} has {made['unwritten']} elements, and kernels store only a part of them"
            finding = Finding(rule="unwritten-output", evidence=evidence, severity="fault", workload=size.name)
            return Failed("wrong", f"unwritten-output {where}: {evidence}"[:500], finding)
    if facts.stored_share is not None and stored_share >= WHOLE_SHARE and facts.stored_share < LEAST_SHARE:
        evidence = (
            f"kernels store {facts.stored_share:.1%} of the outputs' bytes, and {stored_share:.1%} at other sizes"
        )
        finding = Finding(rule="unwritten-output", evidence=evidence, severity="fault", workload=size.name)
        return Failed("wrong", f"unwritten-output {where}: {evidence}"[:500], finding)
    return None


def _note(session: CandidateClient, ended: Failed | None) -> str:
    launches = sum(one.count for one in session.last.facts.launches) if isinstance(session.last, CallState) else 0
    if ended is not None:
        return f"not decided ({ended.verdict}: {ended.reason})"[:300]
    dropped = next((f for f in session.last.findings if f.severity == DROPPED), None)
    if dropped is not None:
        where = f" on line {dropped.line}" if dropped.line else ""
        return f"not decided: {dropped.rule}{where}, which values that a sample does not know may have caused"
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
