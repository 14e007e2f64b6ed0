"""Timing by launches alone, with a GPU that is had alone for nothing but the clock.

Contents of all calls of a pass are laid out in the shared blocks before, beside other judgements, and outputs are
looked at after, likewise. In between, candidate and baseline take turns in the order A B B A, as in `timing`, each row
of calls on contents that nobody has seen. Only where launches are repeated (`launches_alone`): host code of a
candidate's could read what lies there for later calls.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge import timing
from kernelwright.evaluation.judge.gpu_case import GpuCase, Outputs, compared, compared_row, filled
from kernelwright.evaluation.judge.launches_alone import ReplayClient
from kernelwright.evaluation.judge.timing import SHORT_MS, VERIFY_ALL, TimedSamples
from kernelwright.evaluation.processes.messages import CallTimes
from kernelwright.records import Distribution, WorkloadResult

ROW, FEWEST_IN_ROW = 12, 3
"""Calls of a row, the first of which is not timed, at most and at least."""
SLOTS = [3 * ROW + 1, 3 * FEWEST_IN_ROW + 1, 2]
"""In a block, the best number first: a call by itself and three rows, or two calls where they are large."""
PERHAPS_MS = 2.0
"""Calls that take less beside others may be short when nothing else is computed."""
MOST_PASSES = 200
_KIND: Distribution = "own"


@dataclass(frozen=True)
class Clocked:
    """The clock's answer on a row of calls: their times, those of the copies of late inputs, and whether launches
    changed nothing."""

    times: CallTimes
    copies: CallTimes
    idle: bool = False


@dataclass(frozen=True)
class Pass:
    """What lies in the slots: a call by itself and three rows of `count`, or (`count` 1) calls one by one; seeds, and
    the message for all of them, by block (`candidate`, `aside`)."""

    count: int
    seeds: list[int]
    blocks: dict[str, dict[str, Any]]

    def part(self, who: str, first: int, count: int) -> dict[str, Any]:
        """The message for `count` calls from slot `first` on."""
        where = self.blocks["candidate" if who == "candidate" else "aside"]

        def moved(places: list[Any]) -> list[Any]:
            return [[offset + first * where["stride"], *form] for offset, *form in places]

        calls = where["calls"][first : first + count]
        return {**where, "calls": calls, "inputs": moved(where["inputs"]), "outputs": moved(where["outputs"])}


def timed(bench: GpuCase) -> None:
    """Sets `attempt.timing`, or `attempt.failed` where a timed call was wrong or a time cannot be."""
    turn = ["candidate", *bench.options.baselines]
    slots = bench.layout["slots"]
    if set(turn) - {"candidate", "eager"} or slots < 2:
        _in_the_usual_way(bench)  # what is compiled chooses kernels by the clock
        return
    with bench.in_one():
        before = bench.referee("facts")["device"]
        perhaps = all(took < PERHAPS_MS for took in timing.begin(bench, turn, 1))
        count = min(ROW, (slots - 1) // 3) if perhaps else 1
        count = count if count >= FEWEST_IN_ROW else 1
        if count > 1:
            timing.begin(bench, turn, count, fresh=False)  # emptied a moment ago
        if bench.attempt.failed is not None:
            return
        laid = _laid(bench, count)
    samples, stop = TimedSamples(turn), time.monotonic() + bench.options.timing_seconds
    for _ in range(MOST_PASSES):
        _passed(bench, laid, turn, samples)
        if bench.attempt.failed is not None:
            return
        if timing.over(samples, bench.options, stop):
            break
        laid = _laid(bench, count if samples.alone else 1)
    timing.conclude(bench, samples, before)


def _in_the_usual_way(bench: GpuCase) -> None:
    """Contents are made and outputs looked at while the GPU is had alone. Nothing there tells what kernels add to what
    is filled and copied."""
    if isinstance(bench.session, ReplayClient) and bench.session.trace["moves"]:
        bench.attempt.failed = Failed("unsupported", "it fills or copies, and its calls are not laid out")
    elif bench.attempt.failed is None:
        timing.timed(bench)


def _laid(bench: GpuCase, count: int) -> Pass:
    """Contents for a call by itself and three rows of so many, or for two calls and those that follow where the first
    two leave doubts, in both blocks."""
    seeds = timing.new_seeds(bench, 3 * count + 1 if count > 1 else min(6, bench.layout["slots"] // 2 * 2))
    with bench.in_one():
        blocks = {name: filled(bench, _KIND, seeds, aside=name == "aside") for name in ("candidate", "aside")}
    return Pass(count, seeds, blocks)


def _passed(bench: GpuCase, laid: Pass, turn: list[str], samples: TimedSamples) -> None:
    """All take their turns, and the outputs are looked at."""
    with bench.has("alone"):
        began = time.monotonic()
        if laid.count > 1:
            for who in turn:
                alone = _measured(bench, laid, who, 0, 1).times.device_ms
                samples.alone[who] = min(alone, samples.alone.get(who, alone))
        if laid.count > 1 and max(samples.alone.values()) < SHORT_MS:
            used = _in_rows(bench, laid, turn, samples)
        else:
            samples.alone.clear()
            used = _one_by_one(bench, laid, turn, samples)
        bench.attempt.time_seconds += time.monotonic() - began
    with bench.in_one():
        wrong = next((result for result in _looked_at(bench, laid, used) if not result.passed), None)
    if wrong is not None:
        bench.attempt.results.append(wrong)
        bench.attempt.failed = Failed("wrong", f"in a timed call: {wrong.reason}"[:500])


def _in_rows(bench: GpuCase, laid: Pass, turn: list[str], samples: TimedSamples) -> int:
    """Two rows each, there and back again, and one whose inputs come late; how many slots were used."""
    count, extra = laid.count, timing.launch_extra(bench)
    for first, order in ((1, turn), (1 + count, turn[::-1])):
        for who in order:
            times = _measured(bench, laid, who, first, count).times
            samples.add(who, times, extra if who == "candidate" else 0.0)
    facts = _measured(bench, laid, "candidate", 1 + 2 * count, count, late=True)
    samples.late = facts.times, facts.copies
    _own_share(bench, laid, 1, count, samples)
    return 1 + 3 * count


def _one_by_one(bench: GpuCase, laid: Pass, turn: list[str], samples: TimedSamples) -> int:
    """Two calls each, there and back again, and two more while there are doubts; how many slots were used."""
    first = used = 1 if laid.count > 1 else 0
    while used + 2 <= len(laid.seeds):
        for slot, order in ((used, turn), (used + 1, turn[::-1])):
            for who in order:
                samples.add(who, _measured(bench, laid, who, slot, 1).times, 0.0)
        used += 2
        if samples.enough(bench.options.timing_seconds):
            break
    _own_share(bench, laid, first, 1, samples)
    return used


def _own_share(bench: GpuCase, laid: Pass, first: int, count: int, samples: TimedSamples) -> None:
    """How much of a call's time on the device is not torch's, which fills and copies."""
    share, session = 1.0, bench.session
    if isinstance(session, ReplayClient) and session.trace["moves"] and samples.times["candidate"]:
        facts = _measured(bench, laid, "candidate", first, count, moves=True)
        share = max(0.0, 1.0 - facts.times.device_ms / min(samples.times["candidate"]))
        if facts.idle:
            bench.attempt.failed = Failed("rejected", "its outputs are the same without its kernels")
    bench.attempt.note(own_kernel_share=round(share, 3))


def _measured(bench: GpuCase, laid: Pass, who: str, first: int, count: int, **way: bool) -> Clocked:
    """Times some of the calls, which take the slots from `first` on; the candidate's in a `way` that a replayer knows,
    `late` or only `moves`."""
    header = laid.part(who, first, count)
    started = time.monotonic()
    if who != "candidate":
        times = CallTimes.model_construct(**bench.baseline("time", baseline=who, fresh=False, **header)["times"])
        return Clocked(times, times)
    usual = dict.fromkeys(("profile", "watch", "reuse", "fresh", "graph", "late"), False)
    try:
        ran = bench.session.run({**header, **usual, **way})
    finally:
        bench.took("run late" if "late" in way else "run row" if count > 1 else "run", started)
    return Clocked(ran.times, ran.copies, ran.idle)


def _looked_at(bench: GpuCase, laid: Pass, used: int) -> list[WorkloadResult]:
    """What the candidate's calls have left in so many slots: the whole of small outputs, a sample of large ones, of one
    the whole now and then."""
    seeds = laid.seeds[:used]
    call_seed, outputs = laid.blocks["candidate"]["call_seed"], _forms(bench)
    if timing.outputs_of(bench) <= VERIFY_ALL:
        return compared_row(bench, _KIND, seeds, outputs, call_seed)
    whole = bench.rng.integers(0, 2 * len(seeds))
    return [
        compared(
            bench,
            _KIND,
            seed,
            outputs,
            thorough=False,
            slot=slot,
            call_seed=call_seed,
            tiles=0 if slot == whole else bench.seed(),
        )
        for slot, seed in enumerate(seeds)
    ]


def _forms(bench: GpuCase) -> Outputs:
    return [(dtype, shape) for _, dtype, shape in bench.layout["outputs"]]
