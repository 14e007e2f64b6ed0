"""What the referee makes before it is asked for, in this process, on the processor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelwright.evaluation import referee as module
from kernelwright.evaluation.channel import Message
from kernelwright.evaluation.devices import HostDevice
from kernelwright.evaluation.referee import Referee

TASK = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        return x * self.scale
def get_inputs():
    return [torch.randn(8, 16)]
def get_init_inputs():
    return [16]
"""
SEEDS, CALL_SEED = [3, 4, 5], 9


@pytest.fixture
def referee(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Referee]:
    monkeypatch.chdir(tmp_path)
    made = Referee(HostDevice())
    header = {"source": TASK, "constants": {}, "weight_seed": 1, "input_seed": 2, "randomise": True}
    made.prepare(Message({**header, "memory_bytes": 0, "beside": False, "ruler": None, "baselines": True}))
    yield made
    made.drop()


def ask(referee: Referee, kind: str, **header: Any) -> Any:
    return getattr(referee, kind)(Message({"kind": kind, "distribution": "own", **header}))


def answered(referee: Referee, error: float = 0.0) -> None:
    """Writes right outputs where a candidate would, moved by so much."""
    for slot, seed in enumerate(SEEDS):
        (expected,) = referee._own_run("own", seed, CALL_SEED)
        referee._at(referee.outputs[0], slot).copy_(expected + error)


def test_rows_are_filled_and_checked_from_what_was_made_ahead(
    referee: Referee, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(referee)
    right = referee.shared.clone()  # type: ignore[union-attr]
    ask(referee, "ahead", rows=[{"seeds": SEEDS, "call_seed": CALL_SEED}])
    made = {seed: referee.waiting["own", seed][0].clone() for seed in SEEDS}
    assert bool((referee.shared == right).all()), "no block has them before they are asked for"

    def again(*_: Any) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(module.task_inputs, "make_inputs", again)
    for aside in (False, True):  # the candidate's, then the baseline's
        ask(referee, "fill", seeds=SEEDS, aside=aside)
        block = referee.aside if aside else referee.shared
        for slot, seed in enumerate(SEEDS):
            assert bool((referee._at(referee.inputs[0], slot, block) == made[seed]).all())
    assert not referee.waiting
    for slot in range(len(SEEDS)):
        start = slot * referee.stride
        referee.shared[start : start + referee.stride] = right[start : start + referee.stride]  # type: ignore[index]
    monkeypatch.setattr(referee, "_run", again)
    checked = ask(referee, "check_row", seeds=SEEDS, call_seed=CALL_SEED, tolerance=None, thorough=False)
    assert [[r["passed"] for r in row] for row in checked["rows"]] == [[True]] * 3 and not referee.expected


def test_what_was_made_ahead_finds_a_wrong_row(referee: Referee) -> None:
    ask(referee, "ahead", rows=[{"seeds": SEEDS, "call_seed": CALL_SEED}])
    ask(referee, "fill", seeds=SEEDS, aside=False)
    answered(referee, error=0.5)
    checked = ask(referee, "check_row", seeds=SEEDS, call_seed=CALL_SEED, tolerance=None, thorough=False)
    assert not checked["rows"][0][0]["passed"]


def test_other_weights_forget_what_was_made_ahead(referee: Referee) -> None:
    ask(referee, "ahead", rows=[{"seeds": SEEDS, "call_seed": CALL_SEED}])
    ask(referee, "reweigh", weight_seed=77)
    assert not referee.waiting and not referee.expected
    ask(referee, "fill", seeds=SEEDS, aside=False)
    answered(referee)
    checked = ask(referee, "check_row", seeds=SEEDS, call_seed=CALL_SEED, tolerance=None, thorough=False)
    assert all(result["passed"] for row in checked["rows"] for result in row)


def test_large_calls_are_not_made_ahead(referee: Referee, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOT_BYTES", 100)
    ask(referee, "ahead", rows=[{"seeds": SEEDS, "call_seed": CALL_SEED}])
    assert not referee.waiting and not referee.expected
