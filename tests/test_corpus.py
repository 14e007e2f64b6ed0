"""The corpus of correct and wrong kernels: enough of each, every declared mistake fits, and the confusion page."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import gpu_machine
import judge_corpus
from confusion import cause, outcome, page
from sets.corpus import FAMILIES, MUTANTS, RIGHT, Edit, Family

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool


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
def test_a_family_is_judged_as_declared(name: str, pool: Pool) -> None:
    chosen = [m for m in (*RIGHT, *MUTANTS) if m.name.split("!")[0] == name][:4]
    assert [m.right for m in chosen] == [True, False, False, False][: len(chosen)]
    with Evaluator(EvalOptions(backend="cpu", seed=5), pool=pool) as evaluator:
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
    assert "| correct | correct | 1 | 0 | 0 |" in text
    assert "| mutants | refused | 1 | 1 | 0 |" in text
    assert "1 correct kernels and 2 mutants" in text
    assert "the GPU ran out of time before 0 correct kernels and 1 mutants: d!0." in text
    assert "`b!0`" in text


def test_a_report_is_resumed(tmp_path: Path) -> None:
    """Verdicts are kept. Members with a harness fault are judged again; members that no longer exist are dropped."""
    path = tmp_path / "report.json"
    assert judge_corpus.judged_before(path, "gpu", {"a"}) == []
    rows = [row("a", "correct"), row("b", "harness_error"), row("c", "wrong"), row("gone", "correct")]
    path.write_text(json.dumps({"backend": "gpu", "rows": rows}))
    assert [r["name"] for r in judge_corpus.judged_before(path, "gpu", {"a", "b", "c"})] == ["a", "c"]
    with pytest.raises(SystemExit, match="of backend gpu"):
        judge_corpus.judged_before(path, "cpu", {"a"})


def test_right_and_wrong_take_turns() -> None:
    order = judge_corpus.spread([*RIGHT, *MUTANTS])
    assert len(order) == len(RIGHT) + len(MUTANTS)
    first = sum(member.right for member in order[:60])
    assert abs(first - 60 * len(RIGHT) / len(order)) <= 1


def test_a_part_that_is_late_is_ended_with_its_children() -> None:
    process = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"], start_new_session=True)
    assert gpu_machine.finished(process, time.monotonic()) == 124
    assert process.returncode == -signal.SIGTERM
    again = subprocess.Popen(["true"], start_new_session=True)
    again.wait()
    assert gpu_machine.finished(again, time.monotonic()) == 0
