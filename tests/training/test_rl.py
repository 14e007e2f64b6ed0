"""Reinforcement learning: the loss against its formula, contexts, and runs of a small model, interrupted ones too."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from undecided_model import rl_table  # noqa: E402

from kernelwright.config import load_config  # noqa: E402
from kernelwright.errors import ConfigError, PolicyError, StoreError  # noqa: E402
from kernelwright.executor import Executor, load_executor  # noqa: E402
from kernelwright.inference.engine import _has_bf16_units  # noqa: E402
from kernelwright.prompts.contexts import converse, shown_turns  # noqa: E402
from kernelwright.records import Evaluation, Message, Provenance, Task, Turn  # noqa: E402
from kernelwright.training.fine_tune.settings import recipe_path  # noqa: E402
from kernelwright.training.rl.advantages import ADVANTAGES  # noqa: E402
from kernelwright.training.rl.policy_loss import policy_loss  # noqa: E402
from kernelwright.training.rl.rollouts import RolloutRow, Rollouts, read_rollouts  # noqa: E402
from kernelwright.training.rl.settings import RlSettings  # noqa: E402

ROUNDING = 2e-2 if _has_bf16_units() else 1e-3
"""How far a mean ratio of trainer and sampler may be from 1: the engine computes in bfloat16 where it can."""

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
    assert log_probs.grad is not None and not log_probs.grad.any()
    assert (out.clipped.item(), out.tokens.item()) == (2, 2)
    with pytest.raises(ConfigError):
        policy_loss(log_probs, log_probs, torch.ones(2), torch.ones(2, 1), normalise="constant")


def update_norms(undecided: Path, rewards: list[float | None], **more: Any) -> tuple[float, list[float], float]:
    """Returns the trained rows, the gradient's norm of each update, and the norm of the formula's gradient for one."""
    from kernelwright.inference.chat import task_prompt
    from kernelwright.inference.tokenizer import ChatTokenizer
    from kernelwright.training.ranks import Ranks
    from kernelwright.training.rl.state import State

    wanted = rl_settings(undecided, advantage={"name": "mean"}, **more)
    state = State.open(wanted, undecided / "none", Ranks())
    tokenizer = ChatTokenizer.load(undecided / "model")
    line = json.loads((undecided / "tasks.jsonl").read_text().splitlines()[0])
    prompt = tuple(tokenizer.prompt([Message(role="user", content=task_prompt(line["reference"]))]))
    rows = []
    for n, reward in enumerate(rewards):
        ids = tuple(range(20 + n, 30 + 4 * n))  # of several lengths
        rows.append(RolloutRow("t", 0, n, 0, prompt, ids, (-1.0,) * len(ids), reward, {}, {}, "wrong", "stop"))
    paid = [row for row in rows if row.reward is not None]
    average = sum(row.reward or 0.0 for row in paid) / len(paid)
    normalise, longest = wanted.train.normalise, wanted.rollout.max_tokens
    tokens = sum(len(row.token_ids) for row in paid)
    whole = {"token": tokens, "row": len(paid), "constant": len(paid) * longest}[normalise]
    loss = torch.zeros(())
    for row in paid:
        logits = state.model(input_ids=torch.tensor([row.prompt_ids + row.token_ids])).logits[0, len(prompt) - 1 : -1]
        chosen = logits.log_softmax(-1).gather(1, torch.tensor(row.token_ids)[:, None]).sum()
        own = len(row.token_ids) if normalise == "row" else 1
        loss = loss - ((row.reward or 0.0) - average) * chosen / (whole * own)
    trained = [p for p in state.model.parameters() if p.requires_grad]
    formula = torch.stack([g.norm() for g in torch.autograd.grad(loss, trained)]).norm().item()
    norms: list[float] = []
    one = state.updater._gradient_step

    def noting(*words: Any) -> dict[str, float]:
        facts = one(*words)
        norms.append(facts["grad_norm"])
        return facts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state.updater, "_gradient_step", noting)
        facts = state.updater.step(rows, 1).facts
    return facts["trained_rows"], norms, formula


@pytest.mark.parametrize("normalise", ["token", "row", "constant"])
def test_rows_of_no_advantage_are_divided_by_too(undecided: Path, normalise: str) -> None:
    """The loss is a mean over a group's tokens, whatever their advantage."""
    table = {"normalise": normalise, "clip": 0, "lr": 1e-9}
    trained, norms, formula = update_norms(undecided, [0.0, 0.5, 1.0], train=table)
    assert trained == 2 and norms == pytest.approx([formula], rel=1e-3)
    nearly, also, _ = update_norms(undecided, [0.0, 0.5 + 1e-7, 1.0], train=table)
    assert nearly == 3 and also == pytest.approx(norms, rel=1e-3)
    unpaid, without, formula = update_norms(undecided, [0.0, 0.5, 1.0, None], train=table)
    assert unpaid == 2 and without == pytest.approx([formula], rel=1e-3)


def test_parts_of_a_step_share_the_rows_that_are_divided_by(undecided: Path) -> None:
    """Twelve rows form six updates of two, with or without advantage; updates without an advantage are left out."""
    rewards: list[float | None] = [0.0, 1.0, *[0.5] * 10]
    table = {"normalise": "constant", "clip": 0, "lr": 1e-9}
    _, whole, formula = update_norms(undecided, rewards, train=table)
    _, parts, _ = update_norms(undecided, rewards, train={**table, "updates": 6})
    assert whole == pytest.approx([formula], rel=1e-3) and len(parts) == 2
    _, alone, _ = update_norms(undecided, rewards, train={**table, "updates": 12})
    assert sorted(parts) == pytest.approx(sorted(norm / 2 for norm in alone), rel=1e-3)


# The context of later turns.


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
    turns = [turn(0, "wrong"), turn(1, "compile_error"), turn(2, "timeout"), turn(3, "wrong")]
    assert talk("top_w", 3) == ["answer 3"]
    turns = [turn(0, "wrong"), turn(1, "compile_error")]
    assert talk("top_w", 3) == ["answer 0"], "where room is short, the least of the shown turns goes first"


@pytest.mark.parametrize(
    "recipe", ["stanford_grpo", "kevin", "drkernel", "cuda_agent_rft", "starter_rl", "starter_rft"]
)
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


@pytest.fixture(scope="module")
def judges() -> Iterator[Executor]:
    """Returns an executor shared by all runs of this file, since starting it imports torch."""
    with load_executor("local", 2, "cpu") as executor:
        yield executor


@pytest.fixture(scope="module")
def whole(undecided: Path, judges: Executor, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Returns an uninterrupted run: its folder and its facts."""
    from kernelwright.training.rl.loop import train_rl

    out = tmp_path_factory.mktemp("whole") / "run"
    return out, train_rl(rl_settings(undecided), out, judges).facts


def rl_settings(undecided: Path, **more: Any) -> RlSettings:
    """Returns settings of two steps of two tasks, four rollouts each, two turns; the second step saves its state."""
    shape = {"rollout": {"rollouts": 4, "turns": 2}, "train": {"save_every": 2}}
    merged = {name: {**shape.get(name, {}), **more.get(name, {})} for name in {*shape, *more}}
    return RlSettings.model_validate(rl_table(undecided, **merged))


def test_no_two_answers_of_a_step_are_drawn_with_one_seed(undecided: Path, judges: Executor, tmp_path: Path) -> None:
    """A later turn whose context was too short to show the earlier ones would repeat another rollout's first answer."""
    from kernelwright.policies.starter import ConversationPolicy
    from kernelwright.training.ranks import Ranks
    from kernelwright.training.rl.loop import load_tasks
    from kernelwright.training.rl.state import State

    seeds: list[int] = []

    class Noting(ConversationPolicy):
        def sampling(self, seed: int, temperature: float | None) -> Any:
            seeds.append(seed)
            return super().sampling(seed, temperature)

    wanted = rl_settings(undecided, rollout={"turns": 3, "max_tokens": 4})
    engine = State.open(wanted, undecided / "none", Ranks()).policy.engine
    policy = Noting(engine, temperature=1.0, max_tokens=4)
    seeds.clear()
    rows = Rollouts(wanted, policy, judges).play(0, dict(enumerate(load_tasks(wanted.tasks))), tmp_path / "step.jsonl")
    assert len(seeds) == len(set(seeds)) == len(rows) == 2 * 4 * 3


def test_speedups_come_from_a_gpu_that_times_eager(undecided: Path, judges: Executor) -> None:
    from kernelwright.training.ranks import Ranks
    from kernelwright.training.rl.state import State

    policy = State.open(rl_settings(undecided), undecided / "none", Ranks()).policy

    def timed(**judging: Any) -> bool:
        wanted = rl_settings(undecided, judging={"backend": "gpu", **judging})
        return Rollouts(wanted, policy, judges).timed

    assert timed() and timed(baselines="compile,eager")
    assert not timed(backend="cpu") and not timed(timing_seconds=0) and not timed(baselines="none")


@pytest.mark.slow
def test_a_large_epsilon_spares_weights_of_small_gradients(
    undecided: Path, whole: tuple[Path, dict[str, Any]], judges: Executor, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    from kernelwright.training.rl.loop import train_rl

    train_rl(rl_settings(undecided, train={"adam_epsilon": 1.0}), tmp_path, judges)
    before, *after = (load_file(folder / "model.safetensors") for folder in (undecided / "model", whole[0], tmp_path))
    moved = [sum((found[name] - before[name]).abs().sum().item() for name in before) for found in after]
    assert moved[1] < 0.1 * moved[0] and moved[0] > 0


def played(out: Path, step: int) -> dict[tuple[int, int], list[RolloutRow]]:
    return dict(sorted(read_rollouts(out / "rollouts" / f"step-{step:06d}.jsonl").items()))


def logged(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_run_plays_judges_credits_and_updates(undecided: Path, whole: tuple[Path, dict[str, Any]]) -> None:
    from safetensors.torch import load_file

    out, facts = whole
    rows = logged(out)
    assert (facts["steps"], facts["rollouts"], facts["updates"], len(rows)) == (2, 16, 2, 2)
    first = [row for rollout in played(out, 0).values() for row in rollout]
    assert len(first) == 16 and {row.verdict for row in first} >= {"correct", "wrong"}
    assert all((row.reward == 0.3) == (row.verdict == "correct") for row in first)
    assert rows[0]["correct"] == sum(row.verdict == "correct" for row in first) / len(first)
    assert rows[0]["reward"] == pytest.approx(0.3 * rows[0]["correct"])
    assert rows[0]["sampler_ratio"] == pytest.approx(1.0, abs=ROUNDING)  # engine and trainer agree on the tokens
    assert rows[0]["trained_rows"] >= 2 and rows[0]["ask_s"] > 0 and rows[0]["judge_work_s"] > 0
    credit = [json.loads(line) for line in (out / "credit" / "step-000000.jsonl").read_text().splitlines()]
    wanted = ADVANTAGES["trloo"](*([getattr(r, n) for r in first] for n in ("reward", "group", "trajectory", "turn")))
    assert [line["advantage"] for line in credit] == wanted.tolist()
    before, after = load_file(undecided / "model" / "model.safetensors"), load_file(out / "model.safetensors")
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert (out / "tokenizer.json").read_bytes() == (undecided / "model" / "tokenizer.json").read_bytes()
    assert "reward" in (out / "curves.html").read_text()


def plain(found: dict[tuple[int, int], list[RolloutRow]]) -> Any:
    """Returns rollouts without times and log-probabilities, whose last digits depend on the engine's batch."""
    return {key: [dataclasses.replace(row, log_probs=(), seconds=0.0) for row in rows] for key, rows in found.items()}


@pytest.mark.slow
def test_a_stopped_run_loses_and_repeats_nothing(
    undecided: Path, whole: tuple[Path, dict[str, Any]], judges: Executor, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    from kernelwright.training.rl import loop

    out, count, over = tmp_path / "stopped", 0, False
    keep = Rollouts._keep

    def stopping(self: Rollouts, path: Path, rows: Any) -> None:
        nonlocal count, over
        if over:
            raise KeyboardInterrupt  # again: a killed process stores nothing more
        count += 1
        if count in (3, 8, 14):
            if count == 8:  # as a process does that is killed while it writes
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "a") as file:
                    file.write('[{"task_id": "rel')
            over = True
            raise KeyboardInterrupt
        keep(self, path, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rollouts, "_keep", stopping)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                loop.train_rl(rl_settings(undecided), out, judges)
            over = False
        facts = loop.train_rl(rl_settings(undecided), out, judges).facts
    assert {name: facts[name] for name in ("steps", "rollouts", "updates")} == {
        "steps": 2,
        "rollouts": 16,
        "updates": 2,
    }
    for step in range(2):
        lines = (out / "rollouts" / f"step-{step:06d}.jsonl").read_text().splitlines()
        assert len(played(out, step)) == 8 == len(lines)
        assert plain(played(out, step)) == plain(played(whole[0], step))
        spent = max(row.seconds for rows in played(out, step).values() for row in rows)
        assert logged(out)[step]["step_s"] >= spent > 0, "what sessions before a kill took counts"
    again, first = load_file(out / "model.safetensors"), load_file(whole[0] / "model.safetensors")
    assert all(torch.allclose(again[name], first[name], atol=1e-3) for name in first)


@pytest.mark.slow
def test_two_processes_credit_and_learn_what_one_does(
    undecided: Path, whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Both runs have the same rollouts, so that rounding of sampled log-probabilities does not matter."""
    from safetensors.torch import load_file

    from kernelwright.training.processes import train_in_processes

    alone, _ = whole
    out = tmp_path / "shared"
    shutil.copytree(alone / "rollouts", out / "rollouts")
    facts = train_in_processes("rl", rl_settings(undecided), out, 2)
    assert (facts["steps"], facts["rollouts"], facts["updates"]) == (2, 16, 2)
    for step in range(2):
        name = f"credit/step-{step:06d}.jsonl"
        assert (out / name).read_text() == (alone / name).read_text()
    for mine, theirs in zip(logged(out), logged(alone), strict=True):
        assert [mine[k] for k in ("loss", "grad_norm", "clipped")] == pytest.approx(
            [theirs[k] for k in ("loss", "grad_norm", "clipped")], rel=1e-3, abs=1e-6
        )  # a first update's loss is zero but for rounding
    again, first = load_file(out / "model.safetensors"), load_file(alone / "model.safetensors")
    assert all(torch.allclose(again[name], first[name], atol=1e-4) for name in first)


def test_a_stream_answers_as_a_batch_does_and_lets_go_when_closed(undecided: Path) -> None:
    from kernelwright.inference import load_engine
    from kernelwright.policies import Request
    from kernelwright.policies.starter import ConversationPolicy
    from kernelwright.policies.streaming import Stream

    engine = load_engine(str(undecided / "model"), threads=1, rows=4)
    policy = ConversationPolicy(engine, temperature=1.0, max_tokens=24)
    sources = [json.loads(line)["reference"] for line in (undecided / "tasks.jsonl").read_text().splitlines()]
    asked = [Request((Message(role="user", content=sources[n % 2]),), seed=n) for n in range(10)]
    with Stream(policy) as stream, ThreadPoolExecutor(10) as pool:
        found = list(pool.map(stream.ask, asked))
        with pytest.raises(PolicyError, match="context"):
            stream.ask(Request((Message(role="user", content="x = 1\n" * 400),), seed=0))
    assert [answer.token_ids for answer in found] == [a.token_ids for a in policy.generate_many(asked)]
    stream = Stream(ConversationPolicy(engine, temperature=1.0, max_tokens=400))
    with ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(stream.ask, request) for request in asked[:6]]
        while not engine.busy:
            time.sleep(0.001)
        stream.close()
        left = [future for future in waiting if future.exception() is not None]
    assert left and all(isinstance(future.exception(), PolicyError) for future in left) and not engine.busy
    with pytest.raises(PolicyError, match="closed"):
        stream.ask(asked[0])


PEER = """
import os, torch
from kernelwright.training.ranks import Ranks
ranks = Ranks.join()
ranks.add([torch.full((3,), 2.0), torch.ones(2)])
ranks.gather(ranks.rank)
os._exit(9)
"""


def test_a_process_whose_peer_dies_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelwright.training.ranks import PeerLost, Ranks

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    for name, value in {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    peer = subprocess.Popen([sys.executable, "-c", PEER], env={**os.environ, "RANK": "1"})
    ranks = Ranks.join()
    try:
        tensors = [torch.full((3,), 1.0), torch.ones(2)]
        ranks.add(tensors)
        assert [t.tolist() for t in tensors] == [[3.0, 3.0, 3.0], [2.0, 2.0]]
        assert ranks.gather(ranks.rank) == [0, 1] and (ranks.first, ranks.count) == (True, 2)
        with pytest.raises(PeerLost, match="another process of this run is gone"):
            ranks.wait()
        assert peer.wait(60) == 9
    finally:
        peer.kill()
        ranks.leave()


@pytest.mark.parametrize(("advantage", "kept"), [("trloo", (1,)), ("grpo", (0, 1)), ("kevin", (0, 1))])
def test_a_group_is_replaced_where_its_estimator_learns_nothing(advantage: str, kept: tuple[int, ...]) -> None:
    """Rollouts with equal rewards in each turn: an estimator that compares turn by turn gives no advantage."""
    from kernelwright.training.rl.update import groups_that_teach

    paid = {0: [(0.1, 0.3), (0.1, 0.3), (0.1, 0.3)], 1: [(0.1, 0.3), (0.1, 0.3), (0.1, 1.3)], 2: [(0.3, 0.3)] * 3}
    rows = [
        RolloutRow("t", group, trajectory, turn, (1,), (2,), (-1.0,), reward, {}, {}, "wrong", "stop")
        for group, rollouts in paid.items()
        for trajectory, rewards in enumerate(rollouts)
        for turn, reward in enumerate(rewards)
    ]
    wanted = RlSettings.model_validate(rl_table(Path("x"), advantage={"name": advantage}))
    found = groups_that_teach(wanted, rows, wanted=3)
    assert found.groups == kept and found.missing == 3 - len(kept)


@pytest.mark.slow
def test_groups_that_teach_nothing_are_replaced_and_an_alarm_that_stands_ends_the_run(
    undecided: Path, judges: Executor, tmp_path: Path
) -> None:
    """Every answer is cut off before it is readable, so all rewards are equal and redrawing groups cannot help."""
    from kernelwright.training.rl.loop import train_rl

    wanted = rl_settings(
        undecided,
        rollout={"turns": 1, "rollouts": 2, "max_tokens": 24},
        filters={"redraw": 2},
        alarms={"stop_after": 2, "first_token": 1.0, "entropy_high": 99.0},
        train={"steps": 5},
    )
    facts = train_rl(wanted, tmp_path, judges).facts
    rows = logged(tmp_path)
    assert [row["alarms"] for row in rows] == [["cut", "unreadable"]] * 2
    assert (facts["steps"], facts["stopped_by"]) == (2, ["cut", "unreadable"])
    assert (tmp_path / "model.safetensors").is_file()
    for step, row in enumerate(rows):
        assert (row["groups"], row["redrawn"], row["missing"], row["trained_rows"], row["alike"]) == (6, 4, 2, 0, 1.0)
        assert sorted({g for g, _ in played(tmp_path, step)}) == [0, 1, 2, 3, 4, 5]
    again = train_rl(wanted, tmp_path, judges).facts  # it does not begin again, nor go on
    assert (again, logged(tmp_path)) == (facts, rows)


@pytest.mark.slow
def test_a_judge_is_asked_until_execution_pays_and_its_failures_are_counted_by_step(
    undecided: Path, judges: Executor, tmp_path: Path
) -> None:
    from kernelwright.training.rl.loop import train_rl

    opinion = {"reasoning": "fine", "compilability": 1, "correctness": 0.5, "speed": 0}
    script = tmp_path / "opinions.jsonl"
    script.write_text(json.dumps({"answer": json.dumps(opinion), "task_id": "relu"}) + '\n{"answer": "no"}\n')
    asked = {"reward": {"name": "stanford"}, "judging": {"judge": f"scripted:{script}"}, "rollout": {"turns": 1}}
    train_rl(rl_settings(undecided, **asked), tmp_path / "run", judges)
    first, second = logged(tmp_path / "run")
    rows = [row for rollout in played(tmp_path / "run", 0).values() for row in rollout if row.verdict != "unreadable"]
    failed = sum(row.task_id != "relu" for row in rows)
    assert (first["judge_weight"], first["judge_asked"], first["judge_failed"]) == (0.5, len(rows), failed)
    assert {row.parts["judge"] for row in rows} == {0.25, 0.0}
    assert first["correct"] > 0.1 and (second["judge_weight"], second["judge_asked"], second["judge_failed"]) == (
        0,
        0,
        0,
    )
    (tmp_path / "run" / "state.pt").unlink()  # as a kill before the first state leaves it: the steps are made again
    (tmp_path / "run" / "training.json").unlink()
    train_rl(rl_settings(undecided, **asked), tmp_path / "run", judges)
    again = logged(tmp_path / "run")[0]
    assert [again[name] for name in ("judge_asked", "judge_failed")] == [len(rows), failed]


@pytest.mark.slow
def test_an_adapter_is_trained_and_resumed_and_the_engine_plays_with_it(
    undecided: Path, judges: Executor, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    from kernelwright.training.ranks import Ranks
    from kernelwright.training.rl.loop import train_rl
    from kernelwright.training.rl.state import State, weights_of

    wanted = rl_settings(
        undecided,
        model={"path": str(undecided / "model"), "tune": "lora"},
        rollout={"turns": 1},
        train={"steps": 1, "lr": 1e-2},
    )
    train_rl(wanted, tmp_path, judges)
    assert logged(tmp_path)[0]["sampler_ratio"] == pytest.approx(1.0, abs=ROUNDING)
    base, tuned = load_file(undecided / "model" / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    assert (tmp_path / "adapter" / "adapter_config.json").is_file() and not torch.equal(base[name], tuned[name])
    kept = torch.load(tmp_path / "state.pt", weights_only=True)
    assert all("lora_" in key for key in kept["model"])
    state = State.open(wanted, tmp_path, Ranks())
    resumed = weights_of(state.model, wanted.model.lora)
    assert all(torch.allclose(resumed[key], tuned[key], atol=1e-6) for key in tuned)
    state.export(
        wanted.model_copy(update={"model": wanted.model.model_copy(update={"merge": False})}), tmp_path / "bare"
    )
    assert [path.name for path in (tmp_path / "bare").iterdir()] == ["adapter"]


@pytest.mark.slow
def test_a_model_that_our_engine_does_not_know_is_played_by_transformers(
    undecided: Path,
    whole: tuple[Path, dict[str, Any]],
    judges: Executor,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The same weights under another architecture's name: transformers draws what our engine draws."""
    from safetensors.torch import load_file

    from kernelwright.training.rl.loop import train_rl

    shutil.copytree(undecided / "model", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    raw = json.loads(path.read_text())
    raw |= {"model_type": "seed_oss", "architectures": ["SeedOssForCausalLM"], "head_dim": 32}
    path.write_text(json.dumps({**raw, "attention_bias": True, "attention_out_bias": False}))
    wanted = rl_settings(undecided, model={"path": str(tmp_path / "model")}, train={"steps": 1})
    facts = train_rl(wanted, tmp_path / "run", judges).facts
    assert "transformers generates" in capfd.readouterr().err
    assert (facts["steps"], facts["rollouts"], facts["updates"]) == (1, 8, 1)
    mine, theirs = (plain(played(out, 0)) for out in (tmp_path / "run", whole[0]))
    assert [rows[0] for rows in mine.values()] == [rows[0] for rows in theirs.values()]
    assert {len(rows) for rows in mine.values()} == {2}  # these differ: a template's tokens cross turns' seams
    assert logged(tmp_path / "run")[0]["sampler_ratio"] == pytest.approx(1.0, abs=ROUNDING)
    before, after = (
        load_file(tmp_path / "model" / "model.safetensors"),
        load_file(tmp_path / "run" / "model.safetensors"),
    )
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model_type"] == "seed_oss"
    assert (tmp_path / "run" / "tokenizer.json").is_file()


def test_adapters_of_transposed_weights_are_merged_as_peft_merges_them() -> None:
    """GPT-2 keeps its weights as (in, out)."""
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    from kernelwright.training.fine_tune.settings import LoraSettings
    from kernelwright.training.rl.state import weights_of

    torch.manual_seed(0)
    base = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=8, n_layer=1, n_head=2))
    config = LoraConfig(r=2, lora_alpha=6, target_modules="all-linear", init_lora_weights=False, fan_in_fan_out=True)
    model = get_peft_model(base, config)
    found = {name: value.clone() for name, value in weights_of(model, LoraSettings(r=2, alpha=6)).items()}
    wanted = model.merge_and_unload().state_dict()
    assert set(found) == set(wanted) and all(torch.allclose(found[name], wanted[name], atol=1e-6) for name in wanted)


def test_a_full_disk_is_an_error_and_keeps_the_last_state(
    undecided: Path, whole: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors import SafetensorError

    from kernelwright.training.ranks import Ranks
    from kernelwright.training.rl.state import State

    state = State.open(rl_settings(undecided), tmp_path, Ranks())
    state.save(tmp_path)
    before = (tmp_path / "state.pt").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(StoreError, match="No space left"):
            state.save(tmp_path)
    for error in (OSError(28, "No space left on device"), SafetensorError("No space left")):
        with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space left"):
            patch.setattr(state.model, "save_pretrained", lambda *_, e=error: (_ for _ in ()).throw(e))
            state.export(rl_settings(undecided), tmp_path)
    assert (tmp_path / "state.pt").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_a_credit_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    from kernelwright.training.rl.loop import keep_credit
    from kernelwright.training.rl.update import Trained

    (tmp_path / "credit").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        keep_credit(tmp_path / "credit" / "step-000000.jsonl", [], Trained({}, np.zeros(0), np.zeros(0)))


def test_a_run_goes_on_with_the_tasks_that_it_was_begun_with(tmp_path: Path) -> None:
    from kernelwright.training.rl.loop import keep_tasks

    tasks = [Task(task_id=str(i), source="x") for i in range(2)]
    keep_tasks(tasks, tmp_path)
    keep_tasks(tasks[:1], tmp_path)  # nothing was played yet
    (tmp_path / "rollouts").mkdir()
    keep_tasks(tasks[:1], tmp_path)
    for other in (tasks, [tasks[0].changed(source="y")]):
        with pytest.raises(ConfigError, match="other tasks") as error:
            keep_tasks(other, tmp_path)
        assert "another --out" in str(error.value.hint)
    keep_tasks([tasks[0].changed(provenance=Provenance(origin="moved"))], tmp_path)
    (tmp_path / "tasks.sha256").unlink()  # a run of before there was such a file
    keep_tasks(tasks[:1], tmp_path)
    assert (tmp_path / "tasks.sha256").is_file()


def test_tasks_of_a_step_go_round_and_fresh_ones_differ() -> None:
    from kernelwright.training.rl.loop import fresh_tasks, tasks_of_step

    tasks = [Task(task_id=str(i), source="x") for i in range(5)]
    seen = [t.task_id for step in range(5) for t in tasks_of_step(tasks, 2, 0, step)]
    assert sorted(seen[:5]) == sorted(seen[5:]) == ["0", "1", "2", "3", "4"]
    had = dict(enumerate(tasks_of_step(tasks, 2, 0, 3)))
    fresh = fresh_tasks(tasks, had, 3, 0, 3)
    assert sorted(fresh) == [2, 3, 4] and not {t.task_id for t in fresh.values()} & {t.task_id for t in had.values()}
    assert len(fresh_tasks(tasks, had, 9, 0, 3)) == 9


def test_adapters_on_modules_that_the_model_lacks_are_refused(undecided: Path, tmp_path: Path) -> None:
    from kernelwright.training.ranks import Ranks
    from kernelwright.training.rl.state import State

    lora = {"tune": "lora", "lora": {"targets": "no_such_module"}}
    model = {**rl_settings(undecided).model_dump(mode="json")["model"], **lora}
    with pytest.raises(ConfigError, match="the adapter cannot be made") as error:
        State.open(rl_settings(undecided, model=model), tmp_path, Ranks())
    assert error.value.hint
    model["lora"] = {"targets": "q_proj,no_such_module"}  # PEFT would leave the second one out and say nothing
    with pytest.raises(ConfigError, match="no layer of the model is 'no_such_module'"):
        State.open(rl_settings(undecided, model=model), tmp_path, Ranks())
