"""Reward functions: an evaluation as a number for training. Pure, named and versioned, with their parts.

    reward = REWARDS["kevin"](evaluation)
    reward.value, reward.parts, reward.version          # 1.5, {"correct": 0.3, "speedup": 1.2}, "kevin-2"

All take an `Evaluation`, or None for an answer without a candidate, and parameters of their own. Harness errors and
unsupported candidates give no reward (value None) rather than zero: nothing was learnt about the candidate. A candidate
with a rejecting finding gets nothing, whatever its speed and verdict. A correct candidate that was not timed gets the
correctness part only; with `timed_only` it gets no reward if a time in the formula is missing. With
`require_road="program"` a correct candidate that was judged in the process that holds the values gets what a rejected
one gets. So does, with `require_coverage="full"`, one of whose task's sizes not all values were compared, and with
`"sampled"` one of which none were. Each function names its formula and paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pydantic import Field

from kernelwright.errors import ConfigError, did_you_mean
from kernelwright.records import Evaluation, Finding, Record


class Reward(Record):
    """The reward of one evaluation.

    Example: `Reward(value=1.5, parts={"correct": 0.3, "speedup": 1.2}, facts={"speedup": 1.2}, version="kevin-2")`.
    """

    value: float | None
    """None: no reward; leave the row out of baselines."""
    parts: dict[str, float] = Field(default_factory=dict)
    """The terms whose sum is the value."""
    facts: dict[str, float] = Field(default_factory=dict)
    """Measurements behind the value: `speedup` over eager, `compile_speedup` over torch.compile, `own_share`,
    `judge`."""
    version: str
    """The function's name and version. The version changes whenever the same evaluation would get another reward."""


RewardFunction = Callable[..., Reward]

PER_ANSWER = ("judge", "own_share")
"""Arguments that differ between answers, and so are not parameters of a run."""

ROADS = ("program",)
"""Roads that `require_road` can name (`Environment.road`)."""
COVERAGES: dict[str, tuple[str, ...]] = {"full": ("all",), "sampled": ("all", "sampled")}
"""Values that `require_coverage` can take, with the coverages (`Coverage.values`) that satisfy each."""
_UNJUDGED = ("harness_error", "unsupported")


def stanford(
    evaluation: Evaluation | None,
    *,
    compiled: float = 0.5,
    correct: float = 0.5,
    speed: float = 1.0 / 6.0,
    cap: float = 3.0,
    judge: float | None = None,
    judge_weight: float = 0.5,
    timed_only: bool = False,
    require_road: str = "",
    require_coverage: str = "",
) -> Reward:
    """`compiled + correct + speed * min(eager/own, cap) + judge_weight * judge`; each term needs the one before it.

    From the Stanford CS224R report, which does not state its weights: these read its 0.5, 1.0 and 1.5 as a ladder.
    `compiled` is paid where a build succeeded or a kernel ran (`Evaluation.compiled`), so an exception earns nothing.
    `judge` is an opinion in [0, 1] (`rewards.opinion`). It is paid for any verdict, but not with a rejecting finding;
    `annealed_judge_weight` says when to stop paying it. Raises `ConfigError`.
    """
    _check_finite(compiled=compiled, correct=correct, speed=speed, cap=cap, judge_weight=judge_weight)
    evaluation = _as_required(evaluation, require_road, require_coverage)
    version, facts = "stanford-3", _facts(evaluation)
    if unpaid := _unjudged(evaluation, version, facts, ("speedup",) if timed_only else ()):
        return unpaid
    parts: dict[str, float] = {}
    if evaluation is not None and evaluation.compiled and not _broke_a_rule(evaluation):
        parts["compiled"] = compiled
    if _correct(evaluation):
        parts["correct"] = correct
        parts["speedup"] = speed * min(facts.get("speedup", 0.0), cap)
    if judge is not None and evaluation is not None and not _broke_a_rule(evaluation):
        if not 0.0 <= judge <= 1.0:
            raise ConfigError(f"a judge's score of {judge} is not in [0, 1]")
        parts["judge"] = judge_weight * judge
        facts["judge"] = judge
    return _sum(parts, facts, version)


def annealed_judge_weight(
    mean_correctness: float,
    *,
    group_pays: bool = False,
    start: float = 0.5,
    begins: float = 0.05,
    ends: float = 0.10,
) -> float:
    """Returns the weight of a judge's opinion, given the share of correct samples.

    It is `start` up to a share of `begins`, falls linearly, and is 0 from `ends` on. It is 0 in a group whose rewards
    from execution differ (`group_pays`). Otherwise a policy could optimise the judge instead of execution.
    Raises `ConfigError`.
    """
    if not 0.0 <= mean_correctness <= 1.0:
        raise ConfigError(f"a mean correctness of {mean_correctness}", hint="give a share, from 0 to 1")
    if not 0.0 <= begins <= ends:
        raise ConfigError(f"the judge's weight falls from {begins} to {ends}", hint="use 0 <= begins <= ends")
    if not 0.0 <= start < math.inf:
        raise ConfigError(f"the judge's weight begins at {start}", hint="use at least 0")
    if group_pays or mean_correctness >= ends:
        return 0.0
    if mean_correctness <= begins:
        return start
    return start * (ends - mean_correctness) / (ends - begins)


def kevin(
    evaluation: Evaluation | None,
    *,
    correct: float = 0.3,
    cap: float | None = None,
    timed_only: bool = False,
    require_road: str = "",
    require_coverage: str = "",
) -> Reward:
    """`0.3 + eager/own` if correct, else 0 (arXiv 2507.11948; the paper has no cap, 10 is a sensible `cap`)."""
    _check_finite(correct=correct, cap=cap)
    evaluation = _as_required(evaluation, require_road, require_coverage)
    version, facts = "kevin-2", _facts(evaluation)
    if unpaid := _unjudged(evaluation, version, facts, ("speedup",) if timed_only else ()):
        return unpaid
    if not _correct(evaluation):
        return _sum({}, facts, version)
    speedup = facts.get("speedup", 0.0)
    return _sum({"correct": correct, "speedup": speedup if cap is None else min(speedup, cap)}, facts, version)


def drkernel(
    evaluation: Evaluation | None,
    *,
    own_share: float | None = None,
    cap: float = 3.0,
    scale: float = 1.0,
    share: float = 1.0,
    timed_only: bool = False,
    require_road: str = "",
    require_coverage: str = "",
) -> Reward:
    """`scale * (1 + min(eager/own, cap) + share * PR)` if correct, else 0 (arXiv 2602.05885; its code: scale 0.5).

    PR (profiling ratio) is the share of device time that the candidate's own kernels take in a call: `own_share` if
    given, else the evaluation's `own_kernel_share`, else 0. `share=0` drops the term, as in the paper's ablation.
    """
    _check_finite(cap=cap, scale=scale, share=share)
    evaluation = _as_required(evaluation, require_road, require_coverage)
    version, facts = "drkernel-2", _facts(evaluation)
    if unpaid := _unjudged(evaluation, version, facts, ("speedup",) if timed_only else ()):
        return unpaid
    if own_share is not None and math.isfinite(own_share):
        facts["own_share"] = own_share
    if not _correct(evaluation):
        return _sum({}, facts, version)
    own = min(max(facts.get("own_share", 0.0), 0.0), 1.0)
    speedup = min(facts.get("speedup", 0.0), cap)
    parts = {"correct": scale, "speedup": scale * speedup, "own_share": scale * share * own}
    return _sum(parts, facts, version)


def cuda_agent(
    evaluation: Evaluation | None,
    *,
    margin: float = 0.05,
    continuous: bool = False,
    timed_only: bool = False,
    require_road: str = "",
    require_coverage: str = "",
) -> Reward:
    """Milestones (arXiv 2602.24286): -1 wrong, 1 correct, 2 more than `margin` faster than eager, 3 than both.

    A reward of 3 needs both baselines beaten; a candidate faster than torch.compile only gets 1, as in the formula.
    `continuous` is the paper's ablation: compile/own, or -1.
    """
    _check_finite(margin=margin)
    evaluation = _as_required(evaluation, require_road, require_coverage)
    version, facts = "cuda_agent-3", _facts(evaluation)
    needs = ("compile_speedup",) if continuous else ("speedup", "compile_speedup")
    if unpaid := _unjudged(evaluation, version, facts, needs if timed_only else ()):
        return unpaid
    if not _correct(evaluation):
        return _sum({"wrong": -1.0}, facts, version)
    if continuous:
        return _sum({"compile_speedup": facts.get("compile_speedup", 0.0)}, facts, version)
    # (t0 - t) / t0 > margin, with t0 / t the speedup; exceed the margin by more than a rounding error
    saved = [1.0 - 1.0 / facts[k] if k in facts else -math.inf for k in ("speedup", "compile_speedup")]
    eager, compiled = (share > margin and not math.isclose(share, margin, abs_tol=1e-12) for share in saved)
    parts = {"correct": 1.0}
    if eager:
        parts["beats_eager"] = 1.0
        if compiled:
            parts["beats_compile"] = 1.0
    return _sum(parts, facts, version)


def makora(
    evaluation: Evaluation | None,
    *,
    delta: float = 1.8,
    timed_only: bool = False,
    require_road: str = "",
    require_coverage: str = "",
) -> Reward:
    """`sigmoid(1 + compile/own - delta)` if correct, else 0 (arXiv 2602.11000): a kernel at par gets 0.55."""
    _check_finite(delta=delta)
    evaluation = _as_required(evaluation, require_road, require_coverage)
    version, facts = "makora-2", _facts(evaluation)
    if unpaid := _unjudged(evaluation, version, facts, ("compile_speedup",) if timed_only else ()):
        return unpaid
    if not _correct(evaluation):
        return _sum({}, facts, version)
    raw = 1.0 + facts.get("compile_speedup", 0.0) - delta
    # for a very negative `raw`, exp(-raw) would overflow
    return _sum({"sigmoid": math.exp(raw) if raw < -700.0 else 1.0 / (1.0 + math.exp(-raw))}, facts, version)


REWARDS: dict[str, RewardFunction] = {
    "stanford": stanford,
    "kevin": kevin,
    "drkernel": drkernel,
    "cuda_agent": cuda_agent,
    "makora": makora,
}

BASELINES: dict[str, tuple[str, ...]] = {
    "stanford": ("eager",),
    "kevin": ("eager",),
    "drkernel": ("eager",),
    "cuda_agent": ("eager", "compile"),
    "makora": ("compile",),
}
"""The baselines that must be timed for the speed term, by reward."""


def load_reward(name: str) -> RewardFunction:
    """Returns the reward function with that name. Raises `ConfigError`."""
    if name in REWARDS:
        return REWARDS[name]
    raise ConfigError(
        f"there is no reward {name!r}", hint=did_you_mean(name, REWARDS, f"rewards: {', '.join(REWARDS)}")
    )


def _check_finite(**parameters: float | None) -> None:
    """Raises `ConfigError` for NaN and infinity: NaN makes every comparison false without an error."""
    for name, value in parameters.items():
        if value is not None and not math.isfinite(value):
            raise ConfigError(f"the reward's parameter {name} = {value} is no finite number")


def _as_required(evaluation: Evaluation | None, road: str, coverage: str) -> Evaluation | None:
    """Returns an evaluation as rejected if it is correct by another road than the required one, or with less coverage;
    "" requires none.

    Raises `ConfigError` for a road or a coverage that there is not.
    """
    if road and road not in ROADS:
        raise ConfigError(f"there is no road {road!r}", hint=did_you_mean(road, ROADS, f"roads: {', '.join(ROADS)}"))
    if coverage and coverage not in COVERAGES:
        known = f"coverages: {', '.join(COVERAGES)}"
        raise ConfigError(f"there is no coverage {coverage!r}", hint=did_you_mean(coverage, COVERAGES, known))
    if evaluation is None or not _correct(evaluation):
        return evaluation
    if road and evaluation.environment.road != road:
        used = evaluation.environment.road or "by an unknown road"
        return _rejected(evaluation, "road", f"judged {used}, and not by {road}")
    compared = evaluation.coverage.values if evaluation.coverage is not None else "none"
    if coverage and compared not in COVERAGES[coverage]:
        told = "; ".join(evaluation.coverage.told()) if evaluation.coverage is not None else "it is not known"
        return _rejected(evaluation, "coverage", f"the coverage is not {coverage}: {told or 'no size is stated'}")
    return evaluation


def _rejected(evaluation: Evaluation, rule: str, evidence: str) -> Evaluation:
    findings = (*evaluation.findings, Finding(rule=rule, evidence=evidence, severity="reject"))
    return evaluation.changed(verdict="rejected", reason=evidence, findings=findings, timing=None)


def _unjudged(
    evaluation: Evaluation | None, version: str, facts: Mapping[str, float], needs: Sequence[str]
) -> Reward | None:
    """Returns a reward without a value for an evaluation that has none, else None.

    An evaluation has no reward if the candidate was not judged, or is correct but lacks a measurement in `needs`.
    """
    if evaluation is None:
        return None
    if evaluation.verdict in _UNJUDGED or (_correct(evaluation) and any(name not in facts for name in needs)):
        return Reward(value=None, version=version)
    return None


def _broke_a_rule(evaluation: Evaluation) -> bool:
    """Tells whether a rule rejects the candidate; its verdict may still be `wrong`."""
    return evaluation.verdict == "rejected" or any(f.severity == "reject" for f in evaluation.findings)


def _correct(evaluation: Evaluation | None) -> bool:
    return evaluation is not None and evaluation.verdict == "correct" and not _broke_a_rule(evaluation)


def _facts(evaluation: Evaluation | None) -> dict[str, float]:
    """Returns the available measurements: finite, positive speedups and a finite share."""
    if evaluation is None:
        return {}
    facts: dict[str, float] = {}
    timing = evaluation.timing
    if timing is not None and timing.candidate_ms > 0:
        speedups = {
            name: baseline / timing.candidate_ms
            for name, baseline in (("speedup", timing.eager_ms), ("compile_speedup", timing.compile_ms))
            if baseline is not None
        }
        if not speedups and timing.speedup is not None:
            speedups["speedup"] = timing.speedup
        facts = {name: value for name, value in speedups.items() if 0.0 < value < math.inf}
    share = evaluation.environment.own_kernel_share  # None where it was not profiled
    return {**facts, "own_share": share} if share is not None and math.isfinite(share) else facts


def _sum(parts: dict[str, float], facts: dict[str, float], version: str) -> Reward:
    return Reward(value=sum(parts.values()), parts=parts, facts=facts, version=version)
