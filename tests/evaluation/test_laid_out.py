"""The layout of calls that are timed by launches alone: how many slots fit, and how many are made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.device.devices import HostDevice
from kernelwright.evaluation.judge import timing_in_rows
from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.judge.timing import TimedSamples, clearly_slower
from kernelwright.evaluation.judge.timing_in_rows import SLOTS, Clocked, Pass
from kernelwright.evaluation.processes.messages import CallTimes
from kernelwright.evaluation.reference.referee import Referee

MB = 1 << 20
TURN = ["candidate", "eager"]


@pytest.mark.parametrize(
    ("call_mb", "budget_mb", "slots"),
    [
        (1, 3072, SLOTS[0]),
        (10, 3072, 25),  # as many as usually have room
        (64, 3072, SLOTS[1]),  # few, in rows
        (64, 1024, 4),  # whoever has little memory has no more than usual
        (300, 8192, SLOTS[2]),  # two calls, one by one
        (300, 1900, 1),  # not even those
    ],
)
def test_as_many_calls_as_there_is_room_for(call_mb: int, budget_mb: int, slots: int) -> None:
    assert Referee(HostDevice())._slots(SLOTS, call_mb * MB, call_mb * MB // 2, budget_mb * MB) == slots


def test_who_says_nothing_gets_the_usual_number() -> None:
    referee = Referee(HostDevice())
    assert [referee._slots([], mb * MB, mb * MB // 2, 0) for mb in (1, 30, 500)] == [16, 4, 1]


class Clock:
    """Returns set durations for calls, in turn, and records the called slots."""

    def __init__(self, candidate: list[float], eager: list[float]) -> None:
        self.left = {"candidate": list(candidate), "eager": list(eager)}
        self.called: list[tuple[str, int, int]] = []

    def __call__(self, _bench: Any, _laid: Pass, who: str, first: int, count: int, **_way: bool) -> Clocked:
        self.called.append((who, first, count))
        took = self.left[who].pop(0)
        times = CallTimes(device_ms=took, slack_ms=0.0, issue_ms=0.0, hidden=True)
        return Clocked(times, times)


def _bench() -> Any:
    return SimpleNamespace(
        session=SimpleNamespace(launch_ms=0.0),
        options=SimpleNamespace(timing_seconds=0.05),
        seat=SimpleNamespace(baseline=SimpleNamespace(child=None)),
        kernels=[],
        attempt=Attempt(),
    )


@pytest.mark.parametrize(
    ("eager", "candidate", "used"),
    [
        ([1.0, 1.01], 2.0, 2),
        ([1.0, 3.0, 1.0, 1.01, 1.02, 1.0], 2.0, 4),  # a stall is looked into at once
        ([1.0, 3.0, 1.0, 3.0, 1.0, 3.0], 2.0, 6),  # as long as there are calls
        ([1.0, 3.0], 700.0, 2),  # and they do not take too long
    ],
)
def test_calls_one_by_one(monkeypatch: pytest.MonkeyPatch, eager: list[float], candidate: float, used: int) -> None:
    clock = Clock([candidate] * 6, eager)
    monkeypatch.setattr(timing_in_rows, "_measured", clock)
    samples = TimedSamples(TURN)
    assert timing_in_rows._one_by_one(_bench(), Pass(1, list(range(6)), {}), TURN, samples) == used
    assert [slot for who, slot, _ in clock.called if who == "candidate"] == list(range(used))
    assert [who for who, _, _ in clock.called[:4]] == ["candidate", "eager", "eager", "candidate"]
    assert samples.fewest() == used


def test_calls_in_rows_meet_each_slot_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock([0.01] * 3, [0.02] * 2)
    monkeypatch.setattr(timing_in_rows, "_measured", clock)
    samples = TimedSamples(TURN)
    assert timing_in_rows._in_rows(_bench(), Pass(4, list(range(13)), {}), TURN, samples) == 13
    rows = [(first, count) for who, first, count in clock.called if who == "candidate"]
    assert rows == [(1, 4), (5, 4), (9, 4)] and samples.late is not None
    assert samples.times == {"candidate": [0.01, 0.01], "eager": [0.02, 0.02]}


@pytest.mark.parametrize(
    ("own", "other", "ends"),
    [
        ([3.0, 3.1, 3.2, 3.3], [1.0, 1.1, 1.2, 1.3], True),
        ([3.0, 3.1, 3.2], [1.0, 1.1, 1.2, 1.3], False),
        ([3.0, 3.1, 3.2, 3.3], [1.0, 1.1, 1.2, 2.9], False),
        ([1.3, 1.3, 1.3, 1.3], [1.0, 1.0, 1.0, 1.0], False),
    ],
    ids=["slower", "few samples", "times overlap", "nearly as fast"],
)
def test_timing_ends_for_what_is_clearly_slower(own: list[float], other: list[float], ends: bool) -> None:
    assert clearly_slower({"candidate": own, "eager": other}, EvalOptions(baselines=("eager",))) is ends
