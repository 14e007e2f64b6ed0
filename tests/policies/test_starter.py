"""The starter and HF policies on a small random checkpoint: seeds, turns, batches, log-probabilities, and messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from inference.checkpoints import random_checkpoint
from running import Command
from training.sample_pairs import REFERENCE

from kernelwright.errors import ConfigError, KernelwrightError, PolicyError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.inference import STARTER, load_engine, starter_folder
from kernelwright.inference.chat import task_prompt, with_speed
from kernelwright.inference.quantised import read_weights
from kernelwright.policies import Request, load_policy
from kernelwright.policies.starter import StarterPolicy
from kernelwright.prompts import initial_messages
from kernelwright.records import Message, Task
from kernelwright.tasks import candidate_from_text

SOURCE = REFERENCE.format(doc="Scaled.", arg="x", expression="torch.relu(x)", scale=2.0, rows=4, columns=5)
TASK = Task(task_id="scaled", source=SOURCE)
ASK = initial_messages(TASK)
LATER = (
    *ASK,
    Message(role="assistant", content="class ModelNew: pass"),
    Message(role="user", content="Verdict: wrong."),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_checkpoint(tmp_path_factory.mktemp("checkpoint"), context=1024)


@pytest.fixture(scope="module")
def policy(folder: Path) -> StarterPolicy:
    return StarterPolicy(load_engine(f"starter:{folder}", device="cpu", dtype="fp32", threads=1), max_tokens=24)


def test_the_model_that_ships_answers_a_task_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights belong to this copy, and its card describes them."""
    monkeypatch.delenv(STARTER, raising=False)
    stated = json.loads((starter_folder() / "training.json").read_text())["parameters"]
    assert sum(weight.numel() for weight in read_weights(starter_folder()).values()) == stated
    answer = StarterPolicy(load_engine("starter", device="cpu", threads=1)).generate(ASK, seed=1, task=TASK)
    with Evaluator(EvalOptions(backend="cpu", trials=2)) as evaluator:
        found = evaluator.evaluate(TASK, candidate_from_text(answer.text, "answer"))
    assert found.verdict == "correct", (found.reason, answer.text)


def test_first_turn_is_greedy_and_later_ones_are_samples(policy: StarterPolicy) -> None:
    first = policy.generate(ASK, seed=1, task=TASK)
    assert first.token_ids == policy.generate(ASK, seed=2, task=TASK).token_ids
    second = policy.generate(LATER, seed=2, task=TASK)
    assert second.token_ids != first.token_ids
    assert second.token_ids == policy.generate(LATER, seed=2, task=TASK).token_ids
    assert second.token_ids != policy.generate(LATER, seed=3, task=TASK).token_ids
    assert second.token_ids == policy.generate(ASK, seed=2, task=TASK, turn=1).token_ids, "whatever is shown of it"
    greedy = policy.generate(LATER, seed=3, task=TASK, temperature=0.0)
    assert greedy.token_ids == first.token_ids
    assert len(first.log_probs) == len(first.token_ids) == first.usage.completion_tokens


def test_the_task_is_the_prompt_with_or_without_its_record(policy: StarterPolicy) -> None:
    assert policy.generate(ASK, seed=1).token_ids == policy.generate((), seed=1, task=TASK).token_ids
    bare = policy.engine.tokenizer.prompt([Message(role="user", content=task_prompt(SOURCE))])
    assert policy.prompt(ASK, None) == policy.prompt(ASK, TASK) == policy.prompt(LATER, None)
    assert policy.prompt(ASK, None).ids == bare


def test_many_at_once_are_those_one_by_one(policy: StarterPolicy) -> None:
    requests = [Request(ASK, seed, TASK, temperature) for seed in (4, 5) for temperature in (None, 0.0, 1.2)]
    together = policy.generate_many(requests)
    for request, answer in zip(requests, together, strict=True):
        alone = policy.generate_many([request])[0]
        assert alone.token_ids == answer.token_ids and alone.text == answer.text
    assert together[1].token_ids == together[4].token_ids
    assert len({answer.token_ids for answer in together}) == 5


@pytest.fixture(scope="module")
def choosing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a checkpoint that was trained on several schedules."""
    folder = tmp_path_factory.mktemp("choosing")
    return random_checkpoint(folder, context=1024, schedules=("canonical", "fuse=False"))


def begun_with(policy: StarterPolicy, *request: object) -> str:
    """Returns the text that a request's answer begins with."""
    asked, plain = policy.asked(Request(*request)), policy.prompt(ASK, TASK)  # type: ignore[arg-type]
    assert asked.ids[: len(plain.ids)] == plain.ids
    return policy.engine.tokenizer.decode(asked.ids[len(plain.ids) :])


@pytest.mark.parametrize("kind", ["starter", "hf"])
def test_tries_take_turns_with_the_schedules_of_the_model(choosing: Path, kind: str) -> None:
    if kind == "hf":
        pytest.importorskip("transformers")
    policy = load_policy(f"{kind}:{choosing}", temperature=0.8)
    assert isinstance(policy, StarterPolicy)
    fused, apart = "# schedule: canonical\n", "# schedule: fuse=False\n"
    assert [begun_with(policy, ASK, seed, TASK) for seed in range(3)] == [fused, apart, fused]
    assert begun_with(policy, ASK, 1, TASK, 0.0) == fused, "a greedy first try has the first of them"
    assert begun_with(policy, LATER, 1, TASK, 0.0) == begun_with(policy, ASK, 1, TASK, 0.0, 1) == apart


def test_a_speed_that_is_asked_for_stands_before_the_task_and_leaves_the_schedule_to_the_model(choosing: Path) -> None:
    policy = StarterPolicy(load_engine(f"starter:{choosing}", device="cpu", threads=1), max_tokens=4)
    line = "Speed: 10/10 of the fastest known."
    words = f"{line}\n\n{task_prompt(SOURCE)}"
    expected = policy.engine.tokenizer.prompt([Message(role="user", content=words)])
    for messages in (ASK, LATER):
        fast = with_speed(messages, "10/10")
        assert policy.asked(Request(fast, 1, TASK)).ids == policy.asked(Request(fast, 1)).ids == expected
    assert line not in policy.engine.tokenizer.decode(policy.asked(Request(ASK, 1, TASK)).ids)


def test_the_schedule_may_be_stated_or_left_to_the_model(
    choosing: Path, policy: StarterPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = StarterPolicy(load_engine(f"starter:{choosing}", device="cpu", threads=1), max_tokens=4)
    monkeypatch.setenv("KERNELWRIGHT_SCHEDULE", "product=register64")
    assert begun_with(own, ASK, 0, TASK) == "# schedule: product=register64\n"
    assert begun_with(policy, ASK, 0, TASK) == "", "a model that writes no such line is not made to"
    monkeypatch.setenv("KERNELWRIGHT_SCHEDULE", "own")
    assert begun_with(own, ASK, 0, TASK) == ""
    monkeypatch.setenv("KERNELWRIGHT_SCHEDULE", "fastest")
    with pytest.raises(KernelwrightError, match="fastest"):
        own.generate(ASK, seed=0, task=TASK)


@pytest.mark.parametrize("kind", ["starter", "hf"])
def test_a_limit_that_nobody_chose_leaves_room_for_earlier_turns(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "hf":
        pytest.importorskip("transformers")
    monkeypatch.delenv("KERNELWRIGHT_MAX_TOKENS", raising=False)
    policy: Any = load_policy(f"{kind}:{folder}", conversation=True)
    talk = [Message(role="user", content="x = 1\n" * n) for n in range(1, 160, 3)]
    lengths = [len(policy.engine.tokenizer.prompt([m])) for m in talk]
    assert min(lengths) < 512 < max(lengths)
    assert [policy.fits([m]) for m in talk] == [n <= 512 for n in lengths]  # half of the context
    monkeypatch.setenv("KERNELWRIGHT_MAX_TOKENS", "900")
    told: Any = load_policy(f"{kind}:{folder}", conversation=True)
    assert [told.fits([m]) for m in talk] == [n <= 124 for n in lengths]


@pytest.mark.parametrize("kind", ["starter", "hf"])
def test_a_conversation_is_shown_to_a_model_that_is_asked_with_the_task_alone(folder: Path, kind: str) -> None:
    if kind == "hf":
        pytest.importorskip("transformers")
    policy: Any = load_policy(f"{kind}:{folder}", conversation=True)
    first = Message(role="user", content=task_prompt(SOURCE))
    asked = policy.prompt([first, *LATER[-2:]], TASK).ids
    assert policy.bare and asked == policy.engine.tokenizer.prompt([first, *LATER[-2:]])
    assert policy.prompt([first], TASK).ids == load_policy(f"{kind}:{folder}").prompt([first], TASK).ids  # type: ignore[attr-defined]


def test_a_task_that_is_too_long(policy: StarterPolicy) -> None:
    with pytest.raises(PolicyError, match="context"):
        policy.generate((), seed=0, task=Task(task_id="long", source="x = 1\n" * 2000))


def test_settings_come_from_flags_and_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_TOP_P", "0.5")
    monkeypatch.setenv("KERNELWRIGHT_MAX_TOKENS", "7")
    made = StarterPolicy.from_spec(f"starter:{folder}", temperature=0.3)
    assert (made.temperature, made.top_p, made.max_tokens, made.name) == (0.3, 0.5, 7, f"starter:{folder}")
    assert len(made.generate(ASK, seed=0).token_ids) <= 7
    with pytest.raises(ConfigError, match="temperature"):
        StarterPolicy.from_spec(f"starter:{folder}", temperature=-1)
    monkeypatch.setenv("KERNELWRIGHT_TOP_P", "half")
    with pytest.raises(ConfigError, match="KERNELWRIGHT_TOP_P"):
        load_policy(f"starter:{folder}")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("starter:/nowhere/at/all", "no folder"),
        ("hf:", "names no model"),
        ("hf:./nowhere", "no folder"),
        ("start", "starter"),
    ],
)
def test_spec_that_names_nothing(spec: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_policy(spec)
    assert said in f"{raised.value} {raised.value.hint}"


def test_no_transformers_are_loaded(folder: Path) -> None:
    code = (
        "import sys; from kernelwright.policies import load_policy; from kernelwright.records import Message\n"
        f"p = load_policy('starter:{folder}'); p.max_tokens = 3\n"
        "p.generate([Message(role='user', content='x')], seed=0)\n"
        "print([m for m in ('transformers', 'accelerate', 'datasets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_hf_policy_agrees_with_ours(folder: Path, policy: StarterPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("KERNELWRIGHT_MAX_TOKENS", "24")
    theirs = load_policy(f"hf:{folder}", temperature=0.0)
    ours = policy.generate(ASK, seed=0, task=TASK)
    found = theirs.generate(ASK, seed=0, task=TASK)
    assert (found.text, found.finish_reason) == (ours.text, ours.finish_reason)
    assert found.usage.prompt_tokens == ours.usage.prompt_tokens
    assert found.usage.completion_tokens == ours.usage.completion_tokens
    requests = [
        Request(ASK, 0, TASK, 0.0),
        Request(ASK, 1, TASK, 0.9),
        Request((Message(role="user", content="x"),), 0),
    ]
    many = theirs.generate_many(requests)  # type: ignore[attr-defined]
    assert many[0].text == ours.text and many[1].text != ours.text and len(many) == 3


def test_optimize_takes_it(folder: Path, tmp_path: Path, kernelwright: Command) -> None:
    task = tmp_path / "task.py"
    task.write_text(SOURCE)
    words = [
        "optimize",
        task,
        "--policy",
        f"starter:{folder}",
        "--run",
        tmp_path / "run",
        "--turns",
        "1",
        "--top-p",
        "0.9",
    ]
    done = kernelwright(*words, "--json")
    assert done.returncode == 1, done.stderr  # a random model writes no candidate, so the search finds nothing
    assert json.loads(done.stdout)["verdict"] is None
    assert '"verdict": null' in done.stdout
