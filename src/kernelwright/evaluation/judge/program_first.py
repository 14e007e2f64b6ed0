"""Judges a candidate by its program on the functional machine, before a GPU is touched.

The candidate's process holds no values there, so a verdict against it is final on a GPU, too. Exceptions are verdicts
that a GPU may overturn: of a size that the task does not declare, of the machine's limits on time, memory and
instructions, and of features that the machine lacks. At the size that the GPU will time, a sample of the blocks is run
without values, and the rules hold there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from kernelwright.evaluation.case import Case
from kernelwright.evaluation.judge import declared_sizes, small_sizes
from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.judge.verdict import SIZE_RULES
from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.trials import TaskPlan, Trial
from kernelwright.records import Finding, Task, Workload
from kernelwright.tasks.reference import sizes_in_words

SECONDS = 5.0
"""The limit in wall seconds, builds not counted; most candidates need less than half a second."""
TRIALS = 3
"""The most trials."""
_OF_THE_MACHINE = ("instruction-budget",)
"""Faults that say only that the functional machine is slow."""
_BY_SIZE = (
    "exception",
    "invalid-launch",
    "misaligned-access",
    "out-of-bounds-read",
    "out-of-bounds-write",
)
"""Faults that a size which the code was not written for can cause."""


@dataclass(frozen=True)
class First:
    """The functional machine's judgement of a candidate."""

    attempt: Attempt
    seconds: float
    final: bool
    """True if its verdict holds on a GPU."""
    program_only: bool = False
    """True if its verdict holds unless the GPU finds the program right at the task's own size."""

    def specialised(self, task: Task) -> Finding | None:
        """Returns a warning for a candidate that is right at its task's own size only."""
        failed, trial = self.attempt.failed, self.attempt.trial
        if not self.program_only or failed is None or trial is None:
            return None
        sizes = sizes_in_words(task.source, trial.workload.constants)
        evidence = f"right at the task's own size, but with {sizes}: {failed.reason}"[:900]
        return Finding(rule="shape-specialised", evidence=evidence, workload=trial.workload.name)


def judged(case: Case, plan: TaskPlan, main: Workload) -> First | None:
    """Judges at a plan's small sizes, and by a sample at the size that the GPU will time.

    Returns None for a candidate in a language that drives no device.
    """
    if case.candidate.language == "cpp":
        return None
    started = time.monotonic()
    stated = [w.constants for w in case.plan.workloads if w.scope == "declared"]
    if any(all(w.constants != constants for w in plan.workloads) for constants in stated):
        plan = case.plan  # every stated size that can be run is run
    small = replace(case, plan=replace(plan, long=[]), options=_options(case.options))
    attempt, trials = small_sizes.attempted(small)
    failed, trial = attempt.failed, attempt.trial
    by_size = failed is not None and trial is not None and small_sizes.size_may_be_why(failed, trial)
    if (failed is None and attempt.launches) or by_size:
        attempt.failed = None
        _sample(small, attempt, main, trials)
        broken, attempt.failed = attempt.failed, attempt.failed or failed
        if broken is None and by_size:
            rule = failed.finding.rule if failed is not None and failed.finding is not None else ""
            only = not rule or rule in _BY_SIZE
            return First(attempt, time.monotonic() - started, not only and rule not in SIZE_RULES, only)
    return First(attempt, time.monotonic() - started, _final(attempt))


def _options(options: EvalOptions) -> EvalOptions:
    seconds, trials = min(options.timeout, SECONDS), min(options.trials, TRIALS)
    return options.changed(small_sizes=True, trials=trials, timeout=seconds)


def _sample(case: Case, attempt: Attempt, main: Workload, trials: list[Trial]) -> None:
    """Samples the GPU's main size, if it was not run whole."""
    if all(t.workload.constants != main.constants for t in trials):
        declared_sizes.sample(case, attempt, main, trials[0])


def _final(attempt: Attempt) -> bool:
    failed = attempt.failed
    if failed is None or failed.verdict in ("unsupported", "timeout") or failed.cause == "memory":
        return False
    return failed.finding is None or failed.finding.rule not in _OF_THE_MACHINE
