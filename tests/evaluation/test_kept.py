"""What a referee keeps for the next candidate of a task: no more than there is room for, and of no other question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.evaluation.channel import Message
from kernelwright.evaluation.devices import HostDevice
from kernelwright.evaluation.kept import Kept
from kernelwright.evaluation.referee import Referee

SOURCE = """
import torch
import torch.nn as nn
rows = 6
calls = []
made = []
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)
    def forward(self, x):
        calls.append(x.dtype)
        return self.fc(x)
def get_inputs():
    made.append(1)
    return [torch.rand(rows, 32)]
def get_init_inputs():
    return [32]
"""


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 70)), max_size=60))
def test_no_more_is_kept_than_there_is_room_for(asked: list[tuple[int, int]]) -> None:
    kept, known = Kept(100), dict[int, int]()
    for key, nbytes in asked:
        found = kept.find(key)
        assert found is None or found == known[key]
        if found is None:
            known[key] = nbytes
            kept.keep(key, nbytes, nbytes)
            assert kept.find(key) == (nbytes if nbytes <= 50 else None)
        assert kept.nbytes == sum(nbytes for _, nbytes in kept._entries.values()) <= 100


def test_what_was_asked_for_last_stays() -> None:
    kept = Kept(10)
    for key in "ab":
        kept.keep(key, key, 4)
    assert kept.find("a") == "a"
    kept.keep("c", "c", 4)
    assert [kept.find(key) for key in "abc"] == ["a", None, "c"]


class Judgement:
    """What the judge asks a referee about one candidate, in order; `right` answers come from the model that it has."""

    def __init__(
        self, referee: Referee, seed: int, source: str = SOURCE, rows: int = 6, randomise: bool = True
    ) -> None:
        self.referee = referee
        about = {"source": source, "constants": {"rows": rows}, "weight_seed": seed, "input_seed": seed + 1}
        room = {"memory_bytes": 0, "beside": False, "ruler": None, "baselines": True}
        self.facts, self.weights = referee.prepare(Message({**about, **room, "randomise": randomise}))

    def filled(self, *seeds: int) -> list[torch.Tensor]:
        """Inputs of one call a slot, as the runner finds them."""
        self.referee.fill(Message({"aside": False, "distribution": "own", "seeds": list(seeds)}))
        return [self.referee._at(self.referee.inputs[0], slot).clone() for slot in range(len(seeds))]

    def answered(self, slot: int, outputs: torch.Tensor) -> None:
        self.referee._at(self.referee.outputs[0], slot).copy_(outputs)

    def verdict(self, seed: int, outputs: torch.Tensor, thorough: bool = False) -> dict[str, Any]:
        """Of one call."""
        self.answered(0, outputs)
        about = {"distribution": "own", "seed": seed, "call_seed": seed, "slot": 0, "tiles": 0, "repeat": ""}
        answer = self.referee.check(Message({**about, "thorough": thorough, "tolerance": None}))
        return dict(answer["results"][0])

    def row(self, seeds: list[int], outputs: list[torch.Tensor]) -> list[bool]:
        for slot, one in enumerate(outputs):
            self.answered(slot, one)
        about = {"distribution": "own", "seeds": seeds, "call_seed": 0, "thorough": False, "tolerance": None}
        return [bool(results[0]["passed"]) for results in self.referee.check_row(Message(about))["rows"]]

    def right(self, given: torch.Tensor) -> torch.Tensor:
        """What the model that the referee has now makes of inputs."""
        with torch.no_grad():
            return torch.nn.functional.linear(given, self.referee.model.fc.weight, self.referee.model.fc.bias)


@pytest.fixture
def referee(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Referee:
    monkeypatch.chdir(tmp_path)
    return Referee(HostDevice(), 1 << 20)


def whole(referee: Referee, seed: int, wrong: float = 0.0) -> list[Any]:
    """A whole judgement of a candidate whose answers are off by so much: everything that the referee said of it."""
    it = Judgement(referee, seed)
    (first,) = it.filled(seed)
    said: list[Any] = [it.verdict(seed, it.right(first) + wrong, thorough=True)]
    said.append(it.verdict(seed, it.right(first) + wrong))
    referee.reweigh(Message({"weight_seed": seed + 7}))
    (other,) = it.filled(seed + 1)
    said.append(it.verdict(seed + 1, it.right(other) + wrong))
    row = it.filled(seed + 2, seed + 3)
    said.append(it.row([seed + 2, seed + 3], [it.right(given) + wrong for given in row]))
    return said


def test_the_next_candidate_of_the_group_is_judged_by_what_was_worked_out(referee: Referee) -> None:
    """No reference is run and no input made again; what is said of it is what a fresh referee says."""
    first = whole(referee, 10)
    calls, made = (list(referee.namespace[name]) for name in ("calls", "made"))
    assert torch.float64 in calls and first[-1] == [True, True] and first[0]["passed"]
    assert whole(referee, 10) == first
    assert (referee.namespace["calls"], referee.namespace["made"]) == (calls, made)
    wrong = whole(referee, 10, wrong=0.1)
    assert not any(one["passed"] for one in wrong[:3]) and wrong[3] == [False]
    assert wrong == whole(Referee(HostDevice(), 0), 10, wrong=0.1)


def test_other_inputs_weights_sizes_and_tasks_are_other_questions(referee: Referee) -> None:
    whole(referee, 10)
    before = len(referee.namespace["calls"])
    assert whole(referee, 20)[0]["passed"] and len(referee.namespace["calls"]) > before
    it = Judgement(referee, 10)
    (inputs,) = it.filled(10)
    of_one = it.right(inputs)
    referee.reweigh(Message({"weight_seed": 17}))
    (same,) = it.filled(10)
    assert torch.equal(inputs, same)
    assert not it.verdict(10, of_one)["passed"] and it.verdict(10, it.right(same))["passed"]
    assert Judgement(referee, 10, rows=9).facts["shapes"] == [[9, 32]]
    doubled = Judgement(referee, 10, source=SOURCE.replace("self.fc(x)", "2 * self.fc(x)"))
    (inputs,) = doubled.filled(10)
    assert not doubled.verdict(10, doubled.right(inputs))["passed"]
    assert doubled.verdict(10, 2 * doubled.right(inputs))["passed"]
    plain = Judgement(referee, 10, randomise=False)
    assert plain.weights != Judgement(referee, 10).weights


def test_a_reference_that_writes_where_it_may_not_changes_nothing_that_is_kept(referee: Referee) -> None:
    source = SOURCE.replace("return self.fc(x)", "y = self.fc(x)\n        x.zero_()\n        return y")
    for _ in range(2):
        it = Judgement(referee, 5, source=source)
        (inputs,) = it.filled(5)
        assert bool(inputs.any())
        assert it.verdict(5, it.right(inputs), thorough=True)["passed"] and it.verdict(5, it.right(inputs))["passed"]
        assert not it.verdict(5, it.right(torch.zeros_like(inputs)))["passed"]


def test_who_gives_memory_back_keeps_nothing(referee: Referee) -> None:
    whole(referee, 10)
    assert referee.kept.nbytes > 0
    referee.release(Message({"all": True}))
    assert referee.kept.nbytes == 0 and referee.kept.find(("model", (10, True))) is None
