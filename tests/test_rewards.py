"""Rewards: every verdict, the published formulas at known points, and candidates without a reward."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.errors import ConfigError, PolicyError
from kernelwright.policies import Answer
from kernelwright.records import (
    VERDICTS,
    Candidate,
    Coverage,
    Environment,
    Evaluation,
    Finding,
    Message,
    SizeCoverage,
    SourceFile,
    Task,
    Timing,
    WorkloadResult,
)
from kernelwright.rewards.functions import REWARDS, annealed_judge_weight, load_reward
from kernelwright.rewards.opinion import SILENT, OpinionJudge, judge_messages, read_judgement
from kernelwright.training.rl.loop import judge_weight


def evaluation(
    verdict: str = "correct",
    ms: float | None = 1.0,
    eager: Any = 2.0,
    compiled: Any = 1.5,
    share: Any = None,
    builds: int | None = 1,
):
    timing = Timing(candidate_ms=ms, eager_ms=eager, compile_ms=compiled) if ms and verdict == "correct" else None
    return Evaluation(
        task_id="t",
        task_hash="0" * 64,
        candidate_id="1" * 64,
        verdict=verdict,
        reason="" if verdict == "correct" else "because",
        workloads=(WorkloadResult(name="declared", passed=verdict == "correct"),),
        timing=timing,
        findings=(Finding(rule="fallback", evidence="calls torch", severity="reject"),)
        if verdict == "rejected"
        else (),
        environment={"builds": builds, **({} if share is None else {"own_kernel_share": share})},
    )


def test_only_what_was_built_or_run_counts_as_compiled() -> None:
    """An exception before any build earned half a point once."""
    assert value("stanford", evaluation("runtime_error", builds=0)) == 0.0
    assert value("stanford", evaluation("wrong", builds=0)) == 0.0
    assert value("stanford", evaluation("wrong", builds=1)) == 0.5
    for verdict, compiled in (("wrong", True), ("runtime_error", False), ("timeout", False), ("compile_error", False)):
        assert evaluation(verdict, builds=None).compiled == compiled, "a record of an older version"


def value(name: str, e: Evaluation | None, **parameters: Any) -> float | None:
    reward = REWARDS[name](e, **parameters)
    assert reward.version.rpartition("-")[0] == name
    if reward.value is not None:
        assert reward.value == pytest.approx(sum(reward.parts.values()))
    return reward.value


@pytest.mark.parametrize("name", list(REWARDS))
@pytest.mark.parametrize("verdict", VERDICTS)
def test_only_what_was_judged_is_paid_or_blamed(name: str, verdict: str) -> None:
    found = value(name, evaluation(verdict))
    if verdict in ("harness_error", "unsupported"):
        assert found is None
    elif verdict == "correct":
        assert found is not None and found > 0
    elif name == "cuda_agent":
        assert found == -1.0
    elif name == "stanford" and verdict in ("wrong", "runtime_error", "timeout"):
        assert found == 0.5
    else:
        assert found == 0.0


@pytest.mark.parametrize("name", list(REWARDS))
def test_an_answer_without_a_candidate_is_worth_what_a_wrong_one_is_at_most(name: str) -> None:
    assert value(name, None) == (-1.0 if name == "cuda_agent" else 0.0)


def test_published_points() -> None:
    assert value("kevin", evaluation(ms=2.0, eager=3.0)) == pytest.approx(0.3 + 1.5)
    assert value("kevin", evaluation(ms=0.1, eager=3.0)) == pytest.approx(30.3)
    assert value("kevin", evaluation(ms=0.1, eager=3.0), cap=10) == pytest.approx(10.3)
    assert value("drkernel", evaluation(share="0.862")) == pytest.approx(1 + 2 + 0.862)
    assert value("drkernel", evaluation(ms=0.1), own_share=0.5, scale=0.5) == pytest.approx(0.5 * (1 + 3 + 0.5))
    # Makora's table: parity 0.55, half 0.43, twice 0.77, four times 0.96, correct and endlessly slow 0.31.
    for speedup, expected in ((1.0, 0.55), (0.5, 0.43), (2.0, 0.77), (4.0, 0.96), (1e-9, 0.31)):
        assert value("makora", evaluation(ms=1.0, compiled=speedup)) == pytest.approx(expected, abs=0.006)
    assert value("stanford", evaluation(ms=1.0, eager=9.0)) == pytest.approx(0.5 + 0.5 + 0.5)
    assert value("stanford", evaluation(ms=1.0, eager=1.5)) == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("ms", "expected"),
    [(1.0, 3.0), (1.42, 3.0), (1.43, 2.0), (1.89, 2.0), (1.91, 1.0), (3.0, 1.0)],
)
def test_milestones_at_five_percent(ms: float, expected: float) -> None:
    """Eager takes 2.0 ms and compiled 1.5 ms; the milestones are below 1.9 ms and below 1.425 ms."""
    assert value("cuda_agent", evaluation(ms=ms)) == expected


def test_exactly_five_percent_is_no_milestone_whatever_rounding_makes_of_it() -> None:
    for n in range(1, 2000):
        assert value("cuda_agent", evaluation(ms=19.0 * n, eager=20.0 * n, compiled=20.0 * n)) == 1.0
        assert value("cuda_agent", evaluation(ms=19.0 * n, eager=20.0 * n + 1e-3, compiled=None)) == 2.0


def test_faster_than_compile_only_is_the_first_milestone() -> None:
    assert value("cuda_agent", evaluation(ms=1.0, eager=1.0, compiled=5.0)) == 1.0
    assert value("cuda_agent", evaluation(ms=1.0, compiled=None)) == 2.0
    assert value("cuda_agent", evaluation(ms=2.0, compiled=3.0), continuous=True) == 1.5
    assert value("cuda_agent", evaluation("wrong"), continuous=True) == -1.0


def test_correct_but_not_timed_is_paid_for_being_correct_only() -> None:
    untimed = evaluation(ms=None)
    expected = {"stanford": 1.0, "kevin": 0.3, "drkernel": 1.0, "cuda_agent": 1.0, "makora": 1 / (1 + math.exp(0.8))}
    for name, amount in expected.items():
        assert value(name, untimed) == pytest.approx(amount)
        assert value(name, untimed, timed_only=True) is None
        assert value(name, evaluation("wrong"), timed_only=True) is not None


def test_a_rejected_candidate_gets_nothing_whatever_the_judge_says() -> None:
    assert value("stanford", evaluation("rejected"), judge=1.0) == 0.0
    assert value("stanford", evaluation("compile_error"), judge=0.8) == pytest.approx(0.4)
    assert value("stanford", evaluation("compile_error"), judge=0.8, judge_weight=0.0) == 0.0
    assert value("stanford", None, judge=1.0) == 0.0
    with pytest.raises(ConfigError):
        value("stanford", evaluation(), judge=1.5)


@pytest.mark.parametrize("name", list(REWARDS))
@pytest.mark.parametrize("verdict", ["wrong", "runtime_error", "timeout", "compile_error", "correct"])
def test_who_breaks_a_rule_gains_nothing_by_being_wrong_besides(name: str, verdict: str) -> None:
    finding = Finding(rule="fallback", evidence="calls torch", severity="reject")
    broken = evaluation(verdict).changed(findings=(finding,))
    opinion = {"judge": 1.0} if name == "stanford" else {}
    assert value(name, broken, **opinion) == value(name, evaluation("rejected"), **opinion)
    noted = evaluation(verdict).changed(findings=(finding.changed(severity="warning"),))
    assert value(name, noted, **opinion) == value(name, evaluation(verdict), **opinion)


@pytest.mark.parametrize("speedup", [-5.0, 0.0, math.inf, math.nan])
def test_only_finite_positive_speedups_are_paid(speedup: float) -> None:
    strange = evaluation().changed(timing=Timing(candidate_ms=1.0, speedup=speedup))
    for name in REWARDS:
        assert value(name, strange) == value(name, evaluation(ms=None))
        assert value(name, strange, timed_only=True) is None
    assert value("kevin", evaluation().changed(timing=Timing(candidate_ms=1.0, speedup=2.0))) == pytest.approx(2.3)
    assert value("kevin", evaluation(ms=math.inf)) == 0.3


def test_timed_only_asks_for_the_times_that_the_formula_has() -> None:
    no_compile, no_eager = evaluation(compiled=None), evaluation(eager=None)
    for name in ("stanford", "kevin", "drkernel"):
        assert value(name, no_compile, timed_only=True) is not None and value(name, no_eager, timed_only=True) is None
    assert value("makora", no_compile, timed_only=True) is None
    assert value("makora", no_eager, timed_only=True) is not None
    assert value("cuda_agent", no_compile, timed_only=True) is None is value("cuda_agent", no_eager, timed_only=True)
    assert value("cuda_agent", no_eager, timed_only=True, continuous=True) == 1.5


def test_a_share_that_is_no_number_is_none() -> None:
    attested = value("drkernel", evaluation(share="0.5"))
    assert value("drkernel", evaluation(share="0.5"), own_share=math.nan) == attested
    assert value("drkernel", evaluation(), own_share=math.nan) == value("drkernel", evaluation())
    assert value("drkernel", evaluation(share="0.5"), share=0.0) == value("drkernel", evaluation())


def test_the_judges_weight_begins_where_the_reward_says() -> None:
    assert judge_weight([], 0.1) == 0.1
    assert judge_weight([{"correct": 0.0}] * 4 + [{"correct": 0.375}], 0.1) == pytest.approx(0.05)
    for start in (-0.1, math.nan):
        with pytest.raises(ConfigError):
            annealed_judge_weight(0.0, start=start)


def test_an_answer_of_braces_is_read_in_no_time() -> None:
    for text in ("{" * 200_000, '{"a":' * 40_000):
        began = time.process_time()
        assert read_judgement(text).failure
        assert time.process_time() - began < 5.0
    assert read_judgement("{" * 200_000 + json.dumps(OPINION)).failure is None


def test_the_judge_is_annealed_off_once_execution_pays() -> None:
    weights = [annealed_judge_weight(c) for c in (0.0, 0.05, 0.075, 0.10, 0.5)]
    assert weights == pytest.approx([0.5, 0.5, 0.25, 0.0, 0.0])
    assert annealed_judge_weight(0.0, group_pays=True) == 0.0
    with pytest.raises(ConfigError):
        annealed_judge_weight(0.0, begins=0.2)


def test_a_judge_that_was_annealed_off_is_not_asked_again() -> None:
    shares, weights = [0.0, 0.02, 0.30, 0.02, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], []
    log: list[dict[str, float]] = []
    for share in shares:
        weights.append(judge_weight(log))
        log.append({"correct": share, "judge_weight": weights[-1]})
    # The mean of the last five steps: 0, 0.01, 0.107 and then less again, until nothing is right any more.
    assert weights == [0.5, 0.5, 0.5, *[0.0] * 7]
    assert judge_weight([{"correct": 0.0}] * 4 + [{"correct": 0.3}]) == pytest.approx(0.4)  # one step's luck


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.sampled_from(list(REWARDS)))
def test_faster_is_never_worth_less(ms: float, other: float, name: str) -> None:
    slow, fast = max(ms, other), min(ms, other)
    assert (value(name, evaluation(ms=fast)) or 0) >= (value(name, evaluation(ms=slow)) or 0) - 1e-12


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_parameter_that_is_no_finite_number_is_refused(bad: float) -> None:
    of = {
        "stanford": ("compiled", "correct", "speed", "cap", "judge_weight"),
        "kevin": ("correct", "cap"),
        "drkernel": ("cap", "scale", "share"),
        "cuda_agent": ("margin",),
        "makora": ("delta",),
    }
    assert list(of) == list(REWARDS)
    for name, parameters in of.items():
        for parameter in parameters:
            for judged in (evaluation(), evaluation("wrong"), None):
                with pytest.raises(ConfigError, match=f"{parameter} = "):
                    REWARDS[name](judged, **{parameter: bad})


def test_a_far_target_is_worth_next_to_nothing_and_no_error() -> None:
    assert value("makora", evaluation(), delta=1000.0) == 0.0
    assert value("makora", evaluation(), delta=-1000.0) == 1.0
    assert value("makora", evaluation(), delta=702.4) == pytest.approx(math.exp(-699.9))
    assert value("makora", evaluation(), delta=702.6) == pytest.approx(math.exp(-700.1))


@pytest.mark.parametrize("share", [math.nan, -0.1, 1.1, math.inf])
def test_the_judges_weight_goes_by_a_share(share: float) -> None:
    with pytest.raises(ConfigError, match="mean correctness"):
        annealed_judge_weight(share)


def test_unknown_names() -> None:
    with pytest.raises(ConfigError) as unknown:
        load_reward("kevn")
    assert "kevin" in str(unknown.value.hint)
    assert load_reward("kevin") is REWARDS["kevin"]


# The judge.

TASK = Task(task_id="relu", source="class Model: pass")
CANDIDATE = Candidate(sources=(SourceFile(path="c.py", content="class ModelNew: pass"),), language="cuda")
OPINION = {"reasoning": "fine", "compilability": 1.0, "correctness": 0.5, "speed": 0.0}


class Says:
    """A policy that gives set answers; it raises an answer that is an exception."""

    name = "says"

    def __init__(self, *answers: str | BaseException) -> None:
        self.answers = list(answers)
        self.seen: list[Sequence[Message]] = []

    def generate(self, messages: Sequence[Message], *, seed: int, task: Task | None = None) -> Answer:
        self.seen.append(messages)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return Answer(text=answer)


@pytest.mark.parametrize("form", ["{}", "```json\n{}\n```", 'Look: {{"a": {{"b": 1}}}} and then\n{}\nDone.'])
def test_an_opinion_is_read_from_however_it_is_wrapped(form: str) -> None:
    found = read_judgement(form.format(json.dumps(OPINION)))
    assert found.failure is None and found.score == pytest.approx(0.5) and found.reasoning == "fine"


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "It is good.",
        "{",
        "[1, 2]",
        json.dumps({**OPINION, "speed": 1.2}),
        json.dumps({**OPINION, "speed": -0.1}),
        json.dumps({**OPINION, "speed": "1"}),
        json.dumps({**OPINION, "speed": True}),
        json.dumps({**OPINION, "speed": math.nan}),
        json.dumps({k: v for k, v in OPINION.items() if k != "reasoning"}),
        "{" * 5000,
    ],
)
def test_what_is_no_opinion_is_a_failure_worth_nothing(answer: str) -> None:
    found = read_judgement(answer)
    assert found.failure and found.score == 0.0


def test_what_a_judge_drafts_while_it_reasons_is_no_opinion() -> None:
    draft, final = json.dumps({**OPINION, "speed": 1.0}), json.dumps(OPINION)
    assert read_judgement(f"<think>perhaps {draft}</think>I cannot say.").failure
    assert read_judgement(f"<think>perhaps {draft}").failure  # cut off
    assert read_judgement(f"<think>perhaps {draft}</think>{final}").scores["speed"] == 0.0


def test_failures_are_tried_again_and_counted() -> None:
    good = json.dumps(OPINION)
    judge = OpinionJudge(Says("what?", good, PolicyError("down"), "no", good))
    assert judge(TASK, CANDIDATE).score == pytest.approx(0.5)
    assert judge(TASK, CANDIDATE).failure is not None
    assert judge(TASK, CANDIDATE).failure is None
    assert (judge.asked, judge.failed) == (3, 1)


@pytest.mark.parametrize("error", [ValueError("boom"), TimeoutError(), RecursionError("deep"), OSError(5, "lost")])
def test_a_judge_that_raises_has_no_opinion(error: Exception) -> None:
    judge = OpinionJudge(Says(error, error, error, json.dumps(OPINION)))
    found = judge(TASK, CANDIDATE)
    assert found.score == 0.0 and str(found.failure).startswith("no answer: ") and len(str(found.failure)) > 11
    assert judge(TASK, CANDIDATE).failure is None  # asked once more, as after an answer that cannot be read
    assert (judge.asked, judge.failed) == (2, 1)


def test_a_judge_that_never_answers_is_not_asked_for_ever() -> None:
    """A dead endpoint takes half a minute a question: a step would wait for hours."""
    policy = Says("what?", *[PolicyError("down")] * SILENT, json.dumps(OPINION))
    judge = OpinionJudge(policy)
    found = [judge(TASK, CANDIDATE) for _ in range(9)]
    assert len(policy.seen) == 1 + SILENT, "an answer that cannot be read is one"
    assert (judge.asked, judge.failed, judge.reason) == (9, 9, "no answer: down")
    assert all(one.failure for one in found) and "not asked" in str(found[-1].failure)
    judge.resume()
    assert judge(TASK, CANDIDATE).failure is None


def test_a_judge_that_was_stopped_has_not_failed() -> None:
    """After Ctrl-C, a candidate must not keep a reward without an opinion."""
    judge = OpinionJudge(Says(json.dumps(OPINION)))
    judge.stop()
    with pytest.raises(PolicyError, match="stopped"):
        judge(TASK, CANDIDATE)
    assert judge.failed == 0


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_who_stops_the_run_stops_the_judge(stop: type[BaseException]) -> None:
    with pytest.raises(stop):
        OpinionJudge(Says(stop()))(TASK, CANDIDATE)


@pytest.mark.parametrize(
    "more",
    ['"speed": 1.0', '"reasoning": "better"', '"\\u0073peed": 0.0', '"x": {"a": 1, "a": 2}', '"x": [{"a": 1, "a": 1}]'],
)
def test_an_opinion_that_says_a_thing_twice_is_none(more: str) -> None:
    twice = json.dumps(OPINION)[:-1] + f", {more}}}"
    for answer in (twice, f"{json.dumps(OPINION)}\nNo: {twice}"):
        found = read_judgement(answer)
        assert found.score == 0.0 and "is there twice" in str(found.failure)
    assert read_judgement(f"{twice}\nNo: {json.dumps(OPINION)}").failure is None


def test_a_judge_is_shown_both_sources_and_the_form() -> None:
    system, user = judge_messages(TASK, CANDIDATE)
    assert system.role == "system"
    for part in (TASK.source, CANDIDATE.text, "compilability:", "correctness:", "speed:", '"reasoning"'):
        assert part in user.content


@pytest.mark.parametrize("name", list(REWARDS))
def test_a_coverage_may_be_required(name: str) -> None:
    def compared(*values: str) -> Evaluation:
        sizes = tuple(SizeCoverage.model_validate({"name": f"size {k}", "values": v}) for k, v in enumerate(values))
        return evaluation().changed(coverage=Coverage(sizes=sizes))

    rejected, right = value(name, evaluation("rejected")), value(name, evaluation())
    for found, full, sampled in (
        (compared("all", "all"), right, right),
        (compared("all", "sampled"), rejected, right),
        (compared("sampled", "none"), rejected, rejected),
        (compared(), rejected, rejected),
        (evaluation(), rejected, rejected),
    ):
        assert value(name, found) == right
        assert value(name, found, require_coverage="full") == full
        assert value(name, found, require_coverage="sampled") == sampled
    assert value(name, evaluation("wrong"), require_coverage="full") == value(name, evaluation("wrong"))
    with pytest.raises(ConfigError, match="no coverage"):
        value(name, evaluation(), require_coverage="whole")


@pytest.mark.parametrize("name", list(REWARDS))
def test_a_road_may_be_required(name: str) -> None:
    by_program = evaluation().changed(environment=Environment(road="program"))
    in_process = evaluation().changed(environment=Environment(road="in-process"))
    assert value(name, in_process) == value(name, by_program) == value(name, by_program, require_road="program")
    for found in (in_process, evaluation()):
        assert value(name, found, require_road="program") == value(name, evaluation("rejected"))
    assert value(name, evaluation("wrong"), require_road="program") == value(name, evaluation("wrong"))
    with pytest.raises(ConfigError, match="no road"):
        value(name, by_program, require_road="programs")
