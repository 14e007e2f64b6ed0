"""Requests from many threads: batches form, a bad request does not spoil its batch, closing answers all waiters."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from running import Command

from kernelwright.errors import PolicyError
from kernelwright.policies import Answer, Request
from kernelwright.policies.asking import Asker
from kernelwright.records import Message, Task

Stopped = Callable[[], bool]


class Doubler:
    """Answers a batch at once; refuses requests with a negative seed, as a model does when its context is too short."""

    name = "doubler"

    def __init__(self, seconds: float = 0.05) -> None:
        self.batches: list[int] = []
        self.seconds = seconds

    def generate(self, messages: Sequence[Message], *, seed: int, task: Task | None = None) -> Answer:
        return self.generate_many([Request(tuple(messages), seed, task)])[0]

    def generate_many(self, requests: Sequence[Request]) -> list[Answer]:
        if any(r.seed < 0 for r in requests):
            raise PolicyError("too long")
        self.batches.append(len(requests))
        time.sleep(self.seconds)
        return [Answer(f"{2 * r.seed} at {r.temperature}") for r in requests]


class Single:
    """Answers one request at a time and takes a temperature."""

    name, parallel = "single", 3

    def generate(
        self, messages: Sequence[Message], *, seed: int, task: Task | None = None, temperature: float | None = None
    ) -> Answer:
        return Answer(f"{seed} at {temperature}")


class Plain:
    """A policy without a temperature."""

    name = "plain"

    def generate(self, messages: Sequence[Message], *, seed: int, task: Task | None = None) -> Answer:
        return Answer(str(seed))


def ask(asker: Asker, seed: int) -> str:
    try:
        return asker.ask(Request((), seed, temperature=0.5)).text
    except PolicyError as error:
        return str(error)


def test_questions_are_gathered_and_answers_find_their_way() -> None:
    policy = Doubler()
    with Asker(policy) as asker, ThreadPoolExecutor(64) as threads:
        found = list(threads.map(lambda seed: ask(asker, seed), range(64)))
    assert found == [f"{2 * seed} at 0.5" for seed in range(64)]
    assert sum(policy.batches) == 64 and len(policy.batches) <= 8


def test_only_the_question_that_is_refused_fails() -> None:
    policy = Doubler(0.0)
    with Asker(policy) as asker, ThreadPoolExecutor(32) as threads:
        found = list(threads.map(lambda seed: ask(asker, -seed if seed == 7 else seed), range(32)))
    assert [text for seed, text in enumerate(found) if seed != 7] == [f"{2 * s} at 0.5" for s in range(32) if s != 7]
    assert found[7] == "too long"


def test_policies_without_batches_are_asked_directly() -> None:
    with Asker(Single()) as asker:
        assert asker.parallel == 3 and ask(asker, 4) == "4 at 0.5"
    with Asker(Plain()) as asker:
        assert ask(asker, 4) == "4"


def test_who_waits_when_it_is_closed_is_told() -> None:
    policy = Doubler(0.5)
    asker = Asker(policy)
    found: list[str] = []
    threads = [threading.Thread(target=lambda seed=seed: found.append(ask(asker, seed))) for seed in range(2)]
    threads[0].start()
    while not policy.batches:
        time.sleep(0.01)
    threads[1].start()
    time.sleep(0.1)
    asker.close()
    for thread in threads:
        thread.join(5)
    assert sorted(found) == ["0 at 0.5", "stopped before the policy was asked"]
    with pytest.raises(PolicyError, match="closed"):
        asker.ask(Request((), 1))


@pytest.mark.slow
def test_bench_draws_from_a_model_in_batches(kernelwright: Command, tmp_path: Path) -> None:
    """A random model answers nonsense to prompts that fit its context; a longer prompt has no answer."""
    pytest.importorskip("tokenizers")
    from inference.checkpoints import random_checkpoint

    folder = random_checkpoint(tmp_path / "model", context=256)
    task = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n\n"
    task += "def get_inputs():\n    return [torch.ones(3)]\n\ndef get_init_inputs():\n    return []\n"
    long = task.replace("        return", "        x = x + 1\n" * 200 + "        return")
    rows = [{"task_id": "short", "reference": task}, {"task_id": "long", "reference": long}]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = (tmp_path / "tasks.jsonl", "--policy", f"starter:{folder}", "--samples", 4, "--greedy", "--backend", "cpu")
    done = kernelwright("bench", *words, "--run", tmp_path / "run", "--json", timeout=280)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["counts"]["samples"], found["counts"]["no_answer"]) == (5, 5), done.stderr
    assert found["verdicts"] == {"no_candidate": 5} and found["cost"]["completion_tokens"] > 0


class OneByOne(Doubler):
    """Reports the end of each answer except the second."""

    def generate_each(self, requests: Sequence[Request], done: Callable[[int, Answer], None], stopped: Stopped) -> None:
        done(0, Answer("the first"))
        while not stopped():
            time.sleep(0.01)
        raise PolicyError("stopped")


def test_what_has_ended_is_there_while_others_go_on_and_closing_ends_those() -> None:
    asker = Asker(OneByOne())
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(asker.ask, Request((), seed, None, None)) for seed in (1, 2)]
        deadline = time.monotonic() + 20
        while sum(a.done() for a in asked) != 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [a.done() for a in asked].count(True) == 1
        asker.close()
        answers = [a.exception(20) or a.result() for a in asked]
    assert sorted(type(a).__name__ for a in answers) == ["Answer", "PolicyError"]
