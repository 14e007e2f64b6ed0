"""Holds the state of a running judgement: results, findings, launches, times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelwright.evaluation.case import Case, Submission
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.messages import CallState, LaunchFacts
from kernelwright.evaluation.trials import Trial
from kernelwright.records import (
    Coverage,
    Environment,
    Finding,
    Hotspot,
    Launch,
    SizeCoverage,
    Timing,
    Touched,
    Workload,
    WorkloadResult,
)

MAX_HOTSPOTS = 8
MAX_SPOTS = 50
"""The most hot spots of one launch that are looked at."""


@dataclass
class Attempt:
    """The observations from a list of trials, up to the first failure."""

    results: list[WorkloadResult] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    launches: dict[str, Launch] = field(default_factory=dict)
    library_ops: list[str] = field(default_factory=list)
    wrote: bool = False
    """True once a kernel, in any call, has stored values that outputs could hold."""
    stored_share: float = math.inf
    """The least share that the bytes stored by a call's kernels are of its outputs' bytes, in any call."""
    work: list[tuple[Workload, int]] = field(default_factory=list)
    """The size of each call and the thread instructions that it took."""
    coverage: dict[str, SizeCoverage] = field(default_factory=dict)
    """What was compared at stated sizes that were not run whole, by name."""
    failed: Failed | None = None
    trial: Trial | None = None
    log: str = ""
    level: str = "none"
    build_seconds: float = 0.0
    time_seconds: float = 0.0
    waited: float = 0.0
    """Seconds that the judgement waited for the GPU. They count towards no stage."""
    timing: Timing | None = None
    environment: Environment = Environment()

    def undecided(self) -> bool:
        """Tells whether it failed for want of time, instructions, memory or a feature of ours: values are not known."""
        failed = self.failed
        if failed is None:
            return False
        cut = failed.finding is not None and failed.finding.rule == "instruction-budget"
        return cut or failed.verdict in ("timeout", "unsupported") or failed.cause == "memory"

    def note(self, **facts: Any) -> None:
        """Adds facts to the environment, by the names of its fields."""
        self.environment = self.environment.changed(**facts)


def note_launches(attempt: Attempt, client: CandidateClient, facts: CallState) -> None:
    """Adds a call's launches to the attempt, by kernel: counts, instructions, counters, hot spots, memory."""
    attempt.wrote |= not facts.idle and any(facts.facts.written.values())
    spots = [(one.kernel, spot) for one in facts.facts.launches for spot in one.hotspots[:MAX_SPOTS]]
    lines = iter(client.reading.kernel_lines(client.requests, spots))
    for one in facts.facts.launches:
        before = attempt.launches.get(one.kernel, Launch(kernel=one.kernel, count=0))
        counters = dict(before.counters)
        for key, value in one.counters.items():
            counters[key] = counters.get(key, 0) + value
        attempt.launches[one.kernel] = Launch(
            kernel=one.kernel,
            count=before.count + one.count,
            instructions=before.instructions + one.instructions,
            counters=counters,
            hotspots=_added_hotspots(before, one, lines),
            memory=tuple(Touched(**m.model_dump()) for m in one.memory[:100]) or before.memory,
        )


def _added_hotspots(before: Launch, launch: LaunchFacts, lines: Iterator[int | None]) -> tuple[Hotspot, ...]:
    """Returns a kernel's hot spots with those of one more call, worst first; takes their lines from `lines`."""
    sums = {(h.kind, h.line): h for h in before.hotspots}
    for one in launch.hotspots[:MAX_SPOTS]:
        line = next(lines)
        new = Hotspot(**{**one.model_dump(), "line": line})
        old = sums.get((new.kind, line))
        if old is not None:
            total = {n: getattr(old, n) + getattr(new, n) for n in ("accesses", "actual", "ideal")}
            new = new.changed(**total)
        sums[new.kind, line] = new
    return tuple(sorted(sums.values(), key=lambda h: h.ideal - h.actual)[:MAX_HOTSPOTS])


def coverage_of(case: Submission, attempt: Attempt) -> Coverage:
    """Returns the coverage of a finished attempt, from its results and from what it noted about other sizes."""
    whole = {r.name: r for r in attempt.results if r.scope == "declared"}
    plan = case.plan if isinstance(case, Case) else None
    names = [w.name for w in plan.stated()] if plan is not None else list(whole)
    sizes = []
    for name in names:
        if name in whole:
            sizes.append(SizeCoverage(name=name, shape=extents(whole[name].shape), values="all"))
        else:
            sizes.append(attempt.coverage.get(name) or SizeCoverage(name=name, reason=_why_not(case, attempt)))
    long = {w.name for w in plan.long} if plan is not None else set()
    lengths = dict.fromkeys(r.name for r in attempt.results if r.passed and r.name in long)
    return Coverage(sizes=tuple(sizes), lengths=tuple(lengths))


def extents(shapes: Sequence[Sequence[int]]) -> str:
    """Returns the extents of the largest of some shapes, e.g. `4x8x333x333`."""
    return "x".join(map(str, max(shapes, key=math.prod, default=())))


def _why_not(case: Submission, attempt: Attempt) -> str:
    if attempt.failed is not None:
        return f"the judgement ended before: {attempt.failed.verdict}"
    return "only small sizes were asked for" if case.options.small_sizes else "larger sizes were not asked for"
