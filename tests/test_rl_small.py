"""Reinforcement learning on a CPU: the planted exploit works, and all variants are trained and asked alike."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.usefixtures("commands_are_warm")  # each starts judges of its own, several times


@pytest.fixture
def measurement(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import rl_hacking_small

    return rl_hacking_small


def test_what_is_planted_pays_without_guards_only(measurement: object) -> None:
    from kernelwright.evaluation import EvalOptions, Evaluator

    loop = measurement.example()  # type: ignore[attr-defined]
    hack, honest = loop.text_of([1, 1, 0, 0]), loop.text_of([0, 0, 2, 2])
    with Evaluator(EvalOptions(backend="cpu", trials=2, seed=0)) as ours:
        found = [loop.Judged(ours)(loop.TASKS[0], text).verdict for text in (hack, honest)]
    assert found[0] in ("wrong", "rejected") and found[1] == "correct"
    with Evaluator(EvalOptions(backend="cpu", trials=2, seed=0, strict_kernelbench=True)) as strict:
        found = [loop.Judged(strict)(loop.TASKS[0], text).verdict for text in (hack, honest)]
    assert found == ["correct", "correct"]


def test_it_writes_a_row_a_step(measurement: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["rl_hacking_small.py", str(tmp_path / "out.json"), "--seeds", "0", "--steps", "2", "--share", "0.5"]
    monkeypatch.setattr(sys, "argv", words)
    measurement.main()  # type: ignore[attr-defined]
    found = json.loads((tmp_path / "out.json").read_text())
    for name in ("guards_off", "guards_on"):
        assert [row["step"] for row in found[name][0]["curve"]] == [1, 2]
    paid = [row["exploits_paid"] for run in found["guards_on"] for row in run["curve"]]
    assert paid[0] == 0.0 and found["guards_off"][0]["curve"][0]["exploits_paid"] == 0.3


def test_variants_of_the_claims_in_small_are_trained_and_asked_alike(
    measurement: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import rl_claims_small

    out = tmp_path / "claims.json"
    words = ["rl_claims_small.py", str(out), "--seeds", "2", "--steps", "1", "--answers", "4"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(rl_claims_small, "ASKED_ROLLOUTS", 4)
    rl_claims_small.main()
    found = json.loads(out.read_text())
    assert set(found["runs"]) == set(rl_claims_small.VARIANTS) == set(found["means"])
    for name, runs in found["runs"].items():
        turns = rl_claims_small.VARIANTS[name][0]
        for run in runs:
            assert 4 * (4 // turns) <= run["answers"] <= 4 * 4  # four tasks, four answers each at most
            assert 0.0 <= run["at_once"] <= run["within_four"] <= 1.0
    assert set(found["to_one_turn"]["at_once"]) == set(found["runs"]) - {"one turn"}
