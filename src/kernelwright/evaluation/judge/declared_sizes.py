"""Judges a right candidate at the sizes that its task states and that its trials left out, and notes what was compared.

A size is run whole, on one trial, where an estimate from the smaller calls allows it (`SECONDS`), or where the caller
asks for it. Else a sample of its blocks is run (`large_sizes`): there the rules hold, faults decide, and what the
blocks wrote is compared with the reference at these elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelwright.errors import TaskError
from kernelwright.evaluation.case import Case
from kernelwright.evaluation.judge import large_sizes, trial_runs
from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.judge.large_sizes import ReferenceRun
from kernelwright.evaluation.judge.verdict import machine_findings
from kernelwright.evaluation.trials import Trial
from kernelwright.records import SizeCoverage, Workload

SECONDS = 10.0
"""The estimated seconds up to which a stated size is run whole: reference, candidate and comparison."""
FORCED_SECONDS = 600.0
"""The wall seconds that a candidate may use at a stated size where the caller asks for a whole run."""
INSTRUCTIONS_A_SECOND = 5e8
ELEMENTS_A_SECOND = 5e6
FLOPS_A_SECOND = 3e9
"""The pace of the estimate, low by a factor of about two on one core of 2023: thread instructions of the functional
machine; elements that are made, sent and compared; FLOPs of the reference's float64 and float32 runs together."""
MOST_ELEMENTS = 150_000_000
"""The most elements of a size that is run whole: each takes about 60 bytes in the oracle and the judge together."""
MOST_SAMPLED = 1 << 36
"""The most elements of a size whose blocks are sampled."""
MOST_SIZES = 4
"""The most sizes that are looked at."""
MOST_REAL = 50_000_000
"""The most elements of inputs that a sampled call gets as they are."""
DRIVES_A_DEVICE = ("cuda", "triton")


def cover(case: Case, attempt: Attempt, trials: Sequence[Trial]) -> None:
    """Judges at the stated sizes that were not run, largest first, until one fails."""
    if case.options.small_sizes or not (case.options.sample_large or case.options.full_size):
        return
    run = [t.workload.constants for t in trials]
    unseen = sorted((w for w in case.plan.stated() if w.constants not in run), key=lambda w: -w.elements)
    for size in unseen[:MOST_SIZES]:
        if attempt.failed is None:
            _cover_one(case, attempt, size, trials[0])
    for size in unseen[MOST_SIZES:]:
        attempt.coverage[size.name] = SizeCoverage(name=size.name, reason=f"only {MOST_SIZES} sizes are looked at")


def _cover_one(case: Case, attempt: Attempt, size: Workload, trial: Trial) -> None:
    why_not = _too_much(case, attempt, size) or _whole(case, attempt, size, trial)
    if not why_not or attempt.failed is not None:
        return
    attempt.coverage[size.name] = SizeCoverage(name=size.name, reason=why_not)
    sampled = case.options.sample_large and size.elements <= MOST_SAMPLED
    if sampled and attempt.launches and case.candidate.language in DRIVES_A_DEVICE:
        values = large_sizes.ReferenceRun(MOST_REAL, whole=_reference_seconds(size) <= SECONDS)
        sample(case, attempt, size, trial, why_not, values)


def seconds(work: Sequence[tuple[Workload, int]], size: Workload) -> float:
    """Returns the estimated seconds of a whole call at a size, from the sizes and thread instructions of smaller calls.

    Instructions are taken to grow with elements and FLOPs together. Infinity for a size of unknown cost.
    """
    known = [(w.elements + w.flops, instructions) for w, instructions in work if w.elements]
    if not size.elements or not known:
        return float("inf")
    units, instructions = max(known)
    expected = instructions / units * (size.elements + size.flops)
    return expected / INSTRUCTIONS_A_SECOND + _reference_seconds(size)


def _reference_seconds(size: Workload) -> float:
    return size.elements / ELEMENTS_A_SECOND + size.flops / FLOPS_A_SECOND


def _too_much(case: Case, attempt: Attempt, size: Workload) -> str:
    """Returns why a size is not run whole, or an empty text."""
    if size.elements > MOST_ELEMENTS:
        return f"{size.elements} elements take too much memory"
    if case.options.full_size:
        return ""
    expected = seconds(attempt.work, size)
    if expected <= SECONDS:
        return ""
    return f"a whole run takes about {expected:.0f} s" if expected < 1e6 else "the cost of a whole run is not known"


def _whole(case: Case, attempt: Attempt, size: Workload, trial: Trial) -> str:
    """Runs one trial at a size; returns why nothing was decided, or an empty text."""
    if case.options.full_size:
        longer = max(case.options.timeout, FORCED_SECONDS)
        case = replace(case, options=case.options.changed(timeout=longer))
    whole = Trial(size, "own", trial.weight_seed ^ 0x5A, trial.input_seed ^ 0x5A)
    try:
        again = trial_runs.run(case, [whole])
    except TaskError as error:
        return f"the reference cannot be run there: {error}"[:300]
    attempt.build_seconds += again.build_seconds
    failed = again.failed
    if failed is not None and again.undecided():
        return f"not decided: {failed.verdict}: {failed.reason}"[:300]
    attempt.results += again.results
    attempt.findings += [f for f in again.findings if f not in attempt.findings]
    attempt.library_ops += [op for op in again.library_ops if op not in attempt.library_ops]
    if failed is not None:
        attempt.failed, attempt.trial, attempt.log = failed, again.trial, again.log
    return ""


def sample(
    case: Case, attempt: Attempt, size: Workload, trial: Trial, why_not: str = "", values: ReferenceRun | None = None
) -> None:
    """Runs a sample of a right candidate's blocks at a size; `why_not` tells why it was not run whole, and `values` how
    the reference may be computed, if values are to be compared."""
    seen = large_sizes.look(case, size, trial, attempt.stored_share, values)
    if not attempt.environment.sampled_size:
        attempt.note(sampled_size=seen.note)
    told = (why_not, seen.not_compared, seen.note.removeprefix(f"{size.name}: "))
    attempt.coverage[size.name] = SizeCoverage(
        name=size.name,
        shape=seen.shape,
        values="sampled" if seen.compared else "none",
        compared=seen.compared,
        reason="; ".join(filter(None, told))[:400],
    )
    if seen.session is None:
        return
    attempt.build_seconds += seen.session.build_seconds
    found = machine_findings(seen.session, seen.faults, f"{size.name} (sampled)")[0]
    attempt.findings.extend(found)
    attempt.failed = large_sizes.verdict(found[0], size) if found else seen.failed
    if attempt.failed is not None:
        attempt.note(sampled_size=seen.note)
