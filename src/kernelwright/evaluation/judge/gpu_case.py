"""Holds the state of one judgement on a GPU, and makes calls at full size.

The referee fills the inputs, the runner runs the candidate on them, and the referee compares the outputs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
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
"""Messages to referee and baseline that need no lease, since they compute nothing on the GPU: an exclusive request need
not wait for them."""
PROFILES = 4
"""The most times that a call is profiled while the profiler's records are incomplete."""


Outputs = Sequence[tuple[str, list[int]]]
"""The dtype and shape of each output."""


@dataclass
class GpuCase:
    """The state of one judgement on a GPU, while it holds a seat."""

    case: Case
    gpu: Gpu
    session: CandidateClient
    attempt: Attempt
    rng: np.random.Generator
    workload: Workload
    kinds: list[Distribution]
    layout: dict[str, Any] = field(default_factory=dict)
    kernels: list[Any] = field(default_factory=list)
    """The name, count and microseconds of each kernel in a profiled call."""
    span_ms: float = 0.0
    """Milliseconds from the start of that call's first kernel to the end of its last, by CUPTI; 0 if it saw none."""
    busy_ms: float = 0.0
    """Milliseconds of that span during which any kernel ran."""
    own_kernels: list[Any] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds by stage: the lease, the runner (by the way it was called), each kind of message to the referee."""
    model: tuple[TrialData, int] | None = None
    """Constructor arguments, weights and seed of the current model."""
    weights: str = "none"
    """The way in which the candidate's weights were set (see `runner.load_weights`)."""
    same_bits: bool | None = None
    """True if a repeated call gave the same bits; None if the first call's were not kept."""
    seen_by_profiler: bool = False
    """True if another runtime than ours launches the candidate's kernels, so that only a profiler sees them."""
    one_by_one: bool = False
    """True if the candidate's calls must be timed one by one."""
    ruler: list[float | None] | None = None
    """The rulers of a smaller size, for outputs too large to measure their own."""
    seat: Seat = field(init=False)
    turn: Literal["", "shared", "exclusive"] = ""
    """The lease that the judgement holds now; empty for none."""

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
        """Tells whether a baseline is timed together with the candidate."""
        return bool(self.options.baselines) and self.options.timing_seconds > 0

    def seed(self) -> int:
        return int(self.rng.integers(1, 2**31))

    @contextlib.contextmanager
    def has(self, turn: Literal["shared", "exclusive"]) -> Iterator[None]:
        """Holds a lease on the GPU, exclusive for what is timed. Within a held lease, keeps that one."""
        if self.turn:
            assert turn == "shared" or self.turn == "exclusive", "a shared lease cannot become exclusive"
            yield
            return
        started = time.monotonic()
        with self.gpu.lease.exclusive() if turn == "exclusive" else self.gpu.lease.shared():
            self.took("lease", started)
            began, self.turn = time.monotonic(), turn
            try:
                yield
            finally:
                self.turn = ""
                if turn == "exclusive":
                    self.took("alone", began)  # the name of the stage in stored evaluations

    def in_one(self) -> AbstractContextManager[None]:
        """Holds one shared lease for all that follows, if launches are replayed: each lease costs a wait.

        Otherwise each message takes a lease of its own, so that an exclusive request need not wait.
        """
        return self.has("shared") if self.replayed else contextlib.nullcontext()

    def ask(self, kind: str, **header: Any) -> Frame:
        """Returns the referee's answer, and adds the seconds to the stage of that kind."""
        with contextlib.nullcontext() if kind in IDLE else self.has("shared"):
            started = time.monotonic()
            try:
                return self.seat.referee.ask(self.task.task_id, {"kind": kind, **header})
            finally:
                self.took(kind, started)

    def baseline(self, kind: str, **header: Any) -> dict[str, Any]:
        """Returns the answer of the baseline process."""
        with contextlib.nullcontext() if kind in IDLE else self.has("shared"):
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
    """Fills inputs into the candidate's block, or the baseline's (`aside`).

    Returns the part of a message that gives their places.
    """
    answer = bench.referee("fill", distribution=kind, seeds=seeds, aside=aside)
    layout = bench.layout
    return {
        "calls": answer["calls"],
        "call_seed": seeds[-1] ^ 0x5EED,
        "inputs": layout["inputs"],
        "forms": layout["forms"],
        "changed": layout["changed"],
        "returned": len(layout["outputs"]) - len(layout["changed"]),
        "outputs": layout["outputs"],
        "stride": layout["stride"],
    }


@dataclass(frozen=True)
class CallWay:
    """The way in which the candidate is called at full size."""

    profile: bool = False
    """Under the profiler."""
    watch: bool = False
    """With all guards of a checked call."""
    reuse: bool = False
    """At the addresses of the checked call before, so that a result cached by address shows."""
    fresh: bool = False
    """With an allocator that was emptied before."""
    graph: bool = False
    """As replays of a CUDA graph."""
    late: bool = False
    """With each call's inputs copied into place right before it."""


PLAIN = CallWay()


def call(bench: GpuCase, kind: Distribution, seeds: list[int], way: CallWay = PLAIN) -> Ran:
    """Fills fresh inputs into the shared block, and calls the candidate on each slot."""
    facts = _called(bench, kind, seeds, way)
    for _ in range(PROFILES - 1):
        if not way.profile or facts.clock:
            break
        facts = _called(bench, kind, seeds, way)  # the profiler lost records
    return facts


def _called(bench: GpuCase, kind: Distribution, seeds: list[int], way: CallWay) -> Ran:
    header = {**filled(bench, kind, seeds, aside=False), **asdict(way)}
    with bench.has("exclusive" if way.profile or way.graph or way.late else "shared"):
        started = time.monotonic()
        try:
            return bench.session.run(header)
        finally:
            names = {"profiled": way.profile, "captured": way.graph, "late": way.late, "fresh": way.fresh}
            names["row"] = len(seeds) > 1
            bench.took(next((f"run {name}" for name, on in names.items() if on), "run"), started)


@dataclass(frozen=True)
class CheckWay:
    """The way in which the referee compares one call's outputs."""

    thorough: bool = False
    """With rulers of its own."""
    slot: int = 0
    call_seed: int | None = None
    """The seed of the call; None derives it from the input seed."""
    tiles: int = 0
    """A seed for a sample of the outputs; 0 compares them whole."""
    repeat: Literal["", "keep", "against"] = ""
    """`keep` keeps the outputs' bits, `against` compares with those kept."""


def compared(bench: GpuCase, kind: Distribution, seed: int, outputs: Outputs, way: CheckWay) -> WorkloadResult:
    """Returns the referee's comparison of one call's outputs."""
    if (other := _other_outputs(bench, kind, outputs)) is not None:
        return other
    answer = bench.referee(
        "check",
        slot=way.slot,
        distribution=kind,
        seed=seed,
        call_seed=seed ^ 0x5EED if way.call_seed is None else way.call_seed,
        thorough=way.thorough,
        tiles=way.tiles,
        tolerance=bench.task.tolerance,
        repeat=way.repeat,
    )
    if way.repeat == "against":
        bench.same_bits = answer["same_bits"]
    return _worst(bench, kind, answer["results"])


def compared_row(
    bench: GpuCase, kind: Distribution, seeds: list[int], outputs: Outputs, call_seed: int, first: int = 0
) -> list[WorkloadResult]:
    """Compares a row of calls, one per slot from `first` on, up to the first wrong one."""
    if (other := _other_outputs(bench, kind, outputs)) is not None:
        return [other]
    asked = {"distribution": kind, "seeds": seeds, "call_seed": call_seed, "tolerance": bench.task.tolerance}
    answer = bench.referee("check_row", **asked, first=first, thorough=False)
    return [_worst(bench, kind, results) for results in answer["rows"]]


def _worst(bench: GpuCase, kind: Distribution, results: list[dict[str, Any]]) -> WorkloadResult:
    """Returns one call's result: that of its first wrong output, else of the one with the largest error."""
    if not results:
        return _result(bench, kind, passed=False, reason="the reference returns no output")
    worst = next((r for r in results if not r["passed"]), None)
    worst = worst or max(results, key=lambda r: r["max_rel_error"] / r["tolerance"] if r["tolerance"] else 0.0)
    return _result(bench, kind, **worst)


def _result(bench: GpuCase, kind: Distribution, **more: Any) -> WorkloadResult:
    about: dict[str, Any] = {"name": bench.workload.name, "scope": "declared", "distribution": kind}
    return WorkloadResult(**about, shape=bench.layout["shapes"], dtype=bench.layout["dtypes"], **more)


def _other_outputs(bench: GpuCase, kind: Distribution, outputs: Outputs) -> WorkloadResult | None:
    """Returns a failed result if shapes or dtypes differ from the reference's, else None."""
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
