"""Flags out of range, and recipe settings that `--set` changes: refused by name, or applied as meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running import Command

from kernelwright.cli.options import library_rule
from kernelwright.config import load_config
from kernelwright.errors import ConfigError
from kernelwright.evaluation import EvalOptions
from kernelwright.training.fine_tune.settings import recipe_path
from kernelwright.training.rl.settings import RlSettings

SEEDED = {
    "eval": ("task.py", "candidate.py"),
    "optimize": ("relu", "--run", "run"),
    "profile": ("task.py", "candidate.py"),
    "bench": ("starter", "--run", "run"),
    "tasks generate": (),
    "solutions tune": ("relu", "--run", "run"),
}


@pytest.mark.parametrize("verb", SEEDED)
@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_bad_usage(kernelwright: Command, tmp_path: Path, verb: str, seed: int) -> None:
    words = [str(tmp_path / "run") if word == "run" else word for word in SEEDED[verb]]
    done = kernelwright(*verb.split(), *words, "--seed", seed)
    assert done.returncode == 2 and "--seed" in done.stderr and "bug" not in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", ["pretrain", "sft", "dpo", "rl"])
def test_an_empty_name_is_no_folder_of_a_run(kernelwright: Command, tmp_path: Path, verb: str) -> None:
    """An unset shell variable leaves an empty name; the run would be written into the current folder."""
    done = kernelwright("train", verb, "settings.yaml", "--out", "", cwd=tmp_path)
    assert done.returncode == 2 and "--out" in done.stderr and "empty" in done.stderr, done.stderr
    assert "settings.yaml" not in done.stderr and not list(tmp_path.iterdir())


def test_the_largest_seed_is_taken(kernelwright: Command) -> None:
    done = kernelwright("tasks", "generate", "--count", 1, "--seed", 2**32 - 1, "--json")
    assert done.returncode == 0 and done.stdout.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    ("rule", "policy", "short", "found"),
    [
        ("from_scratch", None, False, "from_scratch"),
        (None, None, False, None),
        (None, "libraries:cub", False, "libraries:cub"),
        (None, None, True, "libraries_allowed"),
        (None, "libraries", True, "libraries"),
        ("libraries_allowed", "libraries", True, "libraries_allowed"),
    ],
)
def test_the_library_rule_by_its_older_flags(
    rule: str | None, policy: str | None, short: bool, found: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The older flags of `eval` keep their meaning; one line on stderr announces their removal."""
    assert library_rule(rule, policy, short) == found
    said = capsys.readouterr().err
    assert said.count("warning:") == said.count("\n") == int(policy is not None or short)


def test_library_rules_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="--rule and --libraries-allowed contradict"):
        library_rule("from_scratch", None, True)


def test_both_spellings_of_a_library_rule_are_stored_as_one() -> None:
    assert EvalOptions(policy="libraries_allowed") == EvalOptions(policy="libraries")
    assert EvalOptions(policy="libraries_allowed").plain()["policy"] == "libraries"


def recipe(name: str, *overrides: str) -> RlSettings:
    return load_config(recipe_path(name), overrides, RlSettings)


@pytest.mark.parametrize(
    ("name", "overrides", "reward", "parameters"),
    [
        ("starter_rl", ("reward.name=makora", "judging.baselines=eager,compile"), "makora", {}),
        ("starter_rl", ("reward.name=cuda_agent", "judging.baselines=eager,compile"), "cuda_agent", {}),
        ("starter_rl", ("reward.name=kevin",), "kevin", {"cap": 10.0}),
        ("starter_rl", ("reward.parameters.cap=2.0", "reward.name=drkernel"), "drkernel", {"cap": 2.0}),
        ("drkernel", ("reward.parameters.cap=2.0",), "drkernel", {"cap": 2.0, "scale": 0.5}),
    ],
)
def test_another_reward_brings_its_own_parameters(
    name: str, overrides: tuple[str, ...], reward: str, parameters: dict[str, Any]
) -> None:
    found = recipe(name, *overrides).reward
    assert (found.name, found.parameters) == (reward, parameters)


def test_another_advantage_brings_its_own_parameters() -> None:
    found = recipe("drkernel", "advantage.name=grpo")
    assert (found.advantage.name, found.advantage.parameters) == ("grpo", {})
    assert found.reward.parameters == {"cap": 3.0, "scale": 0.5}


def test_a_recipe_with_a_suite_can_be_given_generated_tasks() -> None:
    found = recipe("kevin", "tasks.suite=null", "tasks.count=8", "judging.judge=null")
    assert (found.tasks.suite, found.tasks.count, found.judging.judge) == (None, 8, None)


def test_what_a_name_does_not_take_is_told_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="kevin has no parameter 'gap'") as caught:
        recipe("starter_rl", "reward.parameters.gap=2")
    assert "(it has " in str(caught.value) and "models/base" not in str(caught.value)
    assert "NAME=VALUE" in str(caught.value.hint)
