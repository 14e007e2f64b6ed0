"""Ctrl-C while a step is played: it ends soon and keeps finished rollouts."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

sys.path.insert(0, str(Path(__file__).parent))

from undecided_model import rl_table

from kernelwright.errors import PolicyError, StoreError
from kernelwright.executor import Executor, load_executor
from kernelwright.policies import load_policy
from kernelwright.records import Evaluation
from kernelwright.rewards.opinion import OpinionJudge
from kernelwright.training.ranks import Ranks
from kernelwright.training.rl.loop import load_tasks
from kernelwright.training.rl.rollouts import RolloutRow, Rollouts, read_rollouts
from kernelwright.training.rl.settings import RlSettings
from kernelwright.training.rl.state import State

SOON = 15.0
"""Seconds within which a run has to end: a question to a dead endpoint takes 31, one to a silent one half an hour."""


@pytest.fixture(scope="module")
def judges() -> Iterator[Executor]:
    with load_executor("local", 2, "cpu") as executor:
        yield executor


def rollouts_of(undecided: Path, judges: Executor, judge: OpinionJudge | None = None, **rollout: Any) -> Rollouts:
    reward = {"name": "stanford", "parameters": {"judge_weight": 0.3}}
    table = rl_table(undecided, reward=reward, rollout={"rollouts": 4, **rollout})
    settings = RlSettings.model_validate(table)
    found = Rollouts(settings, State.open(settings, undecided / "none", Ranks()).policy, judges, judge)
    found.judge_weight = 0.3
    return found


def interrupted(rollouts: Rollouts, path: Path, when: Callable[[], bool]) -> float:
    """Plays a step, interrupts it, and returns the seconds until it ended.

    A lost interrupt is sent again after a minute: the test then fails by the time that the step took, and cannot hang.
    """
    sent: list[float] = []
    ended = threading.Event()

    def send() -> None:
        while not when():
            time.sleep(0.02)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
        if not ended.wait(60):
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            rollouts.play(0, dict(enumerate(load_tasks(rollouts.settings.tasks))), path)
    finally:
        ended.set()
    return time.monotonic() - sent[0]


@pytest.fixture
def silent() -> Iterator[tuple[str, list[socket.socket]]]:
    """Serves an endpoint that accepts questions and never answers."""
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1", taken
        for connection in taken:
            connection.close()


def test_a_silent_judge_does_not_hold_up_who_stops_the_run(
    undecided: Path, judges: Executor, tmp_path: Path, silent: tuple[str, list[socket.socket]]
) -> None:
    url, taken = silent
    judge = OpinionJudge(load_policy(f"openai:x@{url}"))
    path = tmp_path / "step.jsonl"
    assert interrupted(rollouts_of(undecided, judges, judge), path, lambda: bool(taken)) < SOON
    assert all(row.facts.get("judge_failed") != 1.0 for rows in read_rollouts(path).values() for row in rows)


def test_nor_does_one_that_nobody_answers_for(undecided: Path, judges: Executor, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        judge = OpinionJudge(load_policy(f"openai:x@http://127.0.0.1:{probe.getsockname()[1]}/v1"))
        took = interrupted(rollouts_of(undecided, judges, judge), tmp_path / "step.jsonl", lambda: judge.asked > 1)
    assert took < SOON
    with pytest.raises(PolicyError, match="stopped"):
        judge.policy.generate((), seed=0)


def slowed(rollouts: Rollouts, monkeypatch: pytest.MonkeyPatch, failing: int = -1) -> list[int]:
    """Delays verdicts and records finished rollouts; one of them may fail instead."""
    whole: list[int] = []
    judged, play, order = rollouts._judged, rollouts._play, threading.Lock()

    def late(*words: Any, **more: Any) -> Evaluation:
        found = judged(*words, **more)
        with order:  # one after another: not all become whole at once
            time.sleep(0.5)
        return found

    def noting(*words: Any) -> list[RolloutRow]:
        rows = play(*words)
        whole.append(words[-1])
        if len(whole) == failing:
            raise RuntimeError("planted")
        return rows

    monkeypatch.setattr(rollouts, "_judged", late)
    monkeypatch.setattr(rollouts, "_play", noting)
    return whole


def test_rollouts_that_become_whole_while_it_ends_are_kept(
    undecided: Path, judges: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts, path = rollouts_of(undecided, judges), tmp_path / "step.jsonl"
    whole = slowed(rollouts, monkeypatch)
    interrupted(rollouts, path, lambda: bool(whole))
    assert len(read_rollouts(path)) == len(whole) > 1


def test_so_are_those_beside_one_that_fails(
    undecided: Path, judges: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts, path = rollouts_of(undecided, judges), tmp_path / "step.jsonl"
    whole = slowed(rollouts, monkeypatch, failing=1)
    with pytest.raises(RuntimeError, match="planted"):
        rollouts.play(0, dict(enumerate(load_tasks(rollouts.settings.tasks))), path)
    assert len(read_rollouts(path)) == len(whole) - 1 > 0


def test_a_part_of_a_rollout_is_never_between_others(undecided: Path, judges: Executor, tmp_path: Path) -> None:
    """A partial line, from a full disk or a killed process, would make later lines unreadable."""
    rollouts, path = rollouts_of(undecided, judges), tmp_path / "step.jsonl"
    rows = [RolloutRow("t", 0, n, 0, (1,), (1,), (-1.0,), 0.0, {}, {}, "wrong", "stop") for n in range(3)]
    rollouts._keep(path, rows[:1])
    with open(path, "a") as file:
        file.write('[{"task_id": "rel')
    rollouts._keep(path, rows[1:2])
    assert sorted(read_rollouts(path)) == [(0, 0), (0, 1)]
    limits, size = resource.getrlimit(resource.RLIMIT_FSIZE), path.stat().st_size
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, limits[1]))
    try:
        with pytest.raises(StoreError):
            rollouts._keep(path, rows[2:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert path.stat().st_size == size
