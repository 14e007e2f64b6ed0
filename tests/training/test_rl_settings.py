"""Errors of RL settings before a run plays anything: settings that would fail, or reward less than they say."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kernelwright.errors import ConfigError
from kernelwright.evaluation import EvalOptions
from kernelwright.rewards import BASELINES, REWARDS
from kernelwright.training.rl.settings import RlSettings, judge_start


def settings(**more: Any) -> RlSettings:
    return RlSettings.model_validate({"model": {"path": "m"}, "tasks": {"suite": "s"}, **more})


def reward(name: str, **parameters: Any) -> dict[str, Any]:
    return {"reward": {"name": name, "parameters": parameters}, "judging": {"backend": "cpu"}}


def advantage(name: str, **parameters: Any) -> dict[str, Any]:
    return {"advantage": {"name": name, "parameters": parameters}}


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (advantage("kevin", gamma="abc"), "gamma = 'abc'"),
        (advantage("trloo", gamma=2), "gamma = 2"),
        (advantage("kevin", aggregate="mean"), "no aggregate 'mean'"),
        (advantage("grpo", eps=-1), "eps = -1"),
        (reward("kevin", cap="abc"), "cap = 'abc'"),
        (reward("kevin", timed_only="no"), "timed_only = 'no'"),
        (reward("stanford", correct=float("inf")), "no finite number"),
        (reward("stanford", compiled=float("nan")), "no finite number"),
        (reward("makora", delta=1e4), "makora pays all answers alike"),
        (reward("cuda_agent", margin=float("nan")), "margin = nan is no finite number"),
        (reward("kevin", cap=float("inf")), "cap = inf is no finite number"),
        (reward("stanford", judge_weight=float("nan")), "judge_weight = nan"),
        (advantage("trloo", gamma=float("nan")), "gamma = nan"),
        (reward("kevin", cap=-1), "right answer less than a wrong one"),
        (reward("drkernel", scale=-0.5), "right answer less"),
        (reward("stanford", judge=0.5), "no parameter 'judge'"),
        (reward("drkernel", own_share=0.5), "no parameter 'own_share'"),
        ({"filters": {"low": 2}}, "low"),
        ({"filters": {"high": 0.5}}, "high"),
        ({"filters": {"veto": -1}}, "veto"),
        (reward("stanford", compiled=-1.0), "pays a right answer less than an answer without a candidate"),
        (reward("drkernel", scale=-1.0), "pays a right answer less than"),
        ({"judging": {"baselines": "foo"}}, "no 'foo'"),
        ({"judging": {"baselines": "eager,compil"}}, "did you mean 'compile'"),
        ({"rejection": {"reward": "kevn"}}, "kevin"),
        ({"train": {"lr": float("inf")}}, "train.lr"),
        ({"train": {"steps": 10**26}}, "train.steps"),
        ({"train": {"lr": True}}, "train.lr\n.*a number is wanted"),
        ({"train": {"steps": True}}, "train.steps\n.*a number is wanted"),
        ({"train": {"seconds": True}}, "train.seconds\n.*a number is wanted"),
        ({"seed": False}, "seed\n.*a number is wanted"),
        ({"rollout": {"temperature": True}}, "rollout.temperature\n.*a number is wanted"),
        ({"rejection": {"train": {"epochs": True}}}, "rejection.train.epochs\n.*a number is wanted"),
        ({"rollout": {"rollouts": 100_000}}, "rollout.rollouts"),
        ({"rollout": {"tasks": 1_000, "rollouts": 1_000}}, "1000 x 1000 rollouts: at most 65536"),
        ({"rollout": {"temperature": float("inf")}}, "rollout.temperature"),
        ({"filters": {"high": float("inf")}}, "filters.high"),
        ({"alarms": {"hacked": float("nan")}}, "alarms.hacked"),
        ({"judging": {"timeout": float("inf")}}, "judging.timeout"),
        ({"judging": {"timeout": 1e300}}, "judging.timeout"),
        ({"judging": {"timing_seconds": float("inf")}}, "judging.timing_seconds"),
        ({"judging": {"trials": 101}}, "judging.trials"),
        ({"judging": {"gpu_trials": 101}}, "judging.gpu_trials"),
        ({"judging": {"jobs": 10**6}}, "judging.jobs"),
        ({"rejection": {"collect": {"temperature": float("inf")}}}, "rejection.collect.temperature"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
    ],
)
def test_what_would_fail_after_a_step_is_refused_before_it(table: dict[str, Any], match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        settings(**table)


def test_what_a_run_may_say_of_judging_an_evaluation_takes() -> None:
    """An unaccepted setting would raise an error only at the first candidate."""
    most = settings(judging={"backend": "cpu", "trials": 100, "timeout": 86_400.0, "timing_seconds": 86_400.0})
    fields = most.judging.model_dump(include={"backend", "trials", "timeout", "timing_seconds"})
    asked = EvalOptions.model_validate(fields)
    assert asked.changed(timeout=10 * asked.timeout, strict_kernelbench=True).trials == 100


TIMING = {"backend": "gpu", "baselines": "eager,compile"}


@pytest.mark.parametrize(
    "untimed", [{"backend": "cpu"}, {**TIMING, "timing_seconds": 0.0}, {**TIMING, "baselines": "none"}]
)
def test_a_reward_for_times_is_refused_where_nothing_is_timed(untimed: dict[str, Any]) -> None:
    for table, match in (
        (reward("kevin", correct=0.0), "pays all answers alike .*this run times nothing"),
        (reward("kevin", timed_only=True), "gives right answers no reward .*this run times nothing"),
        (reward("makora", timed_only=True), "gives right answers no reward .*this run times nothing"),
    ):
        settings(**{**table, "judging": TIMING})
        with pytest.raises(ValidationError, match=match):
            settings(**{**table, "judging": untimed})


def test_every_reward_and_its_usual_parameters_pass() -> None:
    assert set(BASELINES) == set(REWARDS)
    for table in (
        reward("kevin", cap=10),
        reward("stanford", judge_weight=0.1, cap=3),
        reward("drkernel", scale=0.5, share=0.0),
        {**reward("cuda_agent", continuous=True, timed_only=True), "judging": TIMING},
        reward("makora"),
        advantage("kevin", gamma=1, aggregate="max"),
        advantage("grpo", eps=0.0, ddof=0),
        {"filters": {"low": 1, "high": 1}},
        {"seed": 2**32 - 1},
        {"rollout": {"tasks": 64, "rollouts": 1024}},
        {"judging": {"trials": 100, "gpu_trials": 100, "timeout": 86_400.0}},
    ):
        settings(**table)


@pytest.mark.parametrize("name", ["makora", "cuda_agent"])
def test_a_reward_for_speed_over_compile_needs_its_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[str, Any] = {"reward": {"name": name}}
    monkeypatch.setenv("KERNELWRIGHT_BACKEND", "cpu")
    settings(**table)  # `auto` means the CPU there, which times nothing
    monkeypatch.setenv("KERNELWRIGHT_BACKEND", "gpu")
    with pytest.raises(ValidationError, match="time of compile.*judging.baselines=eager,compile"):
        settings(**table)
    with pytest.raises(ValidationError, match="time of compile"):
        settings(**table, judging={"backend": "gpu"})
    for judging in (
        {"backend": "cpu"},
        {"timing_seconds": 0.0},
        {"baselines": "none"},
        {"baselines": "eager, compile"},
    ):
        settings(**table, judging=judging)
    settings(**table, judging={"baselines": "eager,max-autotune"})
    with pytest.raises(ValidationError, match="time of eager"):
        settings(judging={"baselines": "compile"})


def test_a_judge_is_for_a_reward_that_pays_its_opinion() -> None:
    with pytest.raises(ValidationError, match="kevin has no term for judging.judge"):
        settings(judging={"judge": "echo"})
    asked = {"judge": "echo"}
    assert judge_start(settings(judging=asked, reward={"name": "stanford"})) == 0.5
    given = settings(judging=asked, reward={"name": "stanford", "parameters": {"judge_weight": 0.1}})
    assert judge_start(given) == 0.1
    with pytest.raises(ValidationError, match="begins at -0.1"):
        settings(judging=asked, reward={"name": "stanford", "parameters": {"judge_weight": -0.1}})


def test_on_the_command_line_it_is_an_error_of_settings(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelwright.config import load_config

    monkeypatch.setenv("KERNELWRIGHT_BACKEND", "gpu")
    path = tmp_path / "rl.yaml"
    path.write_text("model: {path: x}\ntasks: {suite: starter}\n")
    with pytest.raises(ConfigError, match="makora needs the time of compile"):
        load_config(path, ["reward.name=makora"], RlSettings)


STATED: dict[str, dict[str, Any]] = {
    "stanford_grpo": {
        "seed": 42,
        "model.tune": "lora",
        "model.lora.r": 32,
        "rollout.rollouts": 6,
        "rollout.turns": 1,
        "reward.name": "stanford",
        "reward.parameters.cap": 3.0,
        "advantage.name": "mean",
        "train.steps": 200,
        "train.updates": 1,
        "train.lr": 1e-5,
        "train.normalise": "token",
    },
    "kevin": {
        "rollout.tasks": 8,
        "rollout.rollouts": 16,
        "rollout.turns": 4,
        "rollout.context": "summary",
        "rollout.temperature": 0.9,
        "rollout.max_tokens": 16_384,
        "reward.name": "kevin",
        "reward.parameters": {},
        "advantage.name": "kevin",
        "advantage.parameters.gamma": 0.4,
        "advantage.parameters.aggregate": "sum",
        "train.steps": 40,
        "train.updates": 2,
        "train.clip_low": 0.2,
        "train.clip_high": 0.28,
        "train.normalise": "constant",
        "train.clip": 0.05,
    },
    "drkernel": {
        "rollout.tasks": 16,
        "rollout.rollouts": 16,
        "rollout.turns": 3,
        "rollout.temperature": 1.0,
        "rollout.top_p": 1.0,
        "rollout.max_tokens": 8192,
        "reward.name": "drkernel",
        "reward.parameters": {"cap": 3.0, "scale": 0.5},
        "advantage.name": "trloo",
        "advantage.parameters": {"gamma": 1.0, "single": "skip"},
        "filters.mismatch": True,
        "filters.low": 0.999,
        "filters.high": 1.001,
        "filters.veto": 1e-4,
        "filters.profiling": True,
        "train.steps": 300,
        "train.lr": 1e-6,
        "train.clip_low": 0.2,
        "train.clip_high": 0.28,
        "train.clip": 1.0,
    },
    "cuda_agent_rft": {
        "rollout.turns": 1,
        "reward.name": "cuda_agent",
        "train.updates": 1,
        "train.lr": 3e-6,
        "train.clip_low": 0.2,
        "train.clip_high": 0.28,
        "judging.baselines": "eager,compile",
        "rejection.reward": "cuda_agent",
        "rejection.loss.name": "sft",
    },
}
"""The settings that papers, or their released code, state."""


@pytest.mark.parametrize("recipe", list(STATED))
def test_recipes_have_the_numbers_of_their_papers(recipe: str) -> None:
    from kernelwright.config import load_config
    from kernelwright.training.fine_tune.settings import recipe_path

    found = load_config(recipe_path(recipe), [], RlSettings).model_dump()
    for name, value in STATED[recipe].items():
        inner: Any = found
        for part in name.split("."):
            inner = inner[part]
        assert inner == value, name
    assert found["rollout"]["tasks"] * found["rollout"]["rollouts"] == 1024 or recipe != "cuda_agent_rft"
