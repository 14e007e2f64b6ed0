"""Times candidate and baselines on a GPU in the order A B B A, until the interval is narrow or the time is over.

Every call gets contents that it has not seen, with a cold L2, and its outputs are verified. Each measurement is
compared with a second clock (CUPTI's span over all streams, the host's around the device) and with the card's physical
floor.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from kernelwright.errors import TaskError
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge import hardware_limits, intervals, rules
from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.judge.gpu_case import (
    CallWay,
    CheckWay,
    GpuCase,
    Outputs,
    call,
    compared,
    compared_row,
    filled,
)
from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.processes.gpu_seats import TooLarge
from kernelwright.evaluation.processes.messages import CallTimes, Ran
from kernelwright.records import BeforeAfter, Distribution, Finding, Timing, WorkloadResult

VERIFY_ALL = 1 << 22
"""Outputs of up to this many elements are verified whole after every timed call. Larger ones are verified whole after a
random quarter of the calls, and on a sample of tiles after the others."""
FEWEST_SAMPLES, MOST_ROUNDS = 10, 200
SHORT_MS = 0.2
GRAPHS_FROM = 1.0
"""Seconds of timing from which CUDA graphs are captured, too. Less time suggests that many candidates are judged."""
SLACK_SAMPLES = 30
"""A candidate is rejected for work off its stream only if all of this many calls show it."""
SPAN_SAMPLES, ROW_SAMPLES = 5, 3
_FASTEST_LAUNCH = 0.35
"""The least time of a kernel as a share of an empty launch's: nodes of a graph follow each other faster."""
_MOST_BUSY, _SLACK_BUSY_MS = 1.3, 0.001
MOST_EXTRA_MS, MOST_LAUNCHES = 0.0004, 64
BURST_SAMPLES = 8
_BURST_SHARE, _BURST_SLACK_MS = 0.4, 0.01
"""A back-to-back call takes at least this share of a single call's time, apart from the cost of measuring."""
_LATE_SHARE = 1.5
"""With late inputs, a call takes at most this multiple of its time, plus the host's time to start the copies."""
STALLED = 1.25
"""A median of few samples that exceeds this multiple of the least is checked by more samples."""
DOUBT_MS, MOST_DOUBTS = 200.0, 4.0
"""Stop re-checking noisy timings after 200 ms of calls or four times the timing budget, whichever is later. Otherwise
ten calls of a second each would be waited for."""
NARROW = 0.006
"""The interval's whole width, relative to the ratio, at which timing ends early."""


CLEAR_SAMPLES, CLEARLY = 4, 1.5
"""Samples of each side, all of the candidate's this many times as long as any of the baseline's, that end timing."""


class TimedSamples:
    """The times that count, of the candidate and each baseline, in milliseconds per call."""

    def __init__(self, names: list[str]) -> None:
        self.times: dict[str, list[float]] = {name: [] for name in names}
        self.slacks: dict[str, list[float]] = {name: [] for name in names}
        self.hidden = dict.fromkeys(names, False)
        self.issues: list[float] = []
        self.alone: dict[str, float] = {}
        """The least time of a single call, if calls are measured back-to-back."""
        self.spent_ms = 0.0
        """The sum of one call's time over all measurements, including those that do not count."""
        self.late: tuple[CallTimes, CallTimes] | None = None
        """The times of a row with late inputs, and of their copies, if they are measured already."""

    def clear(self) -> None:
        """Drops samples that were measured in another way than those to come."""
        for kept in (*self.times.values(), *self.slacks.values()):
            kept.clear()
        self.hidden = dict.fromkeys(self.hidden, False)

    def add(self, who: str, times: CallTimes, extra: float) -> None:
        """Adds one measurement. Drops those in which the device waited for the host, once one without a wait exists."""
        self.spent_ms += times.device_ms
        if not times.hidden and self.hidden[who]:
            return
        if times.hidden and not self.hidden[who]:
            self.times[who].clear()
        self.hidden[who] = times.hidden
        self.times[who].append(times.device_ms - extra)
        self.slacks[who].append(times.slack_ms)
        if who == "candidate":
            self.issues.append(times.issue_ms)

    def fewest(self) -> int:
        return min(len(s) for s in self.times.values())

    def doubtful(self) -> bool:
        """Tells whether a median rests on few samples and lies far above the least, so that it may be a stall."""
        kept = [sorted(s) for s in self.times.values()]
        return self.fewest() < FEWEST_SAMPLES and any(len(s) < 2 or s[len(s) // 2] > STALLED * s[0] for s in kept)

    def enough(self, seconds: float) -> bool:
        """Tells whether the samples suffice for a budget of `seconds`: no doubts, or re-checking took too long."""
        most = max(DOUBT_MS, MOST_DOUBTS * seconds * 1e3)
        return self.fewest() > 0 and (not self.doubtful() or self.spent_ms > most)

    def short(self) -> bool:
        return bool(max(np.median(s) for s in self.times.values()) < SHORT_MS)


def timed(bench: GpuCase) -> None:
    """Sets `attempt.timing`, or `attempt.failed` if a timed call was wrong or a time is impossible.

    First calls hold a shared lease, except those of compiled baselines, which choose kernels by timing them.
    """
    before = bench.referee("facts")["device"]
    turn = ["candidate", *bench.options.baselines]
    tuned = [name for name in turn if name not in ("candidate", "eager")]
    begun = [name for name in turn if name not in tuned]
    if all(took < SHORT_MS for took in begin(bench, begun, 1)) and _rows(bench):
        begin(bench, begun, bench.layout["slots"])  # short even under a shared lease: they will be measured in rows
    else:
        begun = []
    if bench.attempt.failed is not None:
        return
    with bench.has("exclusive"):
        started = time.monotonic()
        begin(bench, tuned, 1)
        _rounds(bench, turn, [name for name in turn if name not in begun], before)
        bench.attempt.time_seconds = time.monotonic() - started


def _rows(bench: GpuCase) -> bool:
    """Tells whether short calls can be measured in rows, as many at once as the shared block has slots."""
    return not bench.one_by_one and bench.layout["slots"] > 2


def _rounds(bench: GpuCase, turn: list[str], to_begin: list[str], before: dict[str, Any]) -> None:
    """Runs all rounds that count.

    `to_begin` names those not yet called in rows; `before` holds the device's facts from before timing.
    """
    attempt, options = bench.attempt, bench.options
    samples = TimedSamples(turn)
    batch, extra = 1, launch_extra(bench)
    stop = time.monotonic() + options.timing_seconds
    for index in range(MOST_ROUNDS):
        for who, seeds in _round(bench, turn, batch):
            if attempt.failed is not None:
                return
            times = _times(bench, who, seeds)
            if attempt.failed is not None:
                return
            if bench.one_by_one and batch > 1:
                batch = 1
                samples.clear()
                break
            samples.add(who, times, extra if who == "candidate" and batch > 1 else 0.0)
        if index == 0 and samples.short() and _rows(bench):
            batch = bench.layout["slots"]
            samples.alone = {name: min(times) for name, times in samples.times.items()}
            samples.clear()
            begin(bench, to_begin, batch)
        if over(samples, options, stop):
            break
    conclude(bench, samples, before)


def conclude(bench: GpuCase, samples: TimedSamples, before: dict[str, Any]) -> None:
    """Sets `attempt.timing`, or `attempt.failed` if the times are impossible."""
    attempt, after = bench.attempt, bench.referee("facts")["device"]
    _note_clocks(attempt, before, after)
    attempt.note(issue_ms=round(float(np.median(samples.issues)), 4))
    attempt.timing = _timing(samples.times, bench.options, bench.span_ms)
    _suspicious(bench, samples, before)


def begin(bench: GpuCase, turn: list[str], count: int, fresh: bool = True) -> list[float]:
    """Makes warm-up calls of each, which do not count; `fresh` empties the allocator before.

    Compiling belongs here, and its time does not count towards `timing_seconds`. Returns rough milliseconds per call.
    """
    seeds, found = new_seeds(bench, count), []
    for who in turn:
        if bench.attempt.failed is None:
            found.append(_times(bench, who, seeds, fresh=fresh).device_ms)
    return found


def _round(bench: GpuCase, turn: list[str], count: int) -> Iterator[tuple[str, list[int]]]:
    """Yields the next name to time with the seeds of `count` calls: in order, then reversed, each with new contents."""
    for order in (turn, turn[::-1]):
        seeds = new_seeds(bench, count)
        for who in order:
            yield who, seeds


def new_seeds(bench: GpuCase, count: int) -> list[int]:
    return [bench.seed() for _ in range(count)]


def launch_extra(bench: GpuCase) -> float:
    """Returns the milliseconds of a short call that its launches cost more in this process than in the baseline's.

    Both launch costs were measured before the candidate was loaded. See `devices.launch_cost`.
    """
    other = bench.seat.baseline.child
    more = bench.session.launch_ms - (other.launch_ms if other else 0.0)
    launches = min(MOST_LAUNCHES, sum(k[1] for k in bench.kernels))
    bench.attempt.note(launch_us=round(bench.session.launch_ms * 1e3, 3), launches_a_call=launches)
    return launches * max(-MOST_EXTRA_MS, min(MOST_EXTRA_MS, more))


def _times(bench: GpuCase, who: str, seeds: list[int], fresh: bool = False) -> CallTimes:
    """Times the candidate or a baseline on contents that it has not seen; verifies the candidate's outputs."""
    kind: Distribution = "own"
    if who != "candidate":
        where = filled(bench, kind, seeds, aside=True)
        answer = bench.baseline("time", baseline=who, fresh=fresh, **where)
        return CallTimes.model_construct(**answer["times"])
    facts = call(bench, kind, seeds, CallWay(fresh=fresh))
    if facts.same_memory:
        # Calls that return one buffer cannot be verified together.
        bench.one_by_one = True
        return _times(bench, who, new_seeds(bench, 1), fresh)
    _verify(bench, kind, seeds, facts.outputs)
    if bench.session.live and bench.attempt.failed is None:
        _by_the_rules(bench, facts)
    return facts.times


def _by_the_rules(bench: GpuCase, facts: Ran) -> None:
    """Applies the rules of a checked call to a timed one, whose time has no part of what its host computes."""
    shared = rules.Shared(bench.layout["handed"], bench.layout["changed"])
    found = rules.call_findings(facts, bench.policy, bench.layout["largest_input"], bench.workload.name, shared)
    broken = next((finding for finding in found if finding.severity == "reject"), None)
    if broken is not None:
        bench.attempt.findings.append(broken)
        bench.attempt.failed = Failed("rejected", f"in a timed call: {broken.rule}: {broken.evidence}"[:500], broken)


def _verify(bench: GpuCase, kind: Distribution, seeds: list[int], outputs: Outputs) -> None:
    """Verifies the outputs of timed calls. Sets `attempt.failed`."""
    call_seed = seeds[-1] ^ 0x5EED
    if outputs_of(bench) <= VERIFY_ALL:
        results = compared_row(bench, kind, seeds, outputs, call_seed)
    else:
        results = [_looked_at(bench, kind, seed, outputs, slot, call_seed) for slot, seed in enumerate(seeds)]
    wrong = next((result for result in results if not result.passed), None)
    if wrong is not None:
        bench.attempt.results.append(wrong)
        bench.attempt.failed = Failed("wrong", f"in a timed call: {wrong.reason}"[:500])


def outputs_of(bench: GpuCase) -> int:
    """Returns the number of elements of all outputs of a call."""
    return sum(int(np.prod(shape)) for _, _, shape in bench.layout["outputs"])


def _looked_at(
    bench: GpuCase, kind: Distribution, seed: int, outputs: Outputs, slot: int, call_seed: int
) -> WorkloadResult:
    """Verifies large outputs: whole in a random quarter of the calls, a sample of tiles in the others."""
    tiles = 0 if bench.rng.random() < 0.25 else bench.seed()
    return compared(bench, kind, seed, outputs, CheckWay(slot=slot, call_seed=call_seed, tiles=tiles))


def over(samples: TimedSamples, options: EvalOptions, stop: float) -> bool:
    """Tells whether timing may end: it is past `stop` with enough samples, the interval is narrow already, or the
    candidate is clearly slower."""
    if time.monotonic() > stop and samples.enough(options.timing_seconds):
        return True
    if clearly_slower(samples.times, options):
        return True
    return samples.fewest() >= FEWEST_SAMPLES and settled(samples.times, options)


def clearly_slower(times: dict[str, list[float]], options: EvalOptions) -> bool:
    """Tells whether every time of the candidate is far above every time of the first baseline."""
    if not options.baselines:
        return False
    own, other = times["candidate"], times[options.baselines[0]]
    return min(len(own), len(other)) >= CLEAR_SAMPLES and min(own) > CLEARLY * max(other)


def settled(times: dict[str, list[float]], options: EvalOptions) -> bool:
    if not options.baselines:
        return len(times["candidate"]) >= 4 * FEWEST_SAMPLES
    return intervals.is_narrow(intervals.ratio_interval(times[options.baselines[0]], times["candidate"]), NARROW)


def _timing(times: dict[str, list[float]], options: EvalOptions, span_ms: float) -> Timing:
    def median(name: str) -> float | None:
        return float(np.median(times[name])) if times.get(name) else None

    speedup, interval = None, None
    if options.baselines:
        speedup, low, high = intervals.ratio_interval(times[options.baselines[0]], times["candidate"])
        apart = intervals.process_spread(float(np.median(times["candidate"])))
        interval = (low * (1 - apart), high * (1 + apart))
    compiled = [m for name in ("compile", "max-autotune") if (m := median(name)) is not None]
    return Timing(
        candidate_ms=float(np.median(times["candidate"])),
        eager_ms=median("eager"),
        compile_ms=min(compiled) if compiled else None,
        cupti_ms=span_ms or None,
        speedup=speedup,
        interval=interval,
        samples={name: tuple(values) for name, values in times.items()},
    )


def _note_clocks(attempt: Attempt, before: dict[str, Any], after: dict[str, Any]) -> None:
    names = ("sm_mhz", "memory_mhz", "throttle_reasons")
    readings = {n: BeforeAfter(before=before[n], after=after.get(n)) for n in names if n in before}
    attempt.note(gpu=str(before.get("name", "?")), **readings)


def _suspicious(bench: GpuCase, samples: TimedSamples, device: dict[str, Any]) -> None:
    """Checks for impossible times: work that the events did not see, and times below the card's physical floor."""
    candidate = float(np.median(samples.times["candidate"]))
    if candidate <= 0:
        _found(bench, "physics-floor", f"{candidate:.4f} ms: nothing is done in no time", "reject")
        return
    _beside_the_stream(bench, samples.slacks, candidate)
    if bench.attempt.failed is not None:
        return
    _two_clocks(bench, candidate, in_row=bool(samples.alone) and not bench.one_by_one)
    _faster_than_launches(bench, candidate)
    _in_a_row(bench, samples, candidate)
    _before_it_is_there(bench, samples, candidate)
    layout = bench.layout
    floor = _floor_ms(bench, device["name"], candidate)
    if floor is not None and candidate < floor:
        evidence = f"{candidate:.4f} ms, but moving its inputs and outputs takes at least {floor:.4f} ms on this card"
        _found(bench, "physics-floor", evidence, "reject")
    flop_floor = hardware_limits.flop_floor_ms(device["name"], layout["flops"])
    if flop_floor is not None and candidate < flop_floor:
        evidence = (
            f"{candidate:.4f} ms, but the reference's {layout['flops']:.3g} floating-point operations take this card "
            f"at least {flop_floor:.4f} ms: the candidate does less of them, which only some tasks allow"
        )
        _found(bench, "flop-floor", evidence, "warning")


def _floor_ms(bench: GpuCase, card: str, candidate_ms: float) -> float | None:
    """Returns the physical floor in milliseconds.

    For a candidate below the floor of all inputs, counts only inputs that the reference's outputs depend on.
    """
    given, made = bench.layout["input_bytes"], bench.layout["output_bytes"]
    floor = hardware_limits.floor_ms(card, given, made)
    if floor is None or candidate_ms >= floor:
        return floor
    share = bench.referee("share", seed=bench.seed())["share"]
    bench.attempt.note(inputs_needed=round(share, 2))
    return hardware_limits.floor_ms(card, int(given * share), made)


def _beside_the_stream(bench: GpuCase, slacks: dict[str, list[float]], candidate: float) -> None:
    """Rejects work on a stream that the caller does not wait for.

    It shows in every call; delays of a busy host or device show only in some. A suspect candidate is called again, in
    turn with a baseline: a device that other processes use delays both.
    """
    baseline = next(iter(bench.options.baselines), "")
    allowed, seen = max(0.1, 0.2 * candidate), list(slacks["candidate"])
    usual = [min((min(s) for name, s in slacks.items() if name != "candidate" and s), default=0.0)]
    while min(seen) - statistics.median(usual) > allowed and len(seen) < SLACK_SAMPLES:
        seeds = new_seeds(bench, 1)
        seen.append(_times(bench, "candidate", seeds).slack_ms)
        if bench.attempt.failed is not None:
            return
        if baseline:
            usual.append(_times(bench, baseline, seeds).slack_ms)
    slack = min(seen) - statistics.median(usual)
    if slack > allowed:
        evidence = (
            f"the device was busy {slack:.3f} ms longer than the {candidate:.3f} ms on the stream of the call: "
            "work on a stream that the caller does not wait for"
        )
        _found(bench, "side-stream", evidence, "reject")


def _two_clocks(bench: GpuCase, candidate: float, in_row: bool) -> None:
    """Compares the events with CUPTI, and measures again while they disagree.

    Kernels that run for longer than the call takes on its stream are rejected. Kernels spread over more time than the
    call took are a warning, since a profiler slows the host down. If calls were timed in a row, CUPTI must see as much
    in a row: a single call finds no weights in the cache that an earlier call has read.
    """
    spans, busy = [bench.span_ms], [bench.busy_ms]
    while bench.busy_ms and _disagree(candidate, min(spans), min(busy)) and len(spans) < SPAN_SAMPLES:
        facts = call(bench, "own", [bench.seed()], CallWay(profile=True))
        spans.append(facts.span_ms)
        busy.append(facts.busy_ms)
    least = min(busy)
    if in_row and _too_busy(candidate, least):
        least = min(least, *(_busy_in_a_row(bench, least) for _ in range(ROW_SAMPLES)))
    if _too_busy(candidate, least):
        evidence = (
            f"CUPTI saw kernels run for {least:.4f} ms in a call that took {candidate:.4f} ms on its stream: "
            "work on a stream that the caller does not wait for, or another clock"
        )
        _found(bench, "side-stream", evidence, "reject")
    elif min(spans) > 1.5 * candidate + 0.02:
        evidence = (
            f"CUPTI saw the call's kernels over {min(spans):.4f} ms from the first one's start to the last one's end, "
            f"the events {candidate:.4f} ms"
        )
        _found(bench, "clock-disagreement", evidence, "warning")


def _busy_in_a_row(bench: GpuCase, alone: float) -> float:
    """Returns the milliseconds that kernels ran per call of a row after its first, which counts as a single call.

    The outputs are verified, too: a candidate that does less under a profiler is wrong.
    """
    seeds = new_seeds(bench, bench.layout["slots"])
    facts = call(bench, "own", seeds, CallWay(profile=True))
    _verify(bench, "own", seeds, facts.outputs)
    return float(facts.busy_ms - alone) / (len(seeds) - 1)


def _faster_than_launches(bench: GpuCase, candidate: float) -> None:
    """Rejects calls that took less time on the stream than starting their kernels, even as a graph's nodes."""
    launches = sum(k[1] for k in bench.kernels)
    least = _FASTEST_LAUNCH * launches * bench.session.launch_ms
    if candidate < least and bench.attempt.failed is None:
        evidence = (
            f"{launches} kernels ran in a call that took {candidate:.5f} ms on its stream, which is less than starting "
            f"them takes ({least:.5f} ms): work on a stream that the caller does not wait for, or another clock"
        )
        _found(bench, "side-stream", evidence, "reject")


def _in_a_row(bench: GpuCase, samples: TimedSamples, candidate: float) -> None:
    """Rejects back-to-back calls that are much faster than a single call: the first of a row did the work of all.

    The first call is not timed, and all inputs of a row are in memory before it, so that it can find them and compute
    the later outputs. A single call has no other call to hide its work in.
    """
    if not samples.alone or bench.one_by_one or bench.attempt.failed is not None:
        return
    others = [name for name, times in samples.times.items() if name != "candidate" and times]
    usual = max([0.0, *(samples.alone[name] - float(np.median(samples.times[name])) for name in others)])
    alone: list[float] = []

    def cheap(least: float) -> bool:
        return candidate < _BURST_SHARE * (least - usual) - _BURST_SLACK_MS

    if not cheap(samples.alone["candidate"]):
        return
    for _ in range(BURST_SAMPLES):
        times = _times(bench, "candidate", new_seeds(bench, 1))
        if bench.attempt.failed is not None:
            return
        if times.hidden or not samples.hidden["candidate"]:  # otherwise the device may have waited for the host
            alone.append(times.device_ms)
        if alone and not cheap(min(alone)):
            return
    if len(alone) >= BURST_SAMPLES // 2:
        evidence = (
            f"{candidate:.4f} ms in a row of calls, but {min(alone):.4f} ms alone: its work is done with the first "
            "call of the row, before the others were made"
        )
        _found(bench, "answered-ahead", evidence, "reject")


def _before_it_is_there(bench: GpuCase, samples: TimedSamples, candidate: float) -> None:
    """Rejects calls that take longer with late inputs: an earlier call of the row had computed their outputs.

    Other contents lie in each call's input memory until right before it. Honest calls even gain: a copy leaves their
    inputs in the cache. A candidate that uses the earlier contents is wrong; one that reads again must compute in time.
    """
    if not samples.alone or bench.one_by_one or bench.attempt.failed is not None:
        return
    late, limit = 0.0, 0.0
    for index in range(BURST_SAMPLES):
        times, copies = samples.late if samples.late and not index else _called_late(bench)
        if bench.attempt.failed is not None:
            return
        late = times.device_ms - copies.device_ms
        limit = _LATE_SHARE * candidate + _BURST_SLACK_MS + copies.issue_ms
        if samples.hidden["candidate"] and not times.hidden:  # the device may have waited for the host
            limit += float(np.median(samples.issues))
        if late <= limit:
            return
    evidence = (
        f"{candidate:.4f} ms in a row of calls, but {late:.4f} ms where its inputs come right before it: its work "
        "is done with the first call of the row, before the others were made"
    )
    _found(bench, "answered-ahead", evidence, "reject")


def _called_late(bench: GpuCase) -> tuple[CallTimes, CallTimes]:
    """Times a row of calls with late inputs, and their copies; verifies the outputs."""
    seeds = new_seeds(bench, bench.layout["slots"])
    facts = call(bench, "own", seeds, CallWay(late=True))
    _verify(bench, "own", seeds, facts.outputs)
    return facts.times, facts.copies


def _too_busy(candidate: float, busy: float) -> bool:
    return busy > _MOST_BUSY * candidate + _SLACK_BUSY_MS


def _disagree(candidate: float, span: float, busy: float) -> bool:
    return _too_busy(candidate, busy) or span > 1.5 * candidate + 0.02


def graphs(bench: GpuCase) -> bool:
    """Times a short call and the first baseline as replays of a CUDA graph, in addition to the timing.

    Skipped if timing has less than `GRAPHS_FROM` seconds. Runs last, since a failed capture may break the process:
    returns False if it did. Kernels launched on the legacy stream are not captured, and may fault on captured memory.
    """
    attempt = bench.attempt
    timing = attempt.timing
    if timing is None or timing.candidate_ms >= SHORT_MS or bench.gpu.device["name"] != "cuda":
        return True
    if bench.options.timing_seconds < GRAPHS_FROM:
        return True
    with bench.has("exclusive"):
        return _graphs(bench, timing)


def _graphs(bench: GpuCase, timing: Timing) -> bool:
    attempt = bench.attempt
    found: dict[str, float] = {}
    with contextlib.suppress(TaskError, TooLarge):
        if bench.options.baselines:
            where = filled(bench, "own", [bench.seed()], aside=True)
            answer = bench.baseline("graph", baseline=bench.options.baselines[0], fresh=False, **where)
            if answer["times"]:
                found["baseline_graph_ms"] = answer["times"]["device_ms"]
    problem, alive = "", True
    try:
        if bench.model is not None:  # calls at other sizes have replaced the model
            bench.session.make(*bench.model, keep=False)
        seed = bench.seed()
        facts = call(bench, "own", [seed], CallWay(graph=True))
        problem = facts.no_graph
        if not problem:
            result = compared(bench, "own", seed, facts.outputs, CheckWay())
            if result.passed:
                found["graph_ms"] = facts.times.device_ms
            else:
                problem = f"replays differ: {result.reason}"
    except Failed as failed:
        problem, alive = failed.reason, False
    attempt.note(cuda_graph=problem[:200] or "replayed")
    attempt.timing = timing.changed(**found)
    return alive


def _found(bench: GpuCase, rule: str, evidence: str, severity: Literal["warning", "reject"]) -> None:
    finding = Finding(rule=rule, evidence=evidence, severity=severity, workload=bench.workload.name)
    bench.attempt.findings.append(finding)
    if severity == "reject":
        bench.attempt.failed = Failed("rejected", f"{rule}: {evidence}"[:500], finding)
