"""What one judgement on a GPU works with, and a call at full size: inputs from the referee, run, compared by it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from kernelwright.evaluation.case import Case
from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.channel import Frame
from kernelwright.evaluation.processes.gpu_seats import Gpu, Seat
from kernelwright.evaluation.processes.messages import Ran
from kernelwright.evaluation.trials import TrialData
from kernelwright.records import Distribution, LibraryRule, Task, Workload, WorkloadResult

IDLE = frozenset(("construct", "reweigh", "facts", "release"))
"""Questions to referee and baselines that want no turn on the GPU, since nothing is computed there: whoever wants to
have it alone need not wait for them."""
PROFILES = 4
"""So many times at most a call is profiled whose records are not whole."""


Outputs = Sequence[tuple[str, list[int]]]
"""Dtype and shape of each output."""


@dataclass
class GpuCase:
    """What one judgement on a GPU works with, while it has a seat."""

    case: Case
    gpu: Gpu
    session: CandidateClient
    attempt: Attempt
    rng: np.random.Generator
    workload: Workload
    kinds: list[Distribution]
    layout: dict[str, Any] = field(default_factory=dict)
    kernels: list[Any] = field(default_factory=list)
    """Name, count and microseconds of each kernel in a profiled call."""
    span_ms: float = 0.0
    """From the start of that call's first kernel to the end of its last, by CUPTI; 0 where it was not seen."""
    busy_ms: float = 0.0
    """For how much of that time any kernel ran."""
    own_kernels: list[Any] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds by what was waited for: the lease, the runner (by how it was called), kinds of questions to referees."""
    model: tuple[TrialData, int] | None = None
    """Constructor arguments, weights and seed of the model that is checked and timed now."""
    weights: str = "none"
    """How the candidate's weights were set (see `runner.load_weights`)."""
    same_bits: bool | None = None
    """Whether a repeated call gave the same bits; None where they were not kept."""
    seen_by_profiler: bool = False
    """Whether the candidate's kernels are launched by others than our runtime, so that only a profiler sees them."""
    one_by_one: bool = False
    """Whether the candidate's calls must be timed one by one."""
    ruler: list[float | None] | None = None
    """The rulers of a smaller size, for outputs that are too large to have their own."""
    seat: Seat = field(init=False)
    turn: Literal["", "beside", "alone"] = ""
    """How it has the GPU now."""

    @property
    def task(self) -> Task:
        return self.case.task

    @property
    def options(self) -> EvalOptions:
        return self.case.options

    @property
    def policy(self) -> LibraryRule:
        """The library rule."""
        return self.case.rule

    @property
    def replayed(self) -> bool:
        """See `CandidateClient.replayed`."""
        return self.session.replayed

    @property
    def timed(self) -> bool:
        """Whether a baseline is timed beside the candidate."""
        return bool(self.options.baselines) and self.options.timing_seconds > 0

    def seed(self) -> int:
        return int(self.rng.integers(1, 2**31))

    @contextlib.contextmanager
    def has(self, turn: Literal["beside", "alone"]) -> Iterator[None]:
        """A turn on the GPU, alone for what is timed; within another turn, that one."""
        if self.turn:
            assert turn == "beside" or self.turn == "alone", "what others compute beside cannot be told to stop"
            yield
            return
        started = time.monotonic()
        with self.gpu.lease.alone() if turn == "alone" else self.gpu.lease.beside():
            self.took("lease", started)
            began, self.turn = time.monotonic(), turn
            try:
                yield
            finally:
                self.turn = ""
                if turn == "alone":
                    self.took("alone", began)

    def in_one(self) -> AbstractContextManager[None]:
        """One turn beside others for all that follows, where launches are repeated: each turn is waited for. Otherwise
        every question has a turn of its own, so that who wants the GPU alone need not wait."""
        return self.has("beside") if self.replayed else contextlib.nullcontext()

    def ask(self, kind: str, **header: Any) -> Frame:
        """The referee's answer; the seconds are kept by kind."""
        with contextlib.nullcontext() if kind in IDLE else self.has("beside"):
            started = time.monotonic()
            try:
                return self.seat.referee.ask(self.task.task_id, {"kind": kind, **header})
            finally:
                self.took(kind, started)

    def baseline(self, kind: str, **header: Any) -> dict[str, Any]:
        """The answer of the baselines' child."""
        with contextlib.nullcontext() if kind in IDLE else self.has("beside"):
            started = time.monotonic()
            try:
                return self.seat.baseline.ask(self.task.task_id, {"kind": kind, **header}).header
            finally:
                self.took("baseline", started)

    def referee(self, kind: str, **header: Any) -> dict[str, Any]:
        return self.ask(kind, **header).header

    def took(self, stage: str, started: float) -> None:
        self.stages[stage] = self.stages.get(stage, 0.0) + time.monotonic() - started


def filled(bench: GpuCase, kind: Distribution, seeds: list[int], aside: bool) -> dict[str, Any]:
    """Inputs in the candidate's block, or (`aside`) the baselines': the part of a message that says what lies where."""
    answer = bench.referee("fill", distribution=kind, seeds=seeds, aside=aside)
    layout = bench.layout
    return {
        "calls": answer["calls"],
        "call_seed": seeds[-1] ^ 0x5EED,
        "inputs": layout["inputs"],
        "outputs": layout["outputs"],
        "stride": layout["stride"],
    }


def call(
    bench: GpuCase,
    kind: Distribution,
    seeds: list[int],
    profile: bool = False,
    watch: bool = False,
    reuse: bool = False,
    fresh: bool = False,
    graph: bool = False,
    late: bool = False,
) -> Ran:
    """Fresh inputs into the shared block, and a call of the candidate on each slot's.

    With `reuse` at the addresses of the checked call before, so that a result remembered by address shows; with `fresh`
    from an allocator that holds nothing; with `graph` as replays of a CUDA graph; with `late` each one's inputs come to
    their place only right before it.
    """
    asked = {"profile": profile, "watch": watch, "reuse": reuse, "fresh": fresh, "graph": graph, "late": late}
    facts = _called(bench, kind, seeds, asked)
    for _ in range(PROFILES - 1):
        if not profile or facts.clock:
            break
        facts = _called(bench, kind, seeds, asked)  # the profiler has lost records
    return facts


def _called(bench: GpuCase, kind: Distribution, seeds: list[int], asked: dict[str, bool]) -> Ran:
    header = {**filled(bench, kind, seeds, aside=False), **asked}
    profile, graph, late, fresh = (asked[name] for name in ("profile", "graph", "late", "fresh"))
    with bench.has("alone" if profile or graph or late else "beside"):
        started = time.monotonic()
        try:
            return bench.session.run(header)
        finally:
            ways = {"profiled": profile, "captured": graph, "late": late, "fresh": fresh, "row": len(seeds) > 1}
            bench.took(next((f"run {name}" for name, on in ways.items() if on), "run"), started)


def compared(
    bench: GpuCase,
    kind: Distribution,
    seed: int,
    outputs: Outputs,
    thorough: bool,
    slot: int = 0,
    call_seed: int | None = None,
    tiles: int = 0,
    repeat: Literal["", "keep", "against"] = "",
) -> WorkloadResult:
    """The referee's comparison of one call's outputs, as a result; with `tiles`, a seed, of a sample of them."""
    if (other := _other_outputs(bench, kind, outputs)) is not None:
        return other
    answer = bench.referee(
        "check",
        slot=slot,
        distribution=kind,
        seed=seed,
        call_seed=seed ^ 0x5EED if call_seed is None else call_seed,
        thorough=thorough,
        tiles=tiles,
        tolerance=bench.task.tolerance,
        repeat=repeat,
    )
    if repeat == "against":
        bench.same_bits = answer["same_bits"]
    return _worst(bench, kind, answer["results"])


def compared_row(
    bench: GpuCase, kind: Distribution, seeds: list[int], outputs: Outputs, call_seed: int, first: int = 0
) -> list[WorkloadResult]:
    """The same for a row of calls, one a slot from the `first` on, up to the first that is wrong."""
    if (other := _other_outputs(bench, kind, outputs)) is not None:
        return [other]
    asked = {"distribution": kind, "seeds": seeds, "call_seed": call_seed, "tolerance": bench.task.tolerance}
    answer = bench.referee("check_row", **asked, first=first, thorough=False)
    return [_worst(bench, kind, results) for results in answer["rows"]]


def _worst(bench: GpuCase, kind: Distribution, results: list[dict[str, Any]]) -> WorkloadResult:
    """One call's result out of those of its outputs."""
    if not results:
        return _result(bench, kind, passed=False, reason="the reference returns no output")
    worst = next((r for r in results if not r["passed"]), None)
    worst = worst or max(results, key=lambda r: r["max_rel_error"] / r["tolerance"] if r["tolerance"] else 0.0)
    return _result(bench, kind, **worst)


def _result(bench: GpuCase, kind: Distribution, **more: Any) -> WorkloadResult:
    about: dict[str, Any] = {"name": bench.workload.name, "scope": "declared", "distribution": kind}
    return WorkloadResult(**about, shape=bench.layout["shapes"], dtype=bench.layout["dtypes"], **more)


def _other_outputs(bench: GpuCase, kind: Distribution, outputs: Outputs) -> WorkloadResult | None:
    """What to say of outputs of other shapes or dtypes than the reference's; None where they are alike."""
    expected = [[dtype, shape] for _, dtype, shape in bench.layout["outputs"]]
    got = [list(one) for one in outputs]
    if got == expected:
        return None
    return _result(bench, kind, passed=False, reason=_difference(got, expected))


def _difference(got: list[list[Any]], expected: list[list[Any]]) -> str:
    if len(got) != len(expected):
        return f"the reference returns {len(expected)} outputs, the candidate {len(got)}"
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        if one[1] != other[1]:
            return f"output {index} has shape {one[1]}, expected {other[1]}"
        if one[0] != other[0]:
            return f"output {index} has dtype {one[0]}, expected {other[0]}"
    return ""
