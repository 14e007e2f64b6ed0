"""Judging on a GPU: the task's own size first, checked and timed there, then other sizes as a test of generality.

What a candidate must get right is every size that its task declares. The largest is checked with fresh contents in
several distributions by the referee, and timed against the baselines in the order A B B A, every call on contents and
at addresses that it has not seen, with a cold L2. Outputs of timed calls are verified: all of them where they are
small. A candidate that fails only at sizes that nobody declared keeps its verdict, with a warning.

Like `judge`, this module executes nothing of a task's or a candidate's.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelwright.evaluation import guards, intervals, physics, plain
from kernelwright.evaluation import judge as judging
from kernelwright.evaluation.channel import Message
from kernelwright.evaluation.gpus import Gpu, TooLarge
from kernelwright.evaluation.judge import Attempt
from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.session import Builder, CandidateSession, Failed, Plan, TaskSession, Trial, TrialData
from kernelwright.records import (
    Candidate,
    Distribution,
    Evaluation,
    Finding,
    Policy,
    Task,
    Timing,
    Workload,
    WorkloadResult,
)

VERIFY_ALL = 1 << 22
"""Outputs of up to so many elements are verified after every timed call; of larger ones, a random quarter."""
THOROUGH_ALWAYS = 1 << 24
"""Up to so many input elements, every check has a ruler of its own; beyond, the first one's serves all."""
FEWEST_SAMPLES, MOST_ROUNDS = 10, 200
SHORT_MS = 0.2
SLACK_SAMPLES = 30
"""So many calls must all look as if work went on behind the stream before that is held against a candidate."""
MOST_EXTRA_MS, MOST_LAUNCHES = 0.0004, 64
NARROW = 0.008
"""The interval's whole width, relative to the ratio, at which timing ends before its time is over."""
_STARTS_PROGRAMS = re.compile(r"\btriton\b|torch\s*\.\s*compile\b|\bnumba\b|\bcupy\b")
_LIBRARY_KERNEL = re.compile(
    r"at::native|at_cuda|cublas|cudnn|cutlass|xmma|_gemm_|gemv|splitK|cask_|\bMemcpy\b|\bMemset\b|nchwTo|nhwcTo|cub::"
    r"|convolve|implicit_convolve|fft|void pytorch|flash_fwd|fmha"
)


@dataclass
class Bench:
    """What one judgement on a GPU works with, while it holds the lease."""

    task: Task
    policy: Policy
    options: EvalOptions
    gpu: Gpu
    session: CandidateSession
    attempt: Attempt
    rng: np.random.Generator
    workload: Workload
    kinds: list[Distribution]
    layout: dict[str, Any] = field(default_factory=dict)
    kernels: list[Any] = field(default_factory=list)
    own_kernels: list[Any] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds by what was waited for: the lease, the runner, and each kind of question to the referee."""
    alone: bool = False
    """Whether the candidate's calls must be timed one by one."""
    ruler: list[float | None] | None = None
    """The rulers of a smaller size, for outputs that are too large to have their own."""

    def seed(self) -> int:
        return int(self.rng.integers(1, 2**31))

    def ask(self, kind: str, **header: Any) -> Message:
        """The referee's answer; the seconds are kept by kind."""
        started = time.monotonic()
        try:
            return self.gpu.referee.ask(self.task.task_id, {"kind": kind, **header})
        finally:
            self.took(kind, started)

    def referee(self, kind: str, **header: Any) -> dict[str, Any]:
        return self.ask(kind, **header).header

    def took(self, stage: str, started: float) -> None:
        self.stages[stage] = self.stages.get(stage, 0.0) + time.monotonic() - started


def judge_on_gpu(
    task: Task,
    candidate: Candidate,
    options: EvalOptions,
    seed: int,
    plan: Plan,
    oracle: TaskSession,
    builder: Builder,
    gpu: Gpu,
) -> Evaluation:
    """One verdict, timed when it is `correct`. Raises `TaskError` and `HarnessError` like `judge.judge`."""
    started = time.monotonic()
    policy = options.policy or task.policy
    advice = guards.static_findings(candidate)
    source, problem = plain.module_source(candidate)
    attempt = Attempt(failed=problem)
    if problem is None:
        attempt = _attempt(task, candidate, source, policy, options, seed, plan, oracle, builder, gpu)
    if attempt.failed is None:
        attempt.failed = judging.guard_verdict(advice)
    backend = "gpu" if gpu.device["name"] == "cuda" else "host"
    return judging.evaluation(task, candidate, options, attempt, advice, started, backend)


def _attempt(
    task: Task,
    candidate: Candidate,
    source: str,
    policy: Policy,
    options: EvalOptions,
    seed: int,
    plan: Plan,
    oracle: TaskSession,
    builder: Builder,
    gpu: Gpu,
) -> Attempt:
    attempt = Attempt()
    rng = np.random.default_rng(seed)
    runner = gpu.runner(programs=_STARTS_PROGRAMS.search(candidate.text) is not None)
    session = CandidateSession(candidate, source, options, oracle.pool, builder, runner)
    attempt.level = session.level
    kinds = judging.value_kinds(plan)
    bench = Bench(task, policy, options, gpu, session, attempt, rng, _main_size(task, plan), kinds)
    try:
        session.load()
        others = _other_sizes(bench, plan, oracle)
        bench.ruler = next((data.low_error for _, data in others), None)
        waiting = time.monotonic()
        with gpu.lease:
            bench.took("lease", waiting)
            _full_size(bench)
            if attempt.failed is None:
                _generality(bench, others)
            session.exchange("", 0)
    except Failed as failed:
        attempt.failed = attempt.failed or failed
    except TooLarge as error:
        attempt.failed = Failed("unsupported", f"size: {error}"[:500])
    finally:
        built_by = dict.fromkeys(result.built_by for result in session.builds)
        attempt.environment["gpu_index"] = str(gpu.device["index"])
        attempt.environment["built_by"] = ", ".join(built_by) or "nothing was built"
        attempt.environment["gpu_seconds"] = ", ".join(f"{k} {v:.3f}" for k, v in sorted(bench.stages.items()))
        attempt.waited = bench.stages.get("lease", 0.0)
        attempt.build_seconds = session.build_seconds
        session.close()
    attempt.failed = judging.build_verdict(session, attempt) or attempt.failed
    attempt.log = judging.log_of(session, attempt)
    return attempt


def _main_size(task: Task, plan: Plan) -> Workload:
    """The size that is timed: the one meant for it, else the task's own, else the largest declared."""
    timing = [w for w in task.workloads if w.purpose == "timing"]
    if timing:
        return timing[0]
    return plan.declared or max(plan.workloads, key=lambda w: w.elements)


def _other_sizes(bench: Bench, plan: Plan, oracle: TaskSession) -> list[tuple[Trial, TrialData]]:
    """Calls at the plan's other sizes, with what the oracle expects; computed before the GPU is leased."""
    made = []
    for index, workload in enumerate(w for w in plan.workloads if w.name != bench.workload.name):
        kind = bench.kinds[index % len(bench.kinds)]
        trial = Trial(workload, kind, bench.seed(), bench.seed())
        made.append((trial, oracle.trial(trial, trial.input_seed ^ 0x5EED)))
    return made[: max(1, bench.options.trials)]


def _full_size(bench: Bench) -> None:
    """Checks and timing at the main size. Sets `attempt.failed`; raises `Failed` where the candidate's road ends."""
    _prepare(bench, randomise=True)
    for index in range(bench.options.trials):
        _checked_call(bench, bench.kinds[index % len(bench.kinds)], index)
        if bench.attempt.failed is not None:
            return
    if bench.options.timing_seconds > 0:
        started = time.monotonic()
        _timed(bench)
        bench.attempt.time_seconds = time.monotonic() - started


def _prepare(bench: Bench, randomise: bool) -> None:
    """Task, weights and shared memory at referee and runner."""
    options = bench.options
    weight_seed = bench.seed()
    answer = bench.ask(
        "prepare",
        source=bench.task.source,
        constants=bench.workload.constants,
        weight_seed=weight_seed,
        input_seed=bench.seed(),
        randomise=randomise,
        memory_bytes=int(options.gpu_memory_gb * 2**30),
        ruler=bench.ruler,
    )
    bench.layout = answer.header
    data = TrialData(answer.header["values"], answer.tensors, (), (), None, 1.0, (), ())
    bench.session.exchange(answer.header["handle"], answer.header["nbytes"])
    if bench.session.make(data, weight_seed, keep=False) == "seed" and randomise:
        # The candidate names its weights otherwise: both sides then keep what the common seed gives.
        bench.session.exchange("", 0)
        _prepare(bench, randomise=False)


def _call(
    bench: Bench,
    kind: Distribution,
    seeds: list[int],
    profile: bool = False,
    watch: bool = False,
    reuse: bool = False,
) -> dict[str, Any]:
    """Fresh inputs into the shared block, and a call of the candidate on each slot's.

    With `reuse` at the addresses of the checked call before, so that a result remembered by address shows.
    """
    filled = bench.referee("fill", distribution=kind, seeds=seeds)
    layout = bench.layout
    header: dict[str, Any] = {
        "calls": filled["calls"],
        "call_seed": seeds[-1] ^ 0x5EED,
        "profile": profile,
        "watch": watch,
        "reuse": reuse,
    }
    places = {"inputs": layout["inputs"], "outputs": layout["outputs"], "stride": layout["stride"]}
    started = time.monotonic()
    try:
        return bench.session.run({**header, **places})
    finally:
        bench.took("run", started)


def _compared(
    bench: Bench,
    kind: Distribution,
    seed: int,
    facts: dict[str, Any],
    thorough: bool,
    slot: int = 0,
    call_seed: int | None = None,
) -> WorkloadResult:
    """The referee's comparison of one call's outputs, as a result."""
    expected = [[dtype, shape] for _, dtype, shape in bench.layout["outputs"]]
    got = [list(one) for one in facts["outputs"]]
    fields: dict[str, Any] = {
        "name": bench.workload.name,
        "scope": "declared",
        "distribution": kind,
        "shape": bench.layout["shapes"],
        "dtype": bench.layout["dtypes"],
    }
    if got != expected:
        return WorkloadResult(**fields, passed=False, reason=_other_outputs(got, expected))
    answer = bench.referee(
        "check",
        slot=slot,
        distribution=kind,
        seed=seed,
        call_seed=seed ^ 0x5EED if call_seed is None else call_seed,
        thorough=thorough,
        tolerance=bench.task.tolerance,
    )
    results = answer["results"]
    if not results:
        return WorkloadResult(**fields, passed=False, reason="the reference returns no output")
    worst = next((r for r in results if not r["passed"]), None)
    worst = worst or max(results, key=lambda r: r["max_rel_error"] / r["tolerance"] if r["tolerance"] else 0.0)
    return WorkloadResult(**fields, **worst)


def _other_outputs(got: list[list[Any]], expected: list[list[Any]]) -> str:
    if len(got) != len(expected):
        return f"the reference returns {len(expected)} outputs, the candidate {len(got)}"
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        if one[1] != other[1]:
            return f"output {index} has shape {one[1]}, expected {other[1]}"
        if one[0] != other[0]:
            return f"output {index} has dtype {one[0]}, expected {other[0]}"
    return ""


def _checked_call(bench: Bench, kind: Distribution, index: int) -> None:
    """One verified call with all guards; after the first, the profiler lists the kernels of another one."""
    attempt, session = bench.attempt, bench.session
    seed = bench.seed()
    first = index == 0
    facts = _call(bench, kind, [seed], watch=True, reuse=index == 2)
    large = bench.layout["largest_input"] > THOROUGH_ALWAYS
    result = _compared(bench, kind, seed, facts, thorough=first or not large)
    if first:
        bench.kernels = _call(bench, kind, [bench.seed()], profile=True)["kernels"]
        _attest(bench)
    if not facts["facts"]["launches"] and bench.own_kernels:
        # Kernels of other compilers (Triton, CuPy) are not launched by us; the profiler has seen them.
        facts["facts"]["launches"] = [{"kernel": n, "count": c, "counters": {}} for n, c, _ in bench.own_kernels[:20]]
        facts["facts"]["written"] = {"0": 1}
    judging.note_launches(attempt, facts)
    largest = bench.layout["largest_input"]
    findings = judging.machine_findings(session, facts, bench.workload.name)
    guarded = guards.call_findings(facts, bench.policy, largest, bench.workload.name)
    attempt.findings.extend(f for f in (*findings, *guarded) if f not in attempt.findings)
    attempt.library_ops.extend(op for op in guards.library_work(facts, largest) if op not in attempt.library_ops)
    attempt.results.append(result)
    trial = Trial(bench.workload, kind, 0, seed)
    attempt.failed = judging.call_verdict(facts, result, findings, guarded, trial)


def _attest(bench: Bench) -> None:
    """Whose kernels the device ran in a call, by the profiler, and how much of its time was the candidate's own."""
    kernels = bench.kernels
    own = bench.own_kernels = [k for k in kernels if not _LIBRARY_KERNEL.search(k[0])]
    total = sum(k[2] for k in kernels)
    if total <= 0:
        return
    share = sum(k[2] for k in own) / total
    bench.attempt.environment["own_kernel_share"] = f"{share:.3f}"
    if bench.policy != "libraries" and share < 0.5 and own:
        names = ", ".join(k[0][:60] for k in kernels if k not in own)
        evidence = f"own kernels take {share:.0%} of the device's time in a call, the rest is {names}"[:900]
        bench.attempt.findings.append(
            Finding(rule="own-kernel-share", evidence=evidence, severity="warning", workload=bench.workload.name)
        )


def _timed(bench: Bench) -> None:
    """Candidate and baselines in turn until the interval is narrow or the time is over."""
    attempt, options = bench.attempt, bench.options
    stop = time.monotonic() + options.timing_seconds
    before = bench.referee("facts")["device"]
    samples: dict[str, list[float]] = {"candidate": [], **{b: [] for b in options.baselines}}
    slacks: dict[str, list[float]] = {name: [] for name in samples}
    issues: list[float] = []
    batch, extra = 1, _launch_extra(bench)
    hidden = dict.fromkeys(samples, False)
    for index in range(MOST_ROUNDS):
        turn = ["candidate", *options.baselines]
        for who in (*turn, *reversed(turn)):
            times = _times(bench, who, batch, warm=2 if index == 0 else 0)
            if attempt.failed is not None:
                return
            if bench.alone and batch > 1:
                batch = 1
                for kept in (*samples.values(), *slacks.values()):
                    kept.clear()
                hidden = dict.fromkeys(samples, False)
                break
            if not times["hidden"] and hidden[who]:
                continue  # the device waited for the host, which it does not always do here
            if times["hidden"] and not hidden[who]:
                samples[who].clear()
            hidden[who] = times["hidden"]
            samples[who].append(times["device_ms"] - (extra if who == "candidate" and batch > 1 else 0.0))
            slacks[who].append(times["slack_ms"])
            if who == "candidate":
                issues.append(times["issue_ms"])
        if (
            index == 0
            and not bench.alone
            and max(np.median(s) for s in samples.values()) < SHORT_MS
            and bench.layout["slots"] > 2
        ):
            # Short calls are measured as many at once as the shared block has slots.
            batch = bench.layout["slots"]
            for name in samples:
                samples[name].clear()
                slacks[name].clear()
                hidden[name] = False
        enough = min(len(s) for s in samples.values()) >= FEWEST_SAMPLES
        some = all(samples.values())
        if some and (time.monotonic() > stop or (enough and _settled(samples, options))):
            break
    after = bench.referee("facts")["device"]
    _note_clocks(attempt, before, after)
    attempt.environment["issue_ms"] = f"{float(np.median(issues)):.4f}"
    attempt.timing = _timing(samples, options)
    _suspicious(bench, samples, slacks, before)


def _launch_extra(bench: Bench) -> float:
    """Milliseconds of a short call that are due to the process: what its launches cost more than the baseline's.

    Both costs were measured before the candidate was there. See `devices.launch_cost`.
    """
    referee = bench.gpu.referee.child
    more = bench.session.child.launch_ms - (referee.launch_ms if referee else 0.0)
    launches = min(MOST_LAUNCHES, sum(k[1] for k in bench.kernels))
    bench.attempt.environment["launch_us"] = f"{bench.session.child.launch_ms * 1e3:.3f}, {launches} launches a call"
    return launches * max(-MOST_EXTRA_MS, min(MOST_EXTRA_MS, more))


def _times(bench: Bench, who: str, count: int, warm: int) -> dict[str, Any]:
    """The candidate or a baseline timed over calls on fresh contents; the candidate's outputs are verified."""
    kind: Distribution = "own"
    seeds = [bench.seed() for _ in range(count)]
    call_seed = seeds[-1] ^ 0x5EED
    if who != "candidate":
        answer = bench.referee("time", baseline=who, distribution=kind, seeds=seeds, call_seed=call_seed, warm=warm)
        times: dict[str, Any] = answer["times"]
        return times
    facts = _call(bench, kind, seeds)
    if facts["same_memory"]:
        # Calls that answer in one buffer cannot be looked at together.
        bench.alone = True
        return _times(bench, who, 1, warm)
    small = sum(int(np.prod(shape)) for _, _, shape in bench.layout["outputs"]) <= VERIFY_ALL
    for slot, seed in enumerate(seeds):
        if not small and bench.rng.random() > 0.25:
            continue
        result = _compared(bench, kind, seed, facts, thorough=False, slot=slot, call_seed=call_seed)
        if not result.passed:
            bench.attempt.results.append(result)
            bench.attempt.failed = Failed("wrong", f"in a timed call: {result.reason}"[:500])
            break
    times = facts["times"]
    return times


def _settled(samples: dict[str, list[float]], options: EvalOptions) -> bool:
    if not options.baselines:
        return len(samples["candidate"]) >= 4 * FEWEST_SAMPLES
    return intervals.is_narrow(intervals.ratio_interval(samples[options.baselines[0]], samples["candidate"]), NARROW)


def _timing(samples: dict[str, list[float]], options: EvalOptions) -> Timing:
    def median(name: str) -> float | None:
        return float(np.median(samples[name])) if samples.get(name) else None

    speedup, interval = None, None
    if options.baselines:
        speedup, low, high = intervals.ratio_interval(samples[options.baselines[0]], samples["candidate"])
        apart = intervals.process_spread(float(np.median(samples["candidate"])))
        interval = (low * (1 - apart), high * (1 + apart))
    compiled = [m for name in ("compile", "max-autotune") if (m := median(name)) is not None]
    return Timing(
        candidate_ms=float(np.median(samples["candidate"])),
        eager_ms=median("eager"),
        compile_ms=min(compiled) if compiled else None,
        speedup=speedup,
        interval=interval,
        samples={name: tuple(values) for name, values in samples.items()},
    )


def _note_clocks(attempt: Attempt, before: dict[str, Any], after: dict[str, Any]) -> None:
    attempt.environment["gpu"] = str(before.get("name", "?"))
    for name in ("sm_mhz", "memory_mhz", "throttle_reasons"):
        if name in before:
            attempt.environment[name] = f"{before[name]} before, {after.get(name)} after"


def _suspicious(
    bench: Bench, samples: dict[str, list[float]], slacks: dict[str, list[float]], device: dict[str, Any]
) -> None:
    """Times that cannot be: work that the events did not see, and less than the card's physics allow."""
    candidate = float(np.median(samples["candidate"]))
    # Work that nobody waits for shows in every call, the delays of a busy host only in some.
    usual = min((min(s) for name, s in slacks.items() if name != "candidate" and s), default=0.0)
    allowed, seen = max(0.1, 0.2 * candidate), list(slacks["candidate"])
    while min(seen) - usual > allowed and len(seen) < SLACK_SAMPLES:
        seen.append(_times(bench, "candidate", 1, warm=0)["slack_ms"])
        if bench.attempt.failed is not None:
            return
    slack = min(seen)
    if slack - usual > allowed:
        evidence = (
            f"the device was busy {slack - usual:.3f} ms longer than the {candidate:.3f} ms on the stream of the call: "
            "work on a stream that the caller does not wait for"
        )
        _reject(bench, "side-stream", evidence)
    floor = physics.floor_ms(device["name"], bench.layout["input_bytes"], bench.layout["output_bytes"])
    if floor is not None and candidate < floor:
        evidence = f"{candidate:.4f} ms, but moving its inputs and outputs takes at least {floor:.4f} ms on this card"
        _reject(bench, "physics-floor", evidence)


def _reject(bench: Bench, rule: str, evidence: str) -> None:
    finding = Finding(rule=rule, evidence=evidence, severity="reject", workload=bench.workload.name)
    bench.attempt.findings.append(finding)
    bench.attempt.failed = Failed("rejected", f"{rule}: {evidence}"[:500], finding)


def _generality(bench: Bench, others: list[tuple[Trial, TrialData]]) -> None:
    """Calls at other sizes. At one that the task declares a failure decides; elsewhere it is a warning."""
    attempt, session = bench.attempt, bench.session
    started = time.monotonic()
    try:
        _at_other_sizes(bench, attempt, session, others)
    finally:
        bench.took("other sizes", started)


def _at_other_sizes(
    bench: Bench, attempt: Attempt, session: CandidateSession, others: list[tuple[Trial, TrialData]]
) -> None:
    for trial, data in others:
        aside = Attempt()
        call_seed = trial.input_seed ^ 0x5EED
        try:
            if session.make(data, trial.weight_seed, keep=False) == "seed":
                continue  # weights cannot be handed over, and the oracle has computed with others
            answer = session.call(data, call_seed, reuse=False)
            judging.check(aside, session, trial, data, answer, bench.task, bench.policy)
        except Failed as failed:
            aside.failed = failed
        if trial.workload.scope == "declared":
            attempt.results.extend(aside.results)
            attempt.failed = aside.failed
        elif aside.failed is not None:
            sizes = ", ".join(f"{k}={v}" for k, v in trial.workload.constants.items())
            evidence = f"right at the task's own size, but with {sizes}: {aside.failed.reason}"[:900]
            attempt.findings.append(Finding(rule="shape-specialised", evidence=evidence, workload=trial.workload.name))
        if aside.failed is not None:
            return
