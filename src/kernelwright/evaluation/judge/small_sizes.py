"""Judges one candidate on one task on the functional machine, from received bytes and its own observations.

The judge owns seeds, tolerances, expected outputs and the verdict. It never executes or imports code of a task or a
candidate, and needs numpy but no torch. `verdict` documents the order of precedence.

A candidate that fails only at sizes the task never declared is `unsupported: shape-specialised`, not `wrong`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from kernelwright.evaluation.case import Case
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge import large_sizes
from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.judge.checked_call import check_outputs
from kernelwright.evaluation.judge.trial_choice import DECLARED_ELEMENTS, DECLARED_FLOPS, trial_list
from kernelwright.evaluation.judge.verdict import (
    KERNEL_COMPILE_ERROR,
    SIZE_RULES,
    build_verdict,
    compile_error,
    evaluation,
    guard_verdict,
    idle_kernels,
    log_of,
    machine_findings,
    with_policy,
)
from kernelwright.evaluation.options import SMALL_BUDGET
from kernelwright.evaluation.processes import messages
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.program_client import ProgramClient
from kernelwright.evaluation.trials import Trial
from kernelwright.records import (
    Distribution,
    Evaluation,
    Workload,
)

ESCALATE_ELEMENTS = 48_000_000
ESCALATE_FLOPS = 6_000_000_000
"""The bounds up to which the declared size is run after a failure at a size that the task does not state."""


def judge(case: Case) -> Evaluation:
    """Returns one evaluation.

    Raises `TaskError` when the reference fails, `HarnessError` when our own machinery does.
    """
    started = time.monotonic()
    advice = case.reading.advice.findings
    if case.reading.problem is not None:
        return evaluation(case, Attempt(failed=case.reading.problem), advice, started)
    attempt, trials = attempted(case)
    if attempt.failed is None:
        attempt.failed = guard_verdict(advice)
    for size in large_sizes.sizes_to_sample(case, trials) if attempt.launches else ():
        if attempt.failed is None:
            look_at_large(case, attempt, size, trials[0])
    return evaluation(case, attempt, advice, started)


def attempted(case: Case) -> tuple[Attempt, list[Trial]]:
    """Calls a candidate at the plan's sizes, and at the declared one to tell specialised code from wrong code."""
    small = case.options.small_sizes
    limit = (SMALL_BUDGET["element_budget"], SMALL_BUDGET["flop_budget"]) if small else None
    trials = trial_list(case.plan, case.options.trials, case.seed, limit or (DECLARED_ELEMENTS, DECLARED_FLOPS))
    attempt = _run(case, trials)
    failed, trial = attempt.failed, attempt.trial
    if failed is not None and trial is not None and size_may_be_why(failed, trial):
        attempt = _at_declared_size(case, attempt, limit or (ESCALATE_ELEMENTS, ESCALATE_FLOPS))
    if attempt.failed is None:
        attempt.failed = idle_kernels(attempt)
    elif attempt.failed.verdict == "unsupported":
        attempt.failed = with_policy(attempt.failed, case.rule)
    return attempt, trials


def look_at_large(case: Case, attempt: Attempt, size: Workload, trial: Trial) -> None:
    """Runs a sample of a right candidate's blocks at a size of its task that is too large to run whole."""
    seen = large_sizes.look(case, size, trial, attempt.stored_share)
    if not attempt.environment.sampled_size:
        attempt.note(sampled_size=seen.note)
    if seen.session is None:
        return
    attempt.build_seconds += seen.session.build_seconds
    found = machine_findings(seen.session, seen.faults, f"{size.name} (sampled)")[0]
    attempt.findings.extend(found)
    attempt.failed = large_sizes.verdict(found[0], size) if found else seen.failed
    if attempt.failed is not None:
        attempt.note(sampled_size=seen.note)


def _run(case: Case, trials: Sequence[Trial]) -> Attempt:
    """Runs trials in one fresh runner until one fails. Starts no runner if the first build fails."""
    attempt = _stillborn(case)
    if attempt is not None:
        return attempt
    attempt = Attempt()
    client = client_of(case)
    attempt.level = client.level
    attempt.note(road=client.road)
    try:
        client.load(case.task)
        for trial in trials:
            attempt.trial = trial
            call_seed = trial.input_seed ^ 0x5EED
            data = case.oracle.trial(trial, call_seed)
            if client.make(data, trial.weight_seed, trial.reuse) == "seed":
                # The candidate's weights have other names: both sides then keep the weights of the common seed.
                data = case.oracle.trial(trial, call_seed, randomise=False)
            answer = client.call(data, call_seed, trial.reuse)
            check_outputs(attempt, client, trial, data, answer, case)
            if attempt.failed is not None:
                break
    except Failed as failed:
        attempt.failed = failed
    finally:
        attempt.build_seconds = client.build_seconds
        attempt.library_ops.extend(name for name in client.refused if name not in attempt.library_ops)
        client.close()
    attempt.failed = build_verdict(client, attempt) or attempt.failed
    attempt.log = log_of(client, attempt)
    return attempt


def client_of(case: Case) -> CandidateClient:
    """Returns the client of a fresh candidate: with handles, unless its code runs on the CPU by right."""
    return in_process(case) if case.candidate.language == "cpp" else ProgramClient(case)


def in_process(case: Case) -> CandidateClient:
    """Returns the client of a fresh candidate whose process holds the values that it works on."""
    return CandidateClient(case.candidate, case.reading, case.options, case.pool, case.builder)


def _stillborn(case: Case) -> Attempt | None:
    """Returns the attempt of a candidate whose module cannot be executed, since its first build fails; else None."""
    request = case.reading.advice.first_build
    try:
        asked = messages.build_request({"request": request}) if request else None
    except messages.Unsound:
        return None
    if asked is None:
        return None
    started = time.monotonic()
    result = case.builder.build(asked, case.options.build_timeout)
    if result.status != "compile_error":
        return None
    log = f"[build 1: {result.status}]\n{result.log[-4000:]}"
    failed = compile_error(case.reading, asked, result.log)
    attempt = Attempt(failed=failed, log=log, level=case.builder.level)
    attempt.build_seconds = time.monotonic() - started
    return attempt


def size_may_be_why(failed: Failed, trial: Trial) -> bool:
    """Tells whether a failure could come from a size that the candidate was not written for."""
    if trial.workload.scope == "declared":
        return False
    if failed.verdict == "rejected":
        return failed.finding is not None and failed.finding.rule in SIZE_RULES
    if failed.verdict == "compile_error":  # Triton specialises kernels by the sizes of a call
        return failed.finding is not None and failed.finding.rule == KERNEL_COMPILE_ERROR
    return failed.verdict in ("wrong", "runtime_error")


def _at_declared_size(case: Case, attempt: Attempt, limit: tuple[int, int]) -> Attempt:
    """Tells a wrong candidate from one specialised to the task's own sizes, which are run up to the limit."""
    failed, trial = attempt.failed, attempt.trial
    assert failed is not None and trial is not None
    declared = case.plan.declared
    if declared is None:
        return attempt
    if 0 < declared.elements <= limit[0] and declared.flops <= limit[1]:
        kinds: list[Distribution] = ["own"] if trial.distribution == "own" else ["own", trial.distribution]
        trials = [
            Trial(declared, kind, trial.weight_seed, trial.input_seed + i, reuse=i > 0) for i, kind in enumerate(kinds)
        ]
        again = _run(case, trials)
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
    elif case.reading.advice.sizes & trial.workload.constants.keys():
        attempt.failed = _specialised(failed, trial, "the code holds the declared size, which is too large to run here")
    return attempt


def _specialised(failed: Failed, trial: Trial, why: str) -> Failed:
    sizes = ", ".join(f"{k}={v}" for k, v in trial.workload.constants.items())
    reason = f"shape-specialised: {why}; with {sizes}: {failed.reason}"
    return Failed("unsupported", reason[:500], failed.finding, failed.log)
