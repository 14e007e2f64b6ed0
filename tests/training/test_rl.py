"""Reinforcement learning: the loss against its formula, contexts, and a small model that learns to be right."""

from __future__ import annotations

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

REFERENCE = """import torch
import torch.nn as nn
rows = 19


class Model(nn.Module):
    def forward(self, x):
        return {}


def get_inputs():
    return [torch.randn(rows, 33)]


def get_init_inputs():
    return []
"""
ANSWER = '''import torch
from kernelwright.cuda import Module

k = Module(r"""extern "C" __global__ void f(const float* x, float* y, int n) {{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = {};
}}""")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        k.f[((x.numel() + 255) // 256, 1, 1), (256, 1, 1)](x, y, x.numel())
        return y
'''
TASKS = {"relu": "torch.relu(x)", "square": "x * x"}
EXPRESSIONS = ("fmaxf(x[i], 0.0f)", "x[i] * x[i]")


@pytest.fixture(scope="module")
def undecided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two tasks, and a model that answers either with either's kernel."""
    pytest.importorskip("trl")
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from kernelwright.training.post_settings import SftSettings
    from kernelwright.training.sft import train_sft
    from kernelwright.training.tokenizer import save_tokenizer, train_tokenizer

    home = tmp_path_factory.mktemp("rl")
    rows = [
        {"row_id": f"{name}-{i}", "reference": REFERENCE.format(body), "answer": ANSWER.format(expression)}
        for name, body in TASKS.items()
        for i, expression in enumerate(EXPRESSIONS)
    ]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = [{"task_id": name, "reference": REFERENCE.format(body)} for name, body in TASKS.items()]
    (home / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    texts = [text for row in rows for text in (row["reference"], row["answer"])] * 3
    save_tokenizer(train_tokenizer(texts, 512), home / "base", 512)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
        tie_word_embeddings=True,
        kernelwright={"prompt": "task"},
    )
    Qwen2ForCausalLM(config).save_pretrained(home / "base")
    wanted = SftSettings.model_validate(
        {
            "model": {"path": str(home / "base")},
            "data": {"path": str(home / "rows.jsonl"), "length": 512},
            "train": {"steps": 120, "batch": 4, "micro_batch": 4, "lr": 6e-3, "log_every": 60, "save_every": 1000},
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELWRIGHT_CACHE", str(home / "cache"))
        train_sft(wanted, home / "model")
    return home


def rl_settings(home: Path, **more: Any) -> RlSettings:
    given = {
        "name": "test",
        "model": {"path": str(home / "model")},
        "tasks": {"suite": str(home / "tasks.jsonl")},
        "rollout": {"tasks": 2, "rollouts": 8, "turns": 1, "max_tokens": 220, **more.pop("rollout", {})},
        "reward": {"name": "kevin"},
        "advantage": {"name": "trloo"},
        "train": {"steps": 5, "lr": 2e-3, **more.pop("train", {})},
        "judging": {"backend": "cpu", "trials": 2, "jobs": 2},
    }
    return RlSettings.model_validate({**given, **more})


def test_a_model_learns_which_kernel_is_right(undecided: Path, tmp_path: Path) -> None:
    from kernelwright.training.rl import train_rl

    facts = train_rl(rl_settings(undecided), tmp_path / "run").facts
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert facts["steps"] == 5 and facts["rollouts"] == 80
    assert 0.1 < rows[0]["correct"] < 0.9
    assert rows[-1]["correct"] > rows[0]["correct"] + 0.15
    assert rows[0]["sampler_ratio"] == pytest.approx(1.0, abs=1e-3)  # engine and trainer agree
    assert rows[-1]["reward"] == pytest.approx(0.3 * rows[-1]["correct"])
    assert (tmp_path / "run" / "model.safetensors").is_file() and (tmp_path / "run" / "tokenizer.json").is_file()


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
        assert found == read_rollouts(tmp_path / "whole" / "rollouts" / name)
    again, whole = load_file(out / "model.safetensors"), load_file(tmp_path / "whole" / "model.safetensors")
    assert all(torch.allclose(again[name], whole[name], atol=1e-5) for name in whole)


def test_tasks_of_a_step_go_round() -> None:
    from kernelwright.training.rl import repetition, tasks_of_step

    tasks = [Task(task_id=str(i), source="x") for i in range(5)]
    seen = [t.task_id for step in range(5) for t in tasks_of_step(tasks, 2, 0, step)]
    assert sorted(seen[:5]) == sorted(seen[5:]) == ["0", "1", "2", "3", "4"]
    assert repetition([1] * 20) > 0.9 and repetition(range(20)) == 0.0 and repetition([1]) == 0.0
