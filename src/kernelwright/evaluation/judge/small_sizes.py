"""The judge: decides what one candidate is worth on one task, from bytes and from what it saw itself.

It owns seeds, tolerances, expected outputs and the verdict, and never executes or imports a task's or a candidate's
code; it needs numpy but no torch. In order of precedence:

1. a build that our side could not do decides (`unsupported`), whatever the candidate returned by falling back;
2. a build that failed by the candidate's fault decides (`compile_error`) unless a later one succeeded and ran;
3. a launch that faulted decides (`runtime_error`), caught or not;
4. then come races and the outputs (`wrong`), then the guards (`rejected`), and what is left is `correct`.

A candidate that fails only at sizes the task never declared is `unsupported: shape-specialised`, not `wrong`.
"""

from __future__ import annotations

import dataclasses
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelwright.evaluation.compare import on_host
from kernelwright.evaluation.failure import Failed, missing_library
from kernelwright.evaluation.judge import large_sizes, rules
from kernelwright.evaluation.options import SMALL_BUDGET, EvalOptions
from kernelwright.evaluation.processes import messages as answers
from kernelwright.evaluation.processes.builder_client import BuilderClient
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.oracle_client import OracleClient
from kernelwright.evaluation.text import as_module, first_build, library_ops, source_lines, static_rules
from kernelwright.evaluation.trials import TaskPlan, Trial, TrialData
from kernelwright.machine.runtime import SUSPECTS
from kernelwright.records import (
    Candidate,
    Distribution,
    Evaluation,
    Finding,
    Hotspot,
    Launch,
    LibraryRule,
    Seconds,
    Task,
    Timing,
    Touched,
    Workload,
    WorkloadResult,
)

DECLARED_ELEMENTS = 4_000_000
DECLARED_FLOPS = 200_000_000
"""A task's own size is part of every judgement up to here."""
ESCALATE_ELEMENTS = 48_000_000
ESCALATE_FLOPS = 6_000_000_000
"""Up to here it is run when a candidate failed at a size that the task does not state."""
_RACES = ("data-race", "divergent-barrier", "sync-mask")
MAX_HOTSPOTS = 8
_RANKS = ("fault", "reject", "warning", "info")
KERNEL_COMPILE_ERROR = "kernel-compile-error"
SIZE_RULES = ("no-own-kernel", "library-op")
"""Rules that a candidate may break only at a size that it was not written for, where it goes another way."""
_KINDS: tuple[Distribution, ...] = ("own", "normal", "heavy_tail", "constant_rows", "uniform")


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


def judge(
    task: Task,
    candidate: Candidate,
    options: EvalOptions,
    seed: int,
    plan: TaskPlan,
    oracle: OracleClient,
    builder: BuilderClient,
) -> Evaluation:
    """One verdict. Raises `TaskError` when the reference fails, `HarnessError` when our own machinery does."""
    started = time.monotonic()
    policy = options.policy or task.policy
    advice = static_rules.static_findings(candidate, task)
    source, problem = as_module.module_source(candidate, task.function)
    if problem is not None:
        return evaluation(task, candidate, options, Attempt(failed=problem), advice, started)
    limit = (SMALL_BUDGET["element_budget"], SMALL_BUDGET["flop_budget"]) if options.small_sizes else None
    trials = trial_list(plan, options.trials, seed, limit or (DECLARED_ELEMENTS, DECLARED_FLOPS))
    attempt = _run(candidate, source, trials, task, policy, options, oracle, builder)
    failed, trial = attempt.failed, attempt.trial
    if failed is not None and trial is not None and _size_may_be_why(failed, trial):
        limit = limit or (ESCALATE_ELEMENTS, ESCALATE_FLOPS)
        attempt = _at_declared_size(attempt, candidate, source, task, policy, options, plan, oracle, builder, limit)
    if attempt.failed is None:
        attempt.failed = idle_kernels(attempt) or guard_verdict(advice)
    elif attempt.failed.verdict == "unsupported":
        attempt.failed = with_policy(attempt.failed, policy)
    size = large_sizes.size_to_sample(plan, trials, options, candidate)
    if attempt.failed is None and attempt.launches and size is not None:
        _look_at_large(attempt, size, trials[0], candidate, source, task, options, oracle, builder)
    return evaluation(task, candidate, options, attempt, advice, started)


def _look_at_large(
    attempt: Attempt,
    size: Workload,
    trial: Trial,
    candidate: Candidate,
    source: str,
    task: Task,
    options: EvalOptions,
    oracle: OracleClient,
    builder: BuilderClient,
) -> None:
    """Runs a sample of a right candidate's blocks at a size of its task that is too large to be run."""
    seen = large_sizes.look(candidate, source, size, trial, task, options, oracle, builder)
    attempt.environment["sampled_size"] = seen.note
    if seen.session is None:
        return
    attempt.build_seconds += seen.session.build_seconds
    found = machine_findings(seen.session, {"findings": seen.faults}, f"{size.name} (sampled)")[0]
    attempt.findings.extend(found)
    if found:
        attempt.failed = large_sizes.verdict(found[0], size)


def with_policy(failed: Failed, policy: LibraryRule) -> Failed:
    """What is missing, with a word on whether the task would allow it at all, where it is one of NVIDIA's libraries."""
    if not failed.reason.startswith("missing: "):
        return failed
    wanted = sorted(set(re.findall(r"\b(cublas|cudnn|cufft|cusolver|cusparse)", failed.reason.lower())))
    refused = [name for name in wanted if name not in library_ops.allowed(policy)]
    if not refused:
        return failed
    note = f"; the policy {policy} does not allow {', '.join(refused)} in any case: write the kernel instead"
    return dataclasses.replace(failed, reason=(failed.reason + note)[:500])


def value_kinds(plan: TaskPlan) -> list[Distribution]:
    """A plan's distributions in the order of use: the task's own, those that its gate found needed, the usual ones."""
    needed = [k for k in plan.distributions if k not in _KINDS]
    usual = [k for k in _KINDS if k in plan.distributions]
    return [*usual[:1], *needed, *usual[1:]] or ["own"]


def trial_list(
    plan: TaskPlan, count: int, seed: int, limit: tuple[int, int] = (DECLARED_ELEMENTS, DECLARED_FLOPS)
) -> list[Trial]:
    """Which sizes are called with which values. The first size is called twice, so that a cached result shows.

    Sizes that a task declares are all visited, its own up to the limit (elements, FLOPs); of derived ones as many as
    `count` allows.
    """
    rng = np.random.default_rng(seed)
    seeds = iter(int(s) for s in rng.integers(1, 2**31, size=4 * (count + len(plan.workloads)) + 8))
    # Signed values first among the judge's own, then outliers: few trials should meet what shortcuts get wrong.
    kinds = value_kinds(plan)
    sizes: list[Workload] = list(plan.workloads)
    declared = plan.declared
    if declared is not None and (not sizes or (0 < declared.elements <= limit[0] and declared.flops <= limit[1])):
        sizes.append(declared)
    stated = [w for w in sizes if w.scope == "declared"]
    order = [sizes[0], sizes[0], *sizes[1:]] if count > 1 else [sizes[0]]
    picked = order[:count] + [w for w in stated if w not in order[:count]]
    while len(picked) < count:
        picked.append(sizes[len(picked) % len(sizes)])
    trials: list[Trial] = []
    for index, workload in enumerate(picked):
        again = index == 1 and workload == picked[0]
        trials.append(Trial(workload, kinds[index % len(kinds)], next(seeds), next(seeds), again))
    return trials


def _run(
    candidate: Candidate,
    source: str,
    trials: Sequence[Trial],
    task: Task,
    policy: LibraryRule,
    options: EvalOptions,
    oracle: OracleClient,
    builder: BuilderClient,
) -> Attempt:
    """Runs trials in one fresh runner until one fails; without a runner where the first build is sure to fail."""
    attempt = _stillborn(candidate, source, options, builder)
    if attempt is not None:
        return attempt
    attempt = Attempt()
    session = CandidateClient(candidate, source, options, oracle.pool, builder)
    attempt.level = session.level
    try:
        session.load(task)
        for trial in trials:
            attempt.trial = trial
            call_seed = trial.input_seed ^ 0x5EED
            data = oracle.trial(trial, call_seed)
            if session.make(data, trial.weight_seed, trial.reuse) == "seed":
                # The candidate names its weights otherwise: both sides then keep what the common seed gives.
                data = oracle.trial(trial, call_seed, randomise=False)
            answer = session.call(data, call_seed, trial.reuse)
            check(attempt, session, trial, data, answer, task, policy)
            if attempt.failed is not None:
                break
    except Failed as failed:
        attempt.failed = failed
    finally:
        attempt.build_seconds = session.build_seconds
        session.close()
    attempt.failed = build_verdict(session, attempt) or attempt.failed
    attempt.log = log_of(session, attempt)
    return attempt


def _stillborn(candidate: Candidate, source: str, options: EvalOptions, builder: BuilderClient) -> Attempt | None:
    """What becomes of a candidate whose module cannot be executed, since the build it begins with fails."""
    request = first_build.first_build(source)
    try:
        asked = answers.build_request({"request": dataclasses.asdict(request)}) if request else None
    except answers.Unsound:
        return None
    if asked is None:
        return None
    started = time.monotonic()
    result = builder.build(asked, options.build_timeout)
    if result.status != "compile_error":
        return None
    log = f"[build 1: {result.status}]\n{result.log[-4000:]}"
    attempt = Attempt(failed=_compile_error(candidate, asked, result.log), log=log, level=builder.level)
    attempt.build_seconds = time.monotonic() - started
    return attempt


def check(
    attempt: Attempt,
    session: CandidateClient,
    trial: Trial,
    data: TrialData,
    answer: Any,
    task: Task,
    policy: LibraryRule,
) -> None:
    """Compares one call's outputs, notes what ran, and sets `attempt.failed` where it fails."""
    facts = answer.header
    note_launches(attempt, session, facts)
    outcome = on_host.compare(
        [on_host.Array.of(t) for t in answer.tensors],
        [t.array() for t in data.exact],
        [t.array() for t in data.honest],
        [on_host.OutputSpec(t.dtype, t.shape, data.input_scale) for t in data.honest],
        tolerance=task.tolerance,
        low_error=data.low_error,
        nearby=data.nearby,
    )
    findings, suspects = machine_findings(session, facts, trial.workload.name)
    if not outcome.passed:
        findings = findings + suspects
    guarded = rules.call_findings(facts, policy, data.largest_input, trial.workload.name, data.handed)
    guarded += rules.unfounded(facts, any(b.status == "ok" for b in session.builds), trial.workload.name)
    unread = rules.never_read(facts, data.shapes, trial.workload.name)
    attempt.findings.extend(f for f in (*findings, *guarded, *unread) if f not in attempt.findings)
    attempt.library_ops.extend(
        op for op in rules.library_work(facts, data.largest_input) if op not in attempt.library_ops
    )
    attempt.results.append(
        WorkloadResult(
            name=trial.workload.name,
            scope=trial.workload.scope,
            distribution=trial.distribution,
            shape=data.shapes,
            dtype=data.dtypes,
            max_abs_error=outcome.max_abs_error,
            max_rel_error=outcome.max_rel_error,
            tolerance=outcome.tolerance,
            honest_error=outcome.honest_error,
            forgiven=outcome.forgiven,
            passed=outcome.passed,
            reason=outcome.reason,
        )
    )
    attempt.failed = call_verdict(facts, outcome, findings, guarded, trial)


def call_verdict(
    facts: dict[str, Any],
    outcome: on_host.Comparison | WorkloadResult,
    findings: list[Finding],
    guarded: list[Finding],
    trial: Trial,
) -> Failed | None:
    """The first thing wrong with one call, in the order of the module's docstring."""
    if facts.get("unsupported"):
        return Failed("unsupported", f"missing: {', '.join(facts['unsupported'][:5])}"[:500])
    fault = next((f for f in findings if f.severity == "fault"), None)
    if fault is not None:
        return Failed("runtime_error", f"{fault.rule}: {fault.evidence}"[:500], fault)
    rejecting = rules.rejecting(guarded)
    shown = next((f for f in guarded if f.rule in ("lazy-output", "not-a-tensor", "broadcast-output")), None)
    if shown is not None:
        return Failed("rejected", f"{shown.rule}: {shown.evidence}", shown)
    missing = [n for n in facts.get("missing_libraries", []) if n in ("triton", "cupy", "numba")]
    if missing and rejecting is not None and rejecting.rule == "no-own-kernel":
        return Failed("unsupported", missing_library(missing))
    race = next((f for f in findings if f.rule in _RACES), None)
    if race is not None:
        return Failed("wrong", f"{race.rule}: {race.evidence}"[:500], race)
    cause = next((f for f in findings if f.rule in SUSPECTS), None)
    if not outcome.passed and cause is not None:
        return Failed("wrong", f"{cause.rule}: {cause.evidence}; {outcome.reason}"[:500], cause)
    if not outcome.passed:
        where = f"{trial.workload.name}, {trial.distribution} values"
        return Failed("wrong", f"{outcome.reason} ({where})"[:500])
    if rejecting is not None:
        return Failed("rejected", f"{rejecting.rule}: {rejecting.evidence}"[:500], rejecting)
    return None


def machine_findings(
    session: CandidateClient, facts: dict[str, Any], workload: str
) -> tuple[list[Finding], list[Finding]]:
    """What the machine found, with lines of the candidate's own file; and what only counts if outputs are wrong."""
    found: list[Finding] = []
    suspects: list[Finding] = []
    text = session.candidate.text
    for one in facts.get("findings", [])[:50]:
        severity, kernel = one.get("severity", "warning"), str(one.get("kernel", ""))
        line = source_lines.of_finding(text, session.requests, one)
        evidence = source_lines.in_own_lines(text, session.requests, kernel, str(one.get("evidence", "")))
        finding = Finding(
            rule=str(one.get("rule", "machine")),
            evidence=evidence[:1000],
            severity=severity if severity in ("info", "warning", "fault") else "warning",
            line=line,
            workload="" if severity == "info" else workload,
        )
        (suspects if severity == "suspect" else found).append(finding)
    return found, suspects


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


def build_verdict(session: CandidateClient, attempt: Attempt) -> Failed | None:
    """What the builds decide, whatever the candidate made of their failure."""
    for result in session.builds:
        if result.status == "unsupported":
            names = ", ".join(result.missing) or "see the log"
            return Failed("unsupported", f"missing: {names}"[:500], log=result.log)
    unsupported = session.last.get("unsupported", [])
    idle = next((f for f in attempt.findings if f.rule == "no-own-kernel"), None)
    if unsupported and idle is not None and not session.builds:
        # It has no kernel of its own: what else it asked of torch in vain does not matter.
        return Failed("rejected", f"{idle.rule}: {idle.evidence}"[:500], idle)
    if unsupported:
        return Failed("unsupported", f"missing: {', '.join(map(str, unsupported[:5]))}"[:500])
    faults = [f for f in machine_findings(session, session.last, "")[0] if f.severity == "fault"]
    if faults and (attempt.failed is None or attempt.failed.verdict in ("runtime_error", "rejected", "wrong")):
        return large_sizes.fault(faults[0], attempt.trial)
    errors = [i for i, r in enumerate(session.builds) if r.status == "compile_error"]
    ran = bool(attempt.launches) and (attempt.failed is None or attempt.failed.verdict != "rejected")
    if errors and not ran:
        return _compile_error(session.candidate, session.requests[errors[0]], session.builds[errors[0]].log)
    return _compiled_in_vain(session, attempt, ran)


def _compile_error(candidate: Candidate, request: dict[str, Any], log: str) -> Failed:
    reason = _first_error(log)
    line = source_lines.of_error(candidate.text, request, log)
    finding = Finding(rule="compile-error", evidence=reason, severity="fault", line=line)
    return Failed("compile_error", reason, finding, log)


def _compiled_in_vain(session: CandidateClient, attempt: Attempt, ran: bool) -> Failed | None:
    """The failure of a compiler in the runner, unless kernels ran all the same: an autotuner may survive some."""
    errors = session.last.get("compile_errors", [])
    failed = attempt.failed
    ended = failed is not None and failed.finding is not None and failed.finding.rule == "exception"
    if not errors or (ran and not ended):
        return None
    # The last is what ended it; where another exception did, kernels that ran before are no excuse for that one.
    error = errors[-1]
    if ran and failed is not None and not failed.reason.split(" ", 1)[0] == error["type"]:
        return None
    line = source_lines.own_line(session.candidate.text, error["source"], error["line"]) if error["line"] else None
    message = next(iter(error["message"].strip().splitlines()), "")
    reason = f"{error['type']}: {message}"[:400] + (f" (line {line})" if line else "")
    finding = Finding(rule=KERNEL_COMPILE_ERROR, evidence=reason, severity="fault", line=line)
    return Failed("compile_error", reason, finding, error["log"])


def _first_error(log: str) -> str:
    """The line of a compiler's log that says what is wrong."""
    messages = [line.strip() for line in log.splitlines() if line.strip()]
    for line in messages:
        if re.search(r"\berror\b", line, re.IGNORECASE):
            return line[:400]
    return (messages[0] if messages else "the build failed without a message")[:400]


def _size_may_be_why(failed: Failed, trial: Trial) -> bool:
    """Whether a failure could come from a size that the candidate was not written for."""
    if trial.workload.scope == "declared":
        return False
    if failed.verdict == "rejected":
        return failed.finding is not None and failed.finding.rule in SIZE_RULES
    if failed.verdict == "compile_error":  # Triton compiles for the sizes of a call
        return failed.finding is not None and failed.finding.rule == KERNEL_COMPILE_ERROR
    return failed.verdict in ("wrong", "runtime_error")


def _at_declared_size(
    attempt: Attempt,
    candidate: Candidate,
    source: str,
    task: Task,
    policy: LibraryRule,
    options: EvalOptions,
    plan: TaskPlan,
    oracle: OracleClient,
    builder: BuilderClient,
    limit: tuple[int, int],
) -> Attempt:
    """Tells a wrong candidate from one that only knows the task's own sizes; those are run up to the limit."""
    failed, trial = attempt.failed, attempt.trial
    assert failed is not None and trial is not None
    declared = plan.declared
    if declared is None:
        return attempt
    if 0 < declared.elements <= limit[0] and declared.flops <= limit[1]:
        kinds: list[Distribution] = ["own"] if trial.distribution == "own" else ["own", trial.distribution]
        trials = [
            Trial(declared, kind, trial.weight_seed, trial.input_seed + i, reuse=i > 0) for i, kind in enumerate(kinds)
        ]
        again = _run(candidate, source, trials, task, policy, options, oracle, builder)
        again.build_seconds += attempt.build_seconds
        if again.failed is not None:
            if again.failed.verdict == "timeout":
                return attempt
            again.results = attempt.results + again.results
            return again
        again.results = attempt.results + again.results
        again.failed = _specialised(failed, trial, "it is right at the size that the task declares")
        return again
    kept = [r for r in attempt.results if r.scope == "batch_reduced" and r.passed]
    if trial.workload.scope == "reduced" and kept:
        attempt.failed = _specialised(failed, trial, "it is right where only the batch is smaller")
    elif _mentions_sizes(candidate, trial.workload, declared, task):
        attempt.failed = _specialised(failed, trial, "the code holds the declared size, which is too large to run here")
    return attempt


def _specialised(failed: Failed, trial: Trial, why: str) -> Failed:
    sizes = ", ".join(f"{k}={v}" for k, v in trial.workload.constants.items())
    reason = f"shape-specialised: {why}; with {sizes}: {failed.reason}"
    return Failed("unsupported", reason[:500], failed.finding, failed.log)


_SMALL = r"(?<![\w.])(?:10[01]\d|102[0-4]|[1-9]\d{0,2})(?![\w.])"


def _mentions_sizes(candidate: Candidate, workload: Workload, declared: Workload, task: Task) -> bool:
    """Whether the code, beyond its copy of the task's constants, holds one of the sizes that were changed."""
    text = re.sub(r"(?m)^\w+\s*=\s*[\d\s,()*+-]+(#.*)?$", "", candidate.text)
    code = re.sub(r"(?m)(#(?!define)|//).*$", "", text)
    # Up to 1024, a number beside these words is a number of threads: no copy of a size that happens to be equal.
    code = re.sub(r"(?im)^.*(?:thread|block|tile|warp|launch).*$", lambda m: re.sub(_SMALL, "", m[0]), code)
    for name in workload.constants:
        match = re.search(rf"(?m)^{re.escape(name)}\s*=\s*(\d+)", task.source)
        if match and int(match[1]) >= 64 and re.search(rf"(?<![\w.]){match[1]}(?![\w.])", code):
            return True
    return False


def idle_kernels(attempt: Attempt) -> Failed | None:
    """Kernels whose stores are in no output of any call are decoys; in one of several a condition may not be met."""
    idle = next((f for f in attempt.findings if f.rule == "decoy-kernel"), None)
    if idle is None or attempt.wrote:
        return None
    decoy = idle.changed(severity="reject", evidence=f"{idle.evidence} in any call")
    attempt.findings[attempt.findings.index(idle)] = decoy
    return guard_verdict([decoy])


def guard_verdict(advice: Sequence[Finding]) -> Failed | None:
    finding = rules.rejecting(advice)
    if finding is None:
        return None
    return Failed("rejected", f"{finding.rule}: {finding.evidence}", finding)


def log_of(session: CandidateClient, attempt: Attempt) -> str:
    parts = []
    for index, result in enumerate(session.builds):
        if result.status != "ok":
            parts.append(f"[build {index + 1}: {result.status}]\n{result.log[-4000:]}")
    if attempt.failed is not None and attempt.failed.log and not any(attempt.failed.log in p for p in parts):
        parts.append(f"[{attempt.failed.verdict}]\n{attempt.failed.log[-4000:]}")
    prints = str(session.last.get("prints", ""))
    if prints.strip():
        parts.append(f"[printed]\n{prints[-2000:]}")
    return "\n".join(parts)


def evaluation(
    task: Task,
    candidate: Candidate,
    options: EvalOptions,
    attempt: Attempt,
    advice: Sequence[Finding],
    started: float,
    backend: str = "cpu",
) -> Evaluation:
    """The record of an attempt that is over."""
    failed = attempt.failed
    findings = attempt.findings + list(advice)
    if failed is not None and failed.finding is not None and failed.finding not in findings:
        findings.append(failed.finding)
    # What decides comes first, then what was seen, then what the text reminds of: some readers take only a few.
    findings.sort(key=lambda f: _RANKS.index(f.severity))
    total = time.monotonic() - started - attempt.waited
    policy = options.policy or task.policy
    return Evaluation(
        task_id=task.task_id,
        task_hash=task.content_hash,
        candidate_id=candidate.content_hash,
        verdict=failed.verdict if failed else "correct",
        reason=failed.reason if failed else "",
        backend=backend,
        sandbox=attempt.level,
        workloads=tuple(attempt.results),
        timing=attempt.timing if failed is None else None,
        findings=tuple(findings),
        launches=tuple(attempt.launches.values()),
        library_ops=tuple(attempt.library_ops),
        seconds=Seconds(
            build=round(attempt.build_seconds, 4),
            check=round(max(0.0, total - attempt.build_seconds - attempt.time_seconds), 4),
            time=round(attempt.time_seconds, 4),
            total=round(total, 4),
        ),
        log=attempt.log or (failed.log if failed else ""),
        environment={
            "python": platform.python_version(),
            "machine": platform.machine(),
            "system": platform.system(),
            **attempt.environment,
        },
        options={**options.model_dump(mode="json", exclude={"seed"}), "policy": policy},
    )
