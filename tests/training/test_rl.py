"""Reinforcement learning: the loss against its formula, contexts, and runs of a small model, stopped ones too."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kernelwright.config import load_config  # noqa: E402
from kernelwright.errors import ConfigError  # noqa: E402
from kernelwright.records import Evaluation, Message, Task, Turn  # noqa: E402
from kernelwright.training.contexts import converse, shown_turns  # noqa: E402
from kernelwright.training.policy_loss import policy_loss  # noqa: E402
from kernelwright.training.post_settings import recipe_path  # noqa: E402
from kernelwright.training.rl_rollouts import Row  # noqa: E402
from kernelwright.training.rl_settings import RlSettings  # noqa: E402

# The loss, written out.

numbers = st.floats(-3, 0)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["token", "row", "constant"]), st.integers(1, 4), st.integers(1, 6))
def test_the_loss_is_that_of_the_formula(data: Any, normalise: str, rows: int, length: int) -> None:
    def table(values: Any) -> list[list[Any]]:
        return [[data.draw(values) for _ in range(length)] for _ in range(rows)]

    new, old, mask = table(numbers), table(numbers), table(st.booleans())
    advantage = [data.draw(st.floats(-2, 2)) for _ in range(rows)]
    per_row = []
    for n in range(rows):
        total = 0.0
        for t in range(length):
            if mask[n][t]:
                ratio = math.exp(new[n][t] - old[n][t])
                total -= min(ratio * advantage[n], min(max(ratio, 0.8), 1.28) * advantage[n])
        per_row.append(total)
    sizes = [sum(row) for row in mask]
    if normalise == "row":
        parts = [total / size for total, size in zip(per_row, sizes, strict=True) if size]
        expected = sum(parts) / max(len(parts), 1)
    else:
        expected = sum(per_row) / (max(sum(sizes), 1) if normalise == "token" else 7.0)
    found = policy_loss(
        torch.tensor(new),
        torch.tensor(old),
        torch.tensor(advantage),
        torch.tensor(mask),
        normalise=normalise,
        denominator=7.0 if normalise == "constant" else None,
    )
    assert found.loss.item() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_on_policy_its_gradient_is_the_policy_gradient() -> None:
    log_probs = torch.tensor([[-1.0, -2.0], [-0.5, -3.0]], requires_grad=True)
    advantage, mask = torch.tensor([2.0, -1.0]), torch.tensor([[True, True], [True, False]])
    policy_loss(log_probs, log_probs.detach(), advantage, mask).loss.backward()
    assert log_probs.grad is not None
    assert log_probs.grad.flatten().tolist() == pytest.approx([-2 / 3, -2 / 3, 1 / 3, 0.0])


def test_a_ratio_that_left_its_bounds_pulls_no_further() -> None:
    log_probs = torch.tensor([[math.log(1.5)], [math.log(0.5)]], requires_grad=True)
    out = policy_loss(log_probs, torch.zeros(2, 1), torch.tensor([1.0, -1.0]), torch.ones(2, 1, dtype=torch.bool))
    out.loss.backward()
    assert log_probs.grad is not None and not log_probs.grad.any() and out.clipped.item() == 1.0
    with pytest.raises(ConfigError):
        policy_loss(log_probs, log_probs, torch.ones(2), torch.ones(2, 1), normalise="constant")


# What later turns are shown.


def turn(number: int, verdict: str, answer: str = "") -> Turn:
    evaluation = Evaluation(task_id="t", task_hash="0", candidate_id="1", verdict=verdict, reason=f"reason {number}")
    return Turn(index=number, messages=(), answer=answer or f"answer {number}", evaluation=evaluation)


def test_contexts() -> None:
    turns = [turn(0, "wrong"), turn(1, "timeout"), turn(2, "compile_error"), turn(3, "wrong", "<think>hm</think>code")]
    worth = {"wrong": 1.0, "timeout": None, "compile_error": 0.0}

    def score(evaluation: Evaluation | None) -> float | None:
        return worth[evaluation.verdict] if evaluation else None

    assert shown_turns(turns, "recent", 2, score) == [0, 1, 2, 3]
    assert shown_turns(turns, "top_w", 2, score) == [0, 3]
    assert shown_turns(turns, "top_w", 3, score) == [0, 2, 3]
    first = (Message(role="user", content="task"),)

    def talk(kind: str, room: int) -> list[str]:
        messages = converse(
            first, turns, [None] * 4, kind=kind, top_w=2, score=score, fits=lambda shown: len(shown) <= room
        )
        return [m.content for m in messages if m.role == "assistant"]

    assert talk("recent", 99) == ["answer 0", "answer 1", "answer 2", "<think>hm</think>code"]
    assert talk("recent", 5) == ["answer 2", "<think>hm</think>code"]
    assert talk("summary", 3) == ["code"]
    assert talk("top_w", 99) == ["answer 0", "<think>hm</think>code"]
    assert talk("recent", 0) == []


@pytest.mark.parametrize("recipe", ["stanford_grpo", "kevin", "drkernel", "starter_rl"])
def test_shipped_recipes_load(recipe: str) -> None:
    assert load_config(recipe_path(recipe), [], RlSettings).name == recipe


def test_settings_name_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "rl.yaml"
    path.write_text("model: {path: x}\ntasks: {suite: starter}\n")
    assert load_config(path, [], RlSettings).advantage.name == "trloo"
    for override, match in (
        ("reward.name=kevn", "kevin"),
        ("tasks.count=3", "either suite"),
        ("advantage.name=x", "x"),
    ):
        with pytest.raises(ConfigError, match=match):
            load_config(path, [override], RlSettings)
    path.write_text("model: {path: x}\ntasks: {suite: starter}\nadvantage: {name: mean, parameters: {gamma: 1}}\n")
    with pytest.raises(ConfigError, match="gamma"):
        load_config(path, [], RlSettings)


# A run.


def rl_settings(home: Path, **more: Any) -> RlSettings:
    given = {
        "name": "test",
        "model": {"path": str(home / "model")},
        "tasks": {"suite": str(home / "tasks.jsonl")},
        "rollout": {"tasks": 2, "rollouts": 12, "turns": 1, "max_tokens": 220, **more.pop("rollout", {})},
        "reward": {"name": "kevin"},
        "advantage": {"name": "trloo"},
        "train": {"steps": 2, "lr": 1e-4, **more.pop("train", {})},
        "judging": {"backend": "cpu", "trials": 2, "jobs": 2},
    }
    return RlSettings.model_validate({**given, **more})


@pytest.mark.slow
def test_a_run_plays_judges_credits_and_updates(undecided: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from kernelwright.training.rl import train_rl
    from kernelwright.training.rl_rollouts import read_rollouts

    out = tmp_path / "run"
    facts = train_rl(rl_settings(undecided), out).facts
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert (facts["steps"], facts["rollouts"], len(rows)) == (2, 48, 2)
    first = [row for played in read_rollouts(out / "rollouts" / "step-000000.jsonl").values() for row in played]
    assert {row.verdict for row in first} >= {"correct", "wrong"}
    assert all((row.reward == 0.3) == (row.verdict == "correct") for row in first)
    assert rows[0]["correct"] == sum(row.verdict == "correct" for row in first) / len(first)
    assert rows[0]["reward"] == pytest.approx(0.3 * rows[0]["correct"])
    assert rows[0]["sampler_ratio"] == pytest.approx(1.0, abs=1e-3)  # engine and trainer agree on the tokens
    assert rows[0]["trained_rows"] >= 2 and facts["updates"] >= 1
    before, after = load_file(undecided / "model" / "model.safetensors"), load_file(out / "model.safetensors")
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert (out / "tokenizer.json").read_bytes() == (undecided / "model" / "tokenizer.json").read_bytes()


def plain(found: dict[tuple[int, int], list[Row]]) -> Any:
    """Rollouts without log-probabilities, whose last digits depend on what else is in the engine's batch."""
    return {key: [dataclasses.replace(row, log_probs=()) for row in rows] for key, rows in found.items()}


@pytest.mark.slow
def test_a_stopped_run_loses_and_repeats_nothing(undecided: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from kernelwright.training import rl
    from kernelwright.training.rl_rollouts import Rollouts, read_rollouts

    wanted = rl_settings(undecided, rollout={"rollouts": 4, "turns": 2}, train={"steps": 3, "save_every": 2})
    rl.train_rl(wanted, tmp_path / "whole")
    out = tmp_path / "stopped"
    played = 0
    keep = Rollouts._keep

    def stopping(self: Rollouts, path: Path, rows: Any) -> None:
        nonlocal played
        played += 1
        if played in (4, 11, 19):
            raise KeyboardInterrupt
        keep(self, path, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rollouts, "_keep", stopping)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                rl.train_rl(wanted, out)
        facts = rl.train_rl(wanted, out).facts
    assert facts["steps"] == 3 and facts["rollouts"] == 24
    for step in range(3):
        name = f"step-{step:06d}.jsonl"
        found = read_rollouts(out / "rollouts" / name)
        assert len(found) == 8 == len((out / "rollouts" / name).read_text().splitlines())
        assert plain(found) == plain(read_rollouts(tmp_path / "whole" / "rollouts" / name))
    again, whole = load_file(out / "model.safetensors"), load_file(tmp_path / "whole" / "model.safetensors")
    assert all(torch.allclose(again[name], whole[name], atol=1e-3) for name in whole)


def test_tasks_of_a_step_go_round() -> None:
    from kernelwright.training.rl import repetition, tasks_of_step

    tasks = [Task(task_id=str(i), source="x") for i in range(5)]
    seen = [t.task_id for step in range(5) for t in tasks_of_step(tasks, 2, 0, step)]
    assert sorted(seen[:5]) == sorted(seen[5:]) == ["0", "1", "2", "3", "4"]
    assert repetition([1] * 20) > 0.9 and repetition(range(20)) == 0.0 and repetition([1]) == 0.0
