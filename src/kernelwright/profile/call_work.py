"""Counts what a candidate's call does, without a GPU: a sample of the blocks of each launch at the task's own size.

Where host code needs values that a sample does not have, one whole call at a smaller size is counted instead, with
fewer details.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelwright.evaluation.case import Case
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge.large_sizes import ADDRESSES_MB, RESIDENT_MB
from kernelwright.evaluation.judge.small_sizes import ESCALATE_ELEMENTS, ESCALATE_FLOPS
from kernelwright.evaluation.judge.trial_runs import client_of
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.messages import CallState, LaunchFacts
from kernelwright.evaluation.processes.pool import ChildLimits
from kernelwright.evaluation.processes.program_client import ProgramClient
from kernelwright.evaluation.trials import Trial
from kernelwright.profile.facts import KernelWork, LineCounts, SiteCounts
from kernelwright.records import Workload

_RUNNER_MB = 512


@dataclass(frozen=True)
class Launched:
    """The launches of one kernel in the call: the last launch's shape, and the work of all."""

    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    shared_bytes: int
    work: KernelWork


@dataclass
class CallWork:
    """The work of one call. `session` is closed; it holds the builds."""

    session: CandidateClient
    size: str = ""
    launches: dict[str, Launched] = field(default_factory=dict)
    """By entry, as the machine code names it."""
    operators: tuple[tuple[str, int], ...] = ()
    """Operators of torch that move or compute on the device, with their elements."""
    failed: Failed | None = None
    """The failure of the call, if it failed."""
    scaled: bool = False
    """True if a sample of the blocks was counted, and scaled to all of them."""


def count_call(case: Case, size: Workload | None) -> CallWork:
    """Counts a call at `size`, or at a smaller one. Raises `Failed` for a candidate that does not load."""
    sampled = _sampled(case, size) if size is not None and case.candidate.language != "cpp" else None
    if sampled is not None and sampled.launches and all(one.work.blocks for one in sampled.launches.values()):
        return sampled
    return _whole(case)


def _sampled(case: Case, size: Workload) -> CallWork | None:
    """Counts a sample of the blocks at the task's own size; None where that is not possible."""
    smallest = min(case.plan.workloads, key=lambda w: w.elements)
    trial = Trial(smallest, "own", weight_seed=1, input_seed=2)
    outline = case.oracle.outline(size, trial)
    if isinstance(outline, str):
        return None
    limits = ChildLimits(int(case.options.timeout * 2) + 5, ADDRESSES_MB, resident_mb=RESIDENT_MB + _RUNNER_MB)
    session = ProgramClient(case, case.options, "sampled_device", limits)
    try:
        session.load(case.task)
        called, _ = session.sampled_call(outline, trial)
    except Failed:
        return None
    finally:
        session.close()
    return _work_of(session, called, size.name, scaled=True)


def _whole(case: Case) -> CallWork:
    """Counts one call at the smallest size, and if no kernel ran, at the task's own."""
    plan = case.plan
    sizes: list[Workload] = sorted(plan.workloads, key=lambda w: w.elements)[:1]
    own = plan.declared
    if own is not None and (not sizes or 0 < own.elements <= ESCALATE_ELEMENTS and own.flops <= ESCALATE_FLOPS):
        sizes.append(own)
    session = client_of(case)
    found = CallWork(session)
    try:
        try:
            session.load(case.task)
        except Failed as failed:
            raise (broken_build(session) or failed) from None
        _call_at(sizes, session, case, found)
    finally:
        session.close()
    return found


def _call_at(sizes: Sequence[Workload], session: CandidateClient, case: Case, found: CallWork) -> None:
    """Calls the candidate at each size until a kernel runs, and notes its work, or how the call failed."""
    try:
        for workload in sizes:
            trial = Trial(workload, "own", weight_seed=1, input_seed=2)
            data = case.oracle.trial(trial, call_seed=3)
            session.make(data, trial.weight_seed, keep=False)
            called = session.call(data, call_seed=3, reuse=False).facts
            seen = _work_of(session, called, workload.name, scaled=False)
            found.size, found.launches, found.operators = seen.size, seen.launches, seen.operators
            fault = next((f for f in called.findings if f.severity == "fault"), None)
            if fault is not None:
                found.failed = Failed("runtime_error", f"{fault.rule}: {fault.evidence}"[:500])
            if found.launches or fault is not None:
                break
    except Failed as failed:
        found.failed = failed


def _work_of(session: CandidateClient, called: CallState, size: str, scaled: bool) -> CallWork:
    lines = _Lines(session, called.facts.launches)
    launches = {one.kernel: _launched(one, lines, scaled) for one in called.facts.launches}
    return CallWork(session, size, launches, tuple((n, k) for n, k in called.operators_run), scaled=scaled)


class _Lines:
    """The lines of the candidate's file for the lines that the machine counted, by kernel."""

    def __init__(self, session: CandidateClient, launches: Sequence[LaunchFacts]) -> None:
        spots: list[tuple[str, Any]] = [
            (one.kernel, spot) for one in launches for spot in (*one.lines, *one.sites, *one.hotspots)
        ]
        found = session.reading.kernel_lines(session.requests, spots)
        self._own = {(kernel, spot.line): own for (kernel, spot), own in zip(spots, found, strict=True)}

    def own(self, kernel: str, line: int) -> int | None:
        """Returns the line of the candidate's file, or None."""
        return self._own.get((kernel, line))


def _launched(one: LaunchFacts, lines: _Lines, scaled: bool) -> Launched:
    return Launched(
        one.grid, one.block, one.shared_bytes, _scaled_work(one, lines) if scaled else _plain_work(one, lines)
    )


def _scaled_work(one: LaunchFacts, lines: _Lines) -> KernelWork:
    c = one.counters
    return KernelWork(
        launches=one.count,
        blocks=c.get("blocks", 0),
        warps=c.get("warps", 0),
        issued=c.get("warp_instructions", 0),
        bytes_read=c.get("bytes_read", 0),
        bytes_written=c.get("bytes_written", 0),
        bytes_handed=c.get("bytes_handed", 0),
        lines=tuple(LineCounts(**{**v.model_dump(), "line": lines.own(one.kernel, v.line)}) for v in one.lines),
        sites=tuple(SiteCounts(**{**v.model_dump(), "line": lines.own(one.kernel, v.line)}) for v in one.sites),
    )


def _plain_work(one: LaunchFacts, lines: _Lines) -> KernelWork:
    """Returns the work of whole launches, of which only the lines with wasted traffic are known."""
    grid, block = one.grid or (1, 1, 1), one.block or (1, 1, 1)
    blocks = grid[0] * grid[1] * grid[2] * one.count
    return KernelWork(
        launches=one.count,
        blocks=blocks,
        warps=blocks * -(-block[0] * block[1] * block[2] // 32),
        issued=one.counters.get("warp_instructions", 0),
        bytes_read=sum(m.read for m in one.memory),
        bytes_written=sum(m.written for m in one.memory),
        lines=(LineCounts(line=None, issued=one.counters.get("warp_instructions", 0), threads=one.instructions),),
        sites=tuple(SiteCounts(**{**v.model_dump(), "line": lines.own(one.kernel, v.line)}) for v in one.hotspots),
    )


def broken_build(session: CandidateClient) -> Failed | None:
    """Returns the first failed build, with the compiler's message; None if there is none."""
    for result in session.builds:
        if result.status == "compile_error":
            lines = [line.strip() for line in result.log.splitlines() if line.strip()]
            return Failed("compile_error", next((line for line in lines if "error" in line.lower()), lines[0])[:400])
        if result.status == "unsupported":
            return Failed("unsupported", f"missing: {', '.join(result.missing)}"[:400])
    return None
