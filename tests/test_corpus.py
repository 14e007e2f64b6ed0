"""The corpus of right and wrong kernels: enough of each, every declared mistake fits, what a confusion page says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from confusion import cause, outcome, page
from corpus import FAMILIES, MUTANTS, RIGHT, Edit, Family

from kernelwright.evaluation import EvalOptions, Evaluator


def test_there_are_enough_of_each() -> None:
    assert len(FAMILIES) >= 35
    assert len(RIGHT) >= 130  # and as many honest candidates again
    assert len(MUTANTS) >= 150
    names = [member.name for member in (*RIGHT, *MUTANTS)]
    assert len(names) == len(set(names))
    sources = [member.source for member in (*RIGHT, *MUTANTS)]
    assert len(sources) == len(set(sources)), "two members with the same text"


def test_an_edit_must_fit_exactly_once() -> None:
    family = Family("f", "", "a a", {"v": {}}, (Edit("index", "a", "b"),))
    with pytest.raises(ValueError, match="2 places"):
        family.mutants()


@pytest.mark.parametrize("name", ["tree-sum", "matmul-tiled-16", "histogram-shared"])
def test_a_family_is_judged_as_declared(name: str) -> None:
    chosen = [m for m in (*RIGHT, *MUTANTS) if m.name.split("!")[0] == name][:4]
    assert [m.right for m in chosen] == [True, False, False, False][: len(chosen)]
    with Evaluator(EvalOptions(backend="cpu", seed=5)) as evaluator:
        for member in chosen:
            result = evaluator.evaluate(member.task(), member.candidate())
            assert (result.verdict == "correct") == member.right, f"{member.name}: {result.verdict}: {result.reason}"


def row(name: str, verdict: str, reason: str = "", right: bool = False, kind: str = "barrier") -> dict[str, object]:
    return {"name": name, "verdict": verdict, "reason": reason, "right": right, "kind": kind}


def test_disagreements_are_told_by_cause() -> None:
    race = row("m", "wrong", "data-race: race RAW")
    assert "timing hides" in cause(race, row("m", "correct"))
    assert "outside its array" in cause(row("m", "runtime_error", "out-of-bounds-read: x"), row("m", "correct"))
    assert cause(row("m", "wrong", "output 0 differs", kind="index"), row("m", "correct")).startswith("unexplained")
    assert cause(row("r", "wrong", "x", right=True), row("r", "correct", right=True)).startswith("unexplained")
    assert "no verdict on the machine" in cause(row("m", "unsupported", "wgmma"), row("m", "correct"))
    assert outcome(row("m", "timeout")) == "wrong"


def test_the_page_counts_and_names() -> None:
    cpu = [
        row("a", "correct", right=True),
        row("b!0", "wrong", "data-race: x"),
        row("c!0", "wrong", "output"),
        row("d!0", "wrong"),
    ]
    gpu = [row("a", "correct", right=True), row("b!0", "correct"), row("c!0", "wrong", "output")]
    text = page({"rows": cpu}, {"rows": gpu}, None)
    assert "| right | correct | 1 | 0 | 0 |" in text
    assert "| mutants | refused | 1 | 1 | 0 |" in text
    assert "1 right kernels and 2 mutants" in text
    assert "not reached on the GPU: d!0" in text
    assert "`b!0`" in text
