"""Reproduces KernelBench's verdict on a candidate, for comparison with published numbers.

Reference and candidate share one process, as in KernelBench, so the candidate can read the expected output and change
the inputs or the clock. The process is confined like every other, and its answers are claims: the evaluation names the
protocol and carries a warning. Verdicts of this module detect no cheating and must not serve as rewards.

Like `small_sizes`, this module executes no code of a task or a candidate; the child's side is `kernelbench_runner`.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from kernelwright.errors import TaskError
from kernelwright.evaluation.case import Submission
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.judge.verdict import evaluation, log_of
from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.gpu_seats import Gpu
from kernelwright.records import Evaluation, Finding, KernelBenchResult, Task, Timing, WorkloadResult
from kernelwright.tasks.reference import wants_gradients

PROTOCOL = "kernelbench"
TIMED_CALLS = 100
TIMEOUT_FACTOR = 10
"""The factor on the timeout, since one budget covers the reference's work too, and 2 x 104 calls: 300 s by default, as
in KernelBench's scripts."""

_WARNING = Finding(
    rule="unprotected-protocol",
    evidence="this is what KernelBench's evaluator would say: the candidate ran in one process with the reference and "
    "the clock, on inputs that are not copied, at one size with known seeds. Judge it without --strict-kernelbench "
    "before you believe it",
    severity="warning",
)


def judge_strict(case: Submission, gpu: Gpu | None) -> Evaluation:
    """Returns the evaluation, which is a claim.

    Raises `TaskError` when the reference cannot be loaded, `HarnessError` when our machinery fails.
    """
    started = time.monotonic()
    problem = case.reading.problem
    attempt = Attempt(failed=problem) if problem is not None else _attempt(case, gpu)
    attempt.note(protocol=PROTOCOL, kernelbench=kernelbench_result(attempt))
    backend = "cpu" if gpu is None else "gpu" if gpu.device["name"] == "cuda" else "host"
    return evaluation(case, attempt, [_WARNING], started, backend)


def _attempt(case: Submission, gpu: Gpu | None) -> Attempt:
    attempt, candidate, options = Attempt(), case.candidate, case.options
    longer = options.changed(timeout=options.timeout * TIMEOUT_FACTOR)
    advice = case.reading.advice
    child = gpu.runner(advice.starts_programs, advice.has_streams) if gpu is not None else None
    session = CandidateClient(candidate, case.reading, longer, case.pool, case.builder, child)
    attempt.level = session.level
    try:
        _load(session, case.task)
        if gpu is None:
            _checked(session, attempt, options)
        else:
            waiting = time.monotonic()
            with gpu.lease.exclusive():
                attempt.waited = time.monotonic() - waiting
                _checked(session, attempt, options)
                if attempt.failed is None and options.timing_seconds > 0:
                    _timed(session, attempt, on_gpu=gpu.device["name"] == "cuda")
    except Failed as failed:
        attempt.failed = failed
    finally:
        attempt.build_seconds = session.build_seconds
        session.close()
    # If our side could not do a build, the candidate may have fallen back to other code.
    undone = next((b for b in session.builds if b.status == "unsupported"), None)
    names = [*(undone.missing if undone else ()), *session.last.unsupported]
    if undone is not None or names:
        attempt.failed = Failed("unsupported", f"missing: {', '.join(map(str, names[:5])) or 'see the log'}"[:500])
    attempt.log = log_of(session, attempt)
    return attempt


def _load(session: CandidateClient, task: Task) -> None:
    """Loads both modules. Any failure while the candidate's module is executed counts as a compile error."""
    candidate = session.candidate
    fields: dict[str, Any] = {
        "source": session.source,
        "files": [[file.path, file.content] for file in candidate.sources[1:]],
        "entry_point": candidate.entry_point,
        "language": candidate.language,
    }
    fields["gradients"] = wants_gradients(task.source)
    try:
        answer = session.strict("load", "while it was loaded", reference=task.source, **fields)
    except Failed as failed:
        if failed.verdict == "runtime_error":
            raise Failed("compile_error", failed.reason, failed.finding, failed.log) from None
        raise
    if answer.problem:
        raise TaskError(
            f"task {task.task_id!r}: its reference cannot be loaded: {answer.problem}",
            hint="run the reference by itself to see the whole error",
        )
    session.strict("make", "in its constructor")


def _checked(session: CandidateClient, attempt: Attempt, options: EvalOptions) -> None:
    answer = session.strict(
        "check", "in its forward pass", trials=options.trials, tolerance=options.kernelbench_tolerance
    )
    if answer.problem:
        attempt.failed = Failed("unsupported", f"reference: {answer.problem}"[:500])
        return
    shapes, dtypes = tuple(tuple(s) for s in answer.shapes), tuple(answer.dtypes)
    for trial in answer.trials:
        attempt.results.append(WorkloadResult(name="declared", shape=shapes, dtype=dtypes, **trial.model_dump()))
    wrong = [w.reason for w in attempt.results if not w.passed]
    if wrong or len(attempt.results) != options.trials:
        passed = len(attempt.results) - len(wrong)
        reason = wrong[0] if wrong else "not all trials were run"
        attempt.failed = Failed("wrong", f"{reason} ({passed} of {options.trials} trials pass)"[:500])


def _timed(session: CandidateClient, attempt: Attempt, on_gpu: bool) -> None:
    started = time.monotonic()
    answer = session.strict("time", "while it was timed", calls=TIMED_CALLS, on_gpu=on_gpu)
    attempt.time_seconds = time.monotonic() - started
    ours, theirs = answer.candidate_ms, answer.reference_ms
    if answer.problem or not ours or not theirs:
        raise Failed("runtime_error", f"it was not timed: {answer.problem or 'no times came back'}"[:500])
    mean, reference = _stats(ours)["mean"], _stats(theirs)["mean"]
    attempt.timing = Timing(
        candidate_ms=mean,
        eager_ms=reference,
        speedup=reference / mean if mean else None,
        samples={"candidate": tuple(ours), "eager": tuple(theirs)},
    )


def _stats(samples: tuple[float, ...] | list[float]) -> dict[str, float]:
    """Returns mean, std, min and max to three significant digits, as KernelBench reports times."""
    spread = statistics.pstdev(samples)
    values = {"mean": statistics.fmean(samples), "std": spread, "min": min(samples), "max": max(samples)}
    return {name: float(f"{value:.3g}") for name, value in values.items()}


def kernelbench_result(attempt: Attempt) -> KernelBenchResult:
    """Returns the fields of KernelBench's own result."""
    failed, timing = attempt.failed, attempt.timing
    compiled = failed is None or failed.verdict not in ("compile_error", "unsupported")
    if timing is None or failed is not None:
        return KernelBenchResult(compiled=compiled, correctness=failed is None)
    candidate, eager = _stats(timing.samples["candidate"]), _stats(timing.samples["eager"])
    return KernelBenchResult(
        compiled=compiled,
        correctness=True,
        runtime=candidate["mean"],
        ref_runtime=eager["mean"],
        runtime_stats=candidate,
        ref_runtime_stats=eager,
    )
