"""What an unfinished judgement has seen so far: results, findings, launches, times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.text import source_lines
from kernelwright.evaluation.trials import Trial
from kernelwright.records import (
    Finding,
    Hotspot,
    Launch,
    Timing,
    Touched,
    WorkloadResult,
)

MAX_HOTSPOTS = 8


@dataclass
class Attempt:
    """What running a list of trials showed, up to the first failure."""

    results: list[WorkloadResult] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    launches: dict[str, Launch] = field(default_factory=dict)
    library_ops: list[str] = field(default_factory=list)
    wrote: bool = False
    """Whether kernels have stored anything that outputs could hold, in any call."""
    failed: Failed | None = None
    trial: Trial | None = None
    log: str = ""
    level: str = "none"
    build_seconds: float = 0.0
    time_seconds: float = 0.0
    waited: float = 0.0
    """Seconds in which others held the GPU; part of no stage."""
    timing: Timing | None = None
    environment: dict[str, str] = field(default_factory=dict)


def note_launches(attempt: Attempt, session: CandidateClient, facts: dict[str, Any]) -> None:
    attempt.wrote |= not facts.get("idle") and any(facts.get("facts", {}).get("written", {}).values())
    for one in facts.get("facts", {}).get("launches", []):
        name = str(one.get("kernel", "?"))
        before = attempt.launches.get(name, Launch(kernel=name, count=0))
        counters = dict(before.counters)
        for key, value in one.get("counters", {}).items():
            counters[str(key)] = counters.get(str(key), 0) + int(value)
        attempt.launches[name] = Launch(
            kernel=name,
            count=before.count + int(one.get("count", 1)),
            instructions=before.instructions + int(one.get("instructions", 0)),
            counters=counters,
            hotspots=_added_hotspots(before, session, name, one.get("hotspots", [])),
            memory=tuple(Touched(**m) for m in one.get("memory", [])[:100]) or before.memory,
        )


def _added_hotspots(
    before: Launch, session: CandidateClient, kernel: str, spots: Sequence[dict[str, Any]]
) -> tuple[Hotspot, ...]:
    """A kernel's hot spots with those of one more call, worst first."""
    sums = {(h.kind, h.line): h for h in before.hotspots}
    for one in spots:
        line = source_lines.of_kernel(session.candidate.text, session.requests, kernel, one["line"])
        new = Hotspot(**{**one, "line": line})
        old = sums.get((new.kind, line))
        if old is not None:
            total = {n: getattr(old, n) + getattr(new, n) for n in ("accesses", "actual", "ideal")}
            new = new.changed(**total)
        sums[new.kind, line] = new
    return tuple(sorted(sums.values(), key=lambda h: h.ideal - h.actual)[:MAX_HOTSPOTS])
