"""Judges one candidate on one task on the functional machine, from received bytes and its own observations.

The judge owns seeds, tolerances, expected outputs and the verdict. It never executes or imports code of a task or a
candidate, and needs numpy but no torch. `verdict` documents the order of precedence.

What could not be run at the sizes that the task states is left to `declared_sizes`. A candidate that fails only at
sizes the task never declared is `unsupported: shape-specialised`, not `wrong`.
"""

from __future__ import annotations

import time

from kernelwright.evaluation.case import Case
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge import declared_sizes
from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.judge.trial_choice import DECLARED_ELEMENTS, DECLARED_FLOPS, trial_list
from kernelwright.evaluation.judge.trial_runs import run
from kernelwright.evaluation.judge.verdict import (
    KERNEL_COMPILE_ERROR,
    SIZE_RULES,
    evaluation,
    guard_verdict,
    idle_kernels,
    with_policy,
)
from kernelwright.evaluation.options import SMALL_BUDGET
from kernelwright.evaluation.trials import Trial
from kernelwright.records import Distribution, Evaluation
from kernelwright.tasks.reference import sizes_in_words

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
    if attempt.failed is None:
        declared_sizes.cover(case, attempt, trials)
    return evaluation(case, attempt, advice, started)


def attempted(case: Case) -> tuple[Attempt, list[Trial]]:
    """Calls a candidate at the plan's sizes, and at the declared one to tell specialised code from wrong code."""
    small = case.options.small_sizes
    limit = (SMALL_BUDGET["element_budget"], SMALL_BUDGET["flop_budget"]) if small else None
    trials = trial_list(case.plan, case.options.trials, case.seed, limit or (DECLARED_ELEMENTS, DECLARED_FLOPS))
    attempt = run(case, trials)
    failed, trial = attempt.failed, attempt.trial
    if failed is not None and trial is not None and size_may_be_why(failed, trial):
        attempt = _at_declared_size(case, attempt, limit or (ESCALATE_ELEMENTS, ESCALATE_FLOPS))
    if attempt.failed is None:
        attempt.failed = idle_kernels(attempt)
    elif attempt.failed.verdict == "unsupported":
        attempt.failed = with_policy(attempt.failed, case.rule)
    return attempt, trials


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
        again = run(case, trials)
        again.build_seconds += attempt.build_seconds
        if again.failed is None or not again.undecided():
            again.results = attempt.results + again.results
            if again.failed is None:
                again.failed = _specialised(case, failed, trial, "it is right at the size that the task declares")
            return again
    kept = [r for r in attempt.results if r.scope == "batch_reduced" and r.passed]
    if trial.workload.scope == "reduced" and kept:
        attempt.failed = _specialised(case, failed, trial, "it is right where only the batch is smaller")
    elif held := case.reading.advice.sizes & trial.workload.constants.keys():
        _where_sizes_are_kept(case, attempt, frozenset(held))
    return attempt


def _where_sizes_are_kept(case: Case, attempt: Attempt, held: frozenset[str]) -> None:
    """Decides about code that holds declared sizes, such as a tile's: it is specialised only if it is right where these
    sizes, by the names `held`, keep their declared values."""
    failed, trial = attempt.failed, attempt.trial
    assert failed is not None and trial is not None
    names = ", ".join(sorted(held))
    keeping = [w for w in (*case.plan.workloads, *case.plan.long) if w.constants and not held & w.constants.keys()]
    if keeping:
        size = min(keeping, key=lambda w: w.elements)
        again = run(case, [Trial(size, "own", trial.weight_seed, trial.input_seed)])
        attempt.build_seconds += again.build_seconds
        if again.failed is None:
            attempt.failed = _specialised(case, failed, trial, f"it is right with the declared {names}")
            return
        if not again.undecided():
            return
    attempt.failed = _specialised(case, failed, trial, f"the code holds the declared {names}, too large to run here")


def _specialised(case: Case, failed: Failed, trial: Trial, why: str) -> Failed:
    sizes = sizes_in_words(case.task.source, trial.workload.constants)
    reason = f"shape-specialised: {why}; with {sizes}: {failed.reason}"
    return Failed("unsupported", reason[:500], failed.finding, failed.log)
