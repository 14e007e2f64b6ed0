"""Times repeated programs, with an exclusive lease only while the clock runs.

Contents of all calls of a pass are laid out in the shared blocks before, and outputs are verified after, both under a
shared lease. In between, candidate and baseline take turns in the order A B B A, as in `timing`, each row of calls on
contents that neither has seen. This works only if programs are repeated (`repeated_program`): a candidate's host code
could read the contents of later calls.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge import timing
from kernelwright.evaluation.judge.gpu_case import PLAIN, CheckWay, GpuCase, Outputs, compared, compared_row, filled
from kernelwright.evaluation.judge.repeated_program import RepeatedProgram
from kernelwright.evaluation.judge.timing import SHORT_MS, VERIFY_ALL, TimedSamples
from kernelwright.evaluation.processes.messages import CallTimes
from kernelwright.records import Distribution, WorkloadResult

ROW, FEWEST_IN_ROW = 12, 3
"""The most and fewest calls of a row, including its first, which is not timed."""
SLOTS = [3 * ROW + 1, 3 * FEWEST_IN_ROW + 1, 2]
"""Slot counts of a block, the preferred first: a single call and three rows; two calls if they are large."""
PERHAPS_MS = 2.0
"""Calls below this under a shared lease may be short under an exclusive one."""
MOST_PASSES = 200
_KIND: Distribution = "own"


@dataclass(frozen=True)
class Clocked:
    """The measurement of a row of calls: their times, the times of copies of late inputs, and whether launches changed
    no output (`idle`)."""

    times: CallTimes
    copies: CallTimes
    idle: bool = False


@dataclass(frozen=True)
class Pass:
    """The contents of the slots: a single call and three rows of `count`, or single calls (`count` 1).

    Holds the seeds, and the message for all calls by block (`candidate`, `aside`).
    """

    count: int
    seeds: list[int]
    blocks: dict[str, dict[str, Any]]

    def part(self, who: str, first: int, count: int) -> dict[str, Any]:
        """Returns the message for `count` calls from slot `first` on."""
        where = self.blocks["candidate" if who == "candidate" else "aside"]

        def moved(places: list[Any]) -> list[Any]:
            return [[offset + first * where["stride"], *form] for offset, *form in places]

        calls = where["calls"][first : first + count]
        return {**where, "calls": calls, "inputs": moved(where["inputs"]), "outputs": moved(where["outputs"])}


def timed(bench: GpuCase) -> None:
    """Sets `attempt.timing`, or `attempt.failed` if a timed call was wrong or a time is impossible."""
    turn = ["candidate", *bench.options.baselines]
    slots = bench.layout["slots"]
    if set(turn) - {"candidate", "eager"} or slots < 2:
        _in_the_usual_way(bench)  # compiled baselines choose kernels by timing them
        return
    with bench.in_one():
        before = bench.referee("facts")["device"]
        perhaps = all(took < PERHAPS_MS for took in timing.begin(bench, turn, 1))
        count = min(ROW, (slots - 1) // 3) if perhaps else 1
        count = count if count >= FEWEST_IN_ROW else 1
        if count > 1:
            timing.begin(bench, turn, count, fresh=False)  # the allocator was emptied a moment ago
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
    """Times as `timing` does, which fills inputs and verifies outputs under the exclusive lease.

    That path cannot separate the kernels' share from fills and copies, so candidates that use them are `unsupported`.
    """
    if isinstance(bench.session, RepeatedProgram) and bench.session.moves:
        bench.attempt.failed = Failed("unsupported", "it fills or copies, and its calls are not laid out")
    elif bench.attempt.failed is None:
        timing.timed(bench)


def _laid(bench: GpuCase, count: int) -> Pass:
    """Fills both blocks with contents for a single call and three rows of `count`.

    With `count` 1, fills contents for two calls, and for up to four more in case the first two are doubtful.
    """
    seeds = timing.new_seeds(bench, 3 * count + 1 if count > 1 else min(6, bench.layout["slots"] // 2 * 2))
    with bench.in_one():
        blocks = {name: filled(bench, _KIND, seeds, aside=name == "aside") for name in ("candidate", "aside")}
    return Pass(count, seeds, blocks)


def _passed(bench: GpuCase, laid: Pass, turn: list[str], samples: TimedSamples) -> None:
    """Times candidate and baselines in turn, and verifies the outputs."""
    with bench.has("exclusive"):
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
    """Times two rows each, in order and reversed, and one with late inputs. Returns the number of slots used."""
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
    """Times two calls each, in order and reversed, and two more while they are doubtful. Returns the slots used."""
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
    """Measures the share of a call's device time that is not torch's fills and copies."""
    share, session = 1.0, bench.session
    if isinstance(session, RepeatedProgram) and session.moves and samples.times["candidate"]:
        facts = _measured(bench, laid, "candidate", first, count, moves=True)
        share = max(0.0, 1.0 - facts.times.device_ms / min(samples.times["candidate"]))
        if facts.idle:
            bench.attempt.failed = Failed("rejected", "its outputs are the same without its kernels")
    bench.attempt.note(own_kernel_share=round(share, 3))


def _measured(bench: GpuCase, laid: Pass, who: str, first: int, count: int, **way: bool) -> Clocked:
    """Times `count` calls in the slots from `first` on.

    For the candidate, `way` is one that a replayer knows: `late`, or `moves` for fills and copies only.
    """
    header = laid.part(who, first, count)
    started = time.monotonic()
    if who != "candidate":
        times = CallTimes.model_construct(**bench.baseline("time", baseline=who, fresh=False, **header)["times"])
        return Clocked(times, times)
    try:
        ran = bench.session.run({**header, **asdict(PLAIN), **way})
    finally:
        bench.took("run late" if "late" in way else "run row" if count > 1 else "run", started)
    return Clocked(ran.times, ran.copies, ran.idle)


def _looked_at(bench: GpuCase, laid: Pass, used: int) -> list[WorkloadResult]:
    """Verifies the candidate's outputs in the first `used` slots.

    Small outputs are verified whole, large ones on a sample; in half of the passes one of them whole.
    """
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
            CheckWay(slot=slot, call_seed=call_seed, tiles=0 if slot == whole else bench.seed()),
        )
        for slot, seed in enumerate(seeds)
    ]


def _forms(bench: GpuCase) -> Outputs:
    return [(dtype, shape) for _, dtype, shape in bench.layout["outputs"]]
