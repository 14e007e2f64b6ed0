"""Judging on a GPU: the task's own size first, checked and timed there, then other sizes as a test of generality.

A candidate must be right at every size that its task declares. The referee checks the largest with fresh contents in
several distributions. Timing runs against the baselines in the order A B B A; every call gets contents and addresses
that it has not seen, with a cold L2. Outputs of timed calls are verified, all of them if they are small. A candidate
that fails only at undeclared sizes keeps its verdict, with a warning, unless the failure is independent of the size.

Like `small_sizes`, this module executes no code of a task or a candidate.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from kernelwright.evaluation.case import Case
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge import program_first, rules, timing, timing_in_rows
from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.judge.checked_call import CheckedCall, check_outputs, settle
from kernelwright.evaluation.judge.gpu_case import CallWay, CheckWay, GpuCase, call, compared
from kernelwright.evaluation.judge.program_first import First
from kernelwright.evaluation.judge.repeated_program import RepeatedProgram
from kernelwright.evaluation.judge.trial_choice import value_kinds
from kernelwright.evaluation.judge.verdict import (
    SIZE_RULES,
    build_verdict,
    evaluation,
    guard_verdict,
    idle_kernels,
    log_of,
)
from kernelwright.evaluation.processes import gpu_seats
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.channel import Frame
from kernelwright.evaluation.processes.gpu_seats import Gpu, TooLarge
from kernelwright.evaluation.processes.live_client import LiveProgram
from kernelwright.evaluation.processes.messages import CallLaunches, CallState, LaunchFacts, LiveReport
from kernelwright.evaluation.text.library_ops import allowed
from kernelwright.evaluation.trials import TaskPlan, Trial, TrialData
from kernelwright.records import (
    LIBRARIES,
    Distribution,
    Evaluation,
    Finding,
    Workload,
)
from kernelwright.tasks.reference import sizes_in_words, wants_gradients

_Tried = TypeVar("_Tried")
LEAST_BYTES = 24
"""Bytes that checking needs per input or output element: about twelve copies of the larger side."""
ROWS_BYTES, MOST_IN_ROWS, PAIR_BYTES = 100, 26 << 20, 16
"""Bytes per element with inputs laid out for timing: `ROWS_BYTES` for rows of calls, used up to `MOST_IN_ROWS`
elements; `PAIR_BYTES` for two calls, used beyond."""
THOROUGH_ALWAYS = 1 << 24
"""Up to this many input elements, every check measures its own ruler (the reference's error at the next lower
precision). Beyond, all checks use the first one's."""
_LIBRARY_KERNEL = re.compile(
    r"at::native|at_cuda|cublas|cudnn|cutlass|xmma|nvjet|gemv|splitK|cask_|\bMemcpy\b|\bMemset\b|nchwTo|nhwcTo|cub::"
    r"|convolve|implicit_convolve|fft|void pytorch|flash_fwd|fmha"
)
_WORD = re.compile(r"\w+")
_MOVES_DATA = re.compile(
    r"(?i)memcpy|memset|copy|fill|cat_?array|catarray|distribution|arange|elementwise_kernel_with_index|index|linspace"
    r"|tril|triu|roll|flip|gather|scatter|eye|spin_kernel|nchwTo|nhwcTo"
)
"""Names of torch kernels that move or create data, which glue code may do."""
HIDDEN_US = 50.0
"""Small operators do not explain library kernels that take this many microseconds of a call and at least half of its
device time."""


def judge_on_gpu(case: Case, gpu: Gpu, exclusive: bool = False, small: TaskPlan | None = None) -> Evaluation:
    """Returns one evaluation, timed when it is `correct`. Raises `TaskError` and `HarnessError` as `small_sizes.judge`.

    With the plan of `small` sizes, the functional machine decides first (`program_first`). Untimed work holds a shared
    lease, unless `exclusive` asks for an exclusive one or the task needs much memory.
    """
    started = time.monotonic()
    advice, problem = case.reading.advice.findings, case.reading.problem
    attempt, first = Attempt(failed=problem), None
    if problem is None and small is not None and case.options.program_first:
        first = program_first.judged(case, small, _main_size(case))
    if first is not None and first.final:
        attempt = first.attempt
    elif problem is None:
        attempt = _on_the_gpu(case, gpu, exclusive, first)
    if first is not None:
        stages = {**attempt.environment.gpu_seconds, "program": round(first.seconds, 3)}
        attempt.note(gpu_seconds=stages)
    if attempt.failed is None:
        attempt.failed = guard_verdict(advice)
    return evaluation(case, attempt, advice, started, _backend(gpu))


def _on_the_gpu(case: Case, gpu: Gpu, exclusive: bool, first: First | None) -> Attempt:
    """Judges a candidate by its program, if that can be repeated, and else in a runner on the GPU."""
    began = time.time()
    elements = _main_size(case).elements
    laid = ROWS_BYTES if elements <= MOST_IN_ROWS else PAIR_BYTES
    gpu.expect(case.task.content_hash, (LEAST_BYTES + (laid if case.options.replay else 0)) * elements)
    found, before = ByProgram(None), 0.0
    if case.options.replay and not exclusive:
        found, before = _with_headroom(lambda: _by_program(case, gpu))
    why = found.why
    if found.dependent and case.options.live:
        found, lost = _with_headroom(lambda: _live(case, gpu))
        why, before = f"{why}; live: {found.why}" if found.why else why, before + lost
    if found.attempt is not None:
        quick = found.attempt
        quick.waited += before
        quick.findings += [f for f in [first.specialised(case.task) if first is not None else None] if f is not None]
        return quick
    if first is not None and first.program_only:
        attempt = first.attempt  # what holds values must not overturn what held none
        attempt.note(replayed=f"no: {why}"[:300] if why else "")
        return attempt

    def tried(exclusive: bool) -> Attempt:
        return _attempt(case, gpu, exclusive)

    attempt, lost = _with_headroom(lambda: tried(exclusive))
    attempt.waited += before + lost
    if attempt.failed is not None and _maybe_the_machine(attempt.failed, gpu.faults.since(began)):
        if attempt.failed.cause == "memory":
            gpu.more_headroom(case.task.content_hash, 0)
        attempt = _second(attempt, tried(exclusive=True))
    if why:
        attempt.note(replayed=f"no: {why}"[:300])
    return attempt


def _backend(gpu: Gpu) -> str:
    return "gpu" if gpu.device["name"] == "cuda" else "host"


@dataclass(frozen=True)
class ByProgram:
    """The outcome of judging a candidate by its program: an attempt that decides, or the reason why another must."""

    attempt: Attempt | None
    why: str = ""
    dependent: bool = False
    """True if the program could not be repeated, and nothing that was checked of it was found wrong."""
    log: str = ""
    """The traceback of a live device's first fault."""


def _by_program(case: Case, gpu: Gpu) -> ByProgram:
    """Judges a candidate by repeating its program, which decides if it is right. Raises `TooLarge` if a retry may have
    more memory."""
    why = "it has gradients" if wants_gradients(case.task.source) else ""
    if why:
        return ByProgram(None, why, dependent=True)
    return _with_handles(case, gpu, RepeatedProgram)


def _live(case: Case, gpu: Gpu) -> ByProgram:
    """Judges a candidate by executing its program as it arrives, which decides if it is right, or if a rule rejects it.
    Raises `TooLarge` as `_by_program`."""
    try:
        return _with_handles(case, gpu, LiveProgram)
    except Failed as failed:  # there is no live device
        return ByProgram(None, failed.reason)


def _with_handles(case: Case, gpu: Gpu, kind: type[RepeatedProgram | LiveProgram]) -> ByProgram:
    """Judges a candidate whose process holds handles."""
    why = "" if case.candidate.language in ("cuda", "triton") else f"it is {case.candidate.language}"
    why = why if case.options.baselines and case.options.timing_seconds > 0 else "no baseline is timed"
    if why or guard_verdict(case.reading.advice.findings) is not None:
        return ByProgram(None, why)
    attempt, rng = Attempt(), np.random.default_rng(case.seed)
    session = kind(case, gpu)
    attempt.level = session.level
    bench = GpuCase(case, gpu, session, attempt, rng, _main_size(case), value_kinds(case.plan))
    bench.one_by_one = session.live
    ended: Failed | None = None
    try:
        session.load(case.task)
        waiting = time.monotonic()
        with gpu.seat(case.task.content_hash, exclusive=False) as bench.seat:
            bench.took("seat", waiting)
            session.seated(bench.seat)
            try:
                with contextlib.nullcontext() if bench.seat.headroom else bench.has("exclusive"):
                    _full_size(bench)
            except (Failed, TooLarge):
                with contextlib.suppress(Failed):
                    session.release()  # the next attempt needs the memory
                raise
            session.release()
        session.confirm()
    except Failed as failed:
        ended = failed
    except TooLarge as error:
        _ask_for_headroom(bench)
        return ByProgram(None, str(error))
    finally:
        session.close()
    ended = ended or build_verdict(session, attempt) or attempt.failed
    if ended is None or (session.live and ended.verdict == "rejected"):
        attempt.failed = ended
        _note_program(attempt, bench, session)
        return ByProgram(attempt)
    said = ended.reason if ended.verdict == "unsupported" else f"{ended.verdict}: {ended.reason}"
    untraced = attempt.failed is None and ended.verdict != "timeout"
    log = session.seen.first_traceback if isinstance(session.seen, LiveReport) else ""
    return ByProgram(None, said, dependent=untraced, log=log)


def _note_program(attempt: Attempt, bench: GpuCase, session: RepeatedProgram | LiveProgram) -> None:
    """Records the road, and what a call does on it."""
    _note_session(attempt, bench)
    attempt.note(road=session.road, replayed=session.note())
    if isinstance(session, RepeatedProgram):
        attempt.note(issue_ms=round(session.issue_ms, 4))
        if not session.moves:
            attempt.note(own_kernel_share=1.0)
    attempt.log = log_of(session, attempt)


def _with_headroom(tried: Callable[[], _Tried]) -> tuple[_Tried, float]:
    """Retries with more memory after `TooLarge`. Returns the first attempt that fits and the seconds lost before."""
    began = started = time.monotonic()
    for _ in range(len(gpu_seats.HEADROOMS) + 1):  # the last but one has the whole GPU
        with contextlib.suppress(TooLarge):
            return tried(), started - began
        started = time.monotonic()
    return tried(), started - began


def _attempt(case: Case, gpu: Gpu, exclusive: bool) -> Attempt:
    """Judges a candidate in its own runner on the GPU. Raises `TooLarge` if a retry may have more memory."""
    attempt = Attempt()
    rng = np.random.default_rng(case.seed)
    words = case.reading.advice
    runner = gpu.runner(programs=words.starts_programs, streams=words.has_streams)
    session = CandidateClient(case.candidate, case.reading, case.options, case.pool, case.builder, runner)
    attempt.level = session.level
    attempt.note(road=session.road)
    bench = GpuCase(case, gpu, session, attempt, rng, _main_size(case), value_kinds(case.plan))
    try:
        session.load(case.task)
        others = _other_sizes(bench)
        bench.ruler = next((data.low_error for _, data in others), None)
        waiting = time.monotonic()
        with gpu.seat(case.task.content_hash, exclusive) as bench.seat:
            bench.took("seat", waiting)
            with contextlib.nullcontext() if bench.seat.headroom else bench.has("exclusive"):
                _with_a_seat(bench, others)
    except Failed as failed:
        attempt.failed = attempt.failed or failed
        if failed.cause == "device":
            gpu.faults.note()
    except TooLarge as error:
        _ask_for_headroom(bench)
        attempt.failed = Failed("unsupported", f"size: {error}"[:500])
    finally:
        _note_session(attempt, bench)
        session.close()
    attempt.failed = build_verdict(session, attempt) or attempt.failed
    attempt.log = log_of(session, attempt)
    return attempt


def _ask_for_headroom(bench: GpuCase) -> None:
    """Handles `TooLarge`: if there may be more headroom, reserves it for the next attempt and re-raises."""
    if _memory(bench)[1] or not (bench.seat.alone or bench.options.gpu_memory_gb):
        bench.gpu.more_headroom(bench.task.content_hash, bench.seat.headroom)
        raise


def _note_session(attempt: Attempt, bench: GpuCase) -> None:
    """Records the GPU and the builders that a judgement used, and its seconds by stage."""
    built_by = tuple(dict.fromkeys(result.built_by for result in bench.session.builds))
    stages = {stage: round(seconds, 3) for stage, seconds in sorted(bench.stages.items())}
    attempt.note(gpu_index=str(bench.gpu.device["index"]), built_by=built_by, gpu_seconds=stages)
    attempt.waited = bench.stages.get("lease", 0.0) + bench.stages.get("seat", 0.0)
    attempt.build_seconds = bench.session.build_seconds


def _with_a_seat(bench: GpuCase, others: list[tuple[Trial, TrialData]]) -> None:
    """Runs the whole judgement, once it has a seat and so a referee."""
    _full_size(bench)
    if bench.attempt.failed is None:
        with bench.has("shared"):
            _generality(bench, others)
    if bench.attempt.failed is not None or timing.graphs(bench):
        with bench.has("shared"):
            bench.session.exchange("", 0)


def _maybe_the_machine(failed: Failed, disturbed: bool) -> bool:
    """Tells whether a process or a device may have caused a failure by itself.

    A timeout counts only if another process's GPU fault may have caused it (`disturbed`).
    """
    if failed.verdict == "timeout":
        return disturbed
    return failed.verdict == "runtime_error" and failed.cause != ""


def _second(first: Attempt, again: Attempt) -> Attempt:
    """Chooses which of two attempts counts. The second ran in a fresh process; a fault in both is the candidate's."""
    assert first.failed is not None
    if again.failed is not None and again.failed.verdict == first.failed.verdict:
        first.findings.append(
            Finding(
                rule="repeated-fault", evidence="a second attempt in a fresh process ended likewise", severity="info"
            )
        )
        return first
    evidence = f"the first attempt ended with: {first.failed.reason}; a second one in a fresh process did not"
    again.findings.append(Finding(rule="unrepeated-fault", evidence=evidence[:900]))
    return again


def _tunes(bench: GpuCase) -> bool:
    """Tells whether a candidate may tune itself by timing kernels in its first call."""
    return not bench.replayed and bench.case.reading.advice.tunes


def _main_size(case: Case) -> Workload:
    """Returns the size to time: the workload with purpose `timing`, else the task's own, else the largest declared."""
    meant = [w for w in case.task.workloads if w.purpose == "timing"]
    if meant:
        return meant[0]
    return case.plan.declared or max(case.plan.workloads, key=lambda w: w.elements)


def _other_sizes(bench: GpuCase) -> list[tuple[Trial, TrialData]]:
    """Returns trials at the plan's other sizes with the oracle's data, computed before the GPU is leased."""
    made = []
    for index, workload in enumerate(w for w in bench.case.plan.workloads if w.name != bench.workload.name):
        kind = bench.kinds[index % len(bench.kinds)]
        trial = Trial(workload, kind, bench.seed(), bench.seed())
        precision = bench.case.precision
        made.append((trial, bench.case.oracle.trial(trial, trial.input_seed ^ 0x5EED, precision=precision)))
    return made[: max(1, bench.options.trials)]


def _full_size(bench: GpuCase) -> None:
    """Checks and times the main size. Sets `attempt.failed`; raises `Failed` if the judgement cannot go on."""
    _prepare(bench, randomise=True)
    for index in range(bench.options.trials):
        _checked_call(bench, bench.kinds[index % len(bench.kinds)], index, attest=index == 0)
        if bench.attempt.failed is not None:
            return
    bench.attempt.failed = idle_kernels(bench.attempt)
    if bench.attempt.failed is None and bench.options.timing_seconds > 0:
        (timing_in_rows if bench.replayed else timing).timed(bench)
        # Timed calls are not watched: one more checked call attests that the work is the candidate's own.
        if bench.attempt.failed is None and not bench.replayed:
            _checked_call(bench, "own", bench.options.trials, attest=True)


def _prepare(bench: GpuCase, randomise: bool) -> None:
    """Sets up task, weights and shared memory in referee and runner."""
    weight_seed = bench.seed()
    if bench.timed:
        bench.baseline("release")  # before the referee frees the block that it still holds
    model: dict[str, Any] = {"source": bench.task.source, "constants": bench.workload.constants}
    model |= {"weight_seed": weight_seed, "randomise": randomise, "precision": bench.case.precision}
    made_of = bench.ask("construct", **model)
    data = TrialData(made_of.header["values"], made_of.tensors, (), (), None, 1.0, (), ())
    bench.model = data, weight_seed
    with bench.in_one():
        answer = _asked_to_prepare(bench)
        bench.layout = answer.header
        with bench.has("exclusive" if _tunes(bench) else "shared"):
            bench.session.exchange(answer.header["handle"], answer.header["nbytes"])
            made = "" if bench.replayed else bench.session.make(data, weight_seed, keep=False)
    if isinstance(bench.session, RepeatedProgram):  # its host code needs no GPU, and so no lease
        bench.session.layout = answer.header
        made = bench.session.make(data, weight_seed, keep=False)
    if answer.header["slice_rows"]:
        bench.attempt.note(checked_in_slices=answer.header["slice_rows"])
    bench.weights = made if randomise else "seed"
    if randomise and bench.weights == "seed":
        # The candidate's weights have other names: both sides then keep the weights of the common seed.
        with bench.has("shared"):
            bench.session.exchange("", 0)
        _prepare(bench, randomise=False)
        return
    if bench.timed:
        bench.baseline("construct", **model, handle=answer.header["aside"], nbytes=answer.header["aside_nbytes"])


def _asked_to_prepare(bench: GpuCase) -> Frame:
    """Sends `prepare` to the referee and returns its answer."""
    memory, shared = _memory(bench)
    return bench.ask(
        "prepare",
        input_seed=bench.seed(),
        memory_bytes=memory,
        shared=shared,
        ruler=bench.ruler,
        baselines=bench.timed,
        slots=timing_in_rows.SLOTS if bench.replayed else [],
    )


def _memory(bench: GpuCase) -> tuple[int, bool]:
    """Returns the bytes that checking may take (0: all free ones), and whether a retry may have more."""
    asked, headroom = int(bench.options.gpu_memory_gb * 2**30), bench.seat.headroom
    shared = headroom > 0 and (not asked or asked > headroom)
    return headroom if shared else asked, shared


def _checked_call(bench: GpuCase, kind: Distribution, index: int, attest: bool) -> None:
    """Runs one verified call with all guards. With `attest`, also profiles one more call and lists its kernels."""
    attempt, session = bench.attempt, bench.session
    seed = bench.seed()
    first = index == 0
    large = bench.layout["largest_input"] > THOROUGH_ALWAYS
    with bench.in_one():
        with bench.has("exclusive" if first and _tunes(bench) else "shared"):
            facts = call(bench, kind, [seed], CallWay(watch=True, reuse=index == 2))
        check = CheckWay(thorough=first or not large, repeat="keep" if first else "")
        result = compared(bench, kind, seed, facts.outputs, check)
        if first and result.passed:
            _repeated(bench, kind, seed)
    if index == 1 and not result.passed and bench.weights in ("names", "order"):
        reason = (
            f"{result.reason}; the weights were changed before this call: does it keep what it made of earlier ones?"
        )
        result = result.changed(reason=reason)
    if first and result.passed:
        _reweigh(bench)
    if attest and attempt.failed is None and session.road == "in-process":
        profiled = call(bench, kind, [bench.seed()], CallWay(profile=True))
        bench.kernels, bench.span_ms, bench.busy_ms = profiled.kernels, profiled.span_ms, profiled.busy_ms
        _attest(bench, facts)
    built = any(b.status == "ok" for b in session.builds)
    forged = rules.unfounded(facts, built, bench.workload.name)
    if not facts.facts.launches and bench.own_kernels:
        # Our runtime does not launch kernels of other compilers (Triton, CuPy); the profiler has seen them.
        launches = [LaunchFacts(kernel=name, count=count) for name, count, _ in bench.own_kernels[:20]]
        facts = facts.model_copy(update={"facts": CallLaunches(launches=launches, written={"0": 1})})
        bench.seen_by_profiler = True
    largest = bench.layout["largest_input"]
    shared = rules.Shared(bench.layout["handed"], bench.layout["changed"])
    guarded = forged + rules.call_findings(facts, bench.policy, largest, bench.workload.name, shared)
    trial = Trial(bench.workload, kind, 0, seed)
    settle(attempt, session, CheckedCall(facts, result, trial, largest, guarded))


def _reweigh(bench: GpuCase) -> None:
    """Changes the weights in referee and candidate, so that results cached from the old weights show.

    Done only if weights were handed over. The baselines keep theirs, since values do not change their time.
    """
    if bench.weights not in ("names", "order"):
        return
    seed = bench.seed()
    answer = bench.ask("reweigh", weight_seed=seed)
    data = TrialData(answer.header["values"], answer.tensors, (), (), None, 1.0, (), ())
    bench.model = data, seed
    with contextlib.nullcontext() if bench.replayed else bench.has("shared"):
        bench.session.make(data, seed, keep=True)


def _repeated(bench: GpuCase, kind: Distribution, seed: int) -> None:
    """Repeats the first call on equal contents, to detect a candidate that was right by luck."""
    attempt = bench.attempt
    facts = call(bench, kind, [seed])
    result = compared(bench, kind, seed, facts.outputs, CheckWay(repeat="against"))
    if not result.passed:
        attempt.results.append(result)
        attempt.failed = Failed(
            "wrong", f"right at first, wrong when called again on equal inputs: {result.reason}"[:500]
        )
    elif bench.same_bits is False:
        evidence = "two calls on equal inputs gave other bits, both within the tolerance: atomics, or a race"
        finding = Finding(rule="nondeterministic", evidence=evidence, severity="info", workload=bench.workload.name)
        attempt.findings.append(finding)


def _attest(bench: GpuCase, facts: CallState) -> None:
    """Measures by the profiler what share of a call's device time the candidate's own kernels took."""
    kernels = bench.kernels
    own = bench.own_kernels = _own(kernels, bench.case.reading.advice.defined)
    total = sum(k[2] for k in kernels)
    if total <= 0:
        return
    share = sum(k[2] for k in own) / total
    if finding := _hidden_library(bench, facts, total):
        bench.attempt.findings.append(finding)
        bench.attempt.failed = Failed("rejected", f"{finding.rule}: {finding.evidence}"[:500], finding)
    bench.attempt.note(own_kernel_share=round(share, 3))
    if not bench.policy.startswith("libraries") and share < 0.5 and own:
        names = ", ".join(k[0][:60] for k in kernels if k not in own)
        evidence = f"own kernels take {share:.0%} of the device's time in a call, the rest is {names}"[:900]
        seen = Finding(rule="own-kernel-share", evidence=evidence, severity="warning", workload=bench.workload.name)
        if all(f.rule != seen.rule for f in bench.attempt.findings):
            bench.attempt.findings.append(seen)


def _hidden_library(bench: GpuCase, facts: CallState, total: float) -> Finding | None:
    """Returns a finding for library kernels that no operator of the call explains, or only ones too small for them.

    Ways to do this: calls past torch's dispatcher, by another thread, or from host code that torch itself has built.
    """
    kernels = [k for k in bench.kernels if k not in bench.own_kernels and not _MOVES_DATA.search(k[0])]
    if not kernels or allowed(bench.policy) == frozenset(LIBRARIES):
        return None
    taken = sum(k[2] for k in kernels)
    if rules.library_work(facts, bench.layout["largest_input"]):
        return None  # the operator log shows it, and `call_findings` decides
    shown = facts.operators or facts.library_ops
    if shown and (taken < HIDDEN_US or taken < 0.5 * total):
        return None
    names = ", ".join(k[0] for k in kernels)
    evidence = f"kernels of libraries computed in a call that shows no operator of theirs: {names}"[:900]
    return Finding(rule="hidden-library", evidence=evidence, severity="reject", workload=bench.workload.name)


def _own(kernels: list[Any], defined: Collection[str]) -> list[Any]:
    """Returns the kernels whose names match no library, or that the candidate's text defines by that exact name."""

    def named(name: str) -> bool:
        words = name.replace("(anonymous namespace)::", "").removeprefix("void ")
        *spaces, last = re.split(r"[<(]", words)[0].strip().split("::")
        return last in defined and not {"at", "cub", "thrust", "cutlass", "cudnn", "c10"} & set(spaces)

    return [k for k in kernels if not _of_library(k[0]) or named(k[0])]


def _of_library(name: str) -> bool:
    """Tells whether a kernel is a library's, by its name."""
    if _LIBRARY_KERNEL.search(name):
        return True
    words = (word for word in _WORD.findall(name) if "gemm_" in word)
    return any("_" in word[: word.rindex("gemm_")] for word in words)


def _generality(bench: GpuCase, others: list[tuple[Trial, TrialData]]) -> None:
    """Calls the candidate at other sizes. A failure decides at a declared size, and is a warning elsewhere."""
    attempt, session = bench.attempt, bench.session
    started = time.monotonic()
    try:
        _at_other_sizes(bench, attempt, session, others)
    finally:
        bench.took("other sizes", started)


def _at_other_sizes(
    bench: GpuCase, attempt: Attempt, session: CandidateClient, others: list[tuple[Trial, TrialData]]
) -> None:
    for trial, data in others:
        aside = Attempt()
        call_seed = trial.input_seed ^ 0x5EED
        try:
            if session.make(data, trial.weight_seed, keep=False) == "seed":
                continue  # weights cannot be handed over, and the oracle has computed with different ones
            answer = session.call(data, call_seed, reuse=False)
            # These calls are not profiled: kernels that only the profiler sees (Triton's, a graph's) would be missed.
            case = bench.case
            if bench.seen_by_profiler:
                case = replace(case, options=case.options.changed(policy="libraries"))
            check_outputs(aside, session, trial, data, answer, case)
        except Failed as failed:
            aside.failed = failed
        if trial.workload.scope == "declared":
            attempt.results.extend(aside.results)
            attempt.failed = aside.failed
        elif aside.failed is not None and _at_any_size(aside.failed):
            attempt.findings.extend(f for f in aside.findings if f not in attempt.findings)
            attempt.failed = aside.failed
        elif aside.failed is not None:
            sizes = sizes_in_words(bench.case.task.source, trial.workload.constants)
            evidence = f"right at the task's own size, but with {sizes}: {aside.failed.reason}"[:900]
            attempt.findings.append(Finding(rule="shape-specialised", evidence=evidence, workload=trial.workload.name))
        if aside.failed is not None:
            return


def _at_any_size(failed: Failed) -> bool:
    """Tells whether a candidate broke a rule that does not depend on the size."""
    rule = failed.finding.rule if failed.finding is not None else ""
    return failed.verdict == "rejected" and rule not in SIZE_RULES
