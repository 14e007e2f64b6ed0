"""`kernelwright solutions`: candidates written, schedules listed, and swept into a run that resumes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Command

from kernelwright.errors import UsageError
from kernelwright.runs.store import Store
from kernelwright.search import autotune
from kernelwright.search.autotune import Measured, ranked


def test_write_and_list(kernelwright: Command, tmp_path: Path) -> None:
    listed = kernelwright("solutions", "write", "small_matmul", "--list")
    assert listed.returncode == 0 and {"canonical", "product=register64"} <= set(listed.stdout.split())
    made = kernelwright("solutions", "write", "small_matmul", "--schedule", "product=shared32", "--json")
    assert "tb[32][32]" in json.loads(made.stdout)["candidate"]
    for wrong in (("--schedule", "product=slow"), ("--form", "hip")):
        refused = kernelwright("solutions", "write", "small_matmul", *wrong)
        assert refused.returncode == 2 and refused.stderr.startswith("error:") and "hint:" in refused.stderr


def test_tune_resumes_and_marks_one_best(kernelwright: Command, tmp_path: Path) -> None:
    given = ("solutions", "tune", "small_matmul", "--run", str(tmp_path / "run"), "--backend", "cpu", "--seed", "3")
    chosen = ("--schedule", "product=naive", "--schedule", "product=register64", "--json")
    first = kernelwright(*given, *chosen)
    assert first.returncode == 0, first.stderr
    rows = [json.loads(line) for line in first.stdout.splitlines()]
    assert [r["verdict"] for r in rows] == ["correct", "correct"]
    assert [r["best"] for r in rows] == [False, True] and rows[0]["instructions"] > rows[1]["instructions"] > 0
    assert kernelwright(*given, *chosen).stdout == first.stdout
    with Store.open(tmp_path / "run", writable=False) as store:
        assert store.verdict_counts() == {"correct": 2}
        assert [e.kind for e in store.events()].count("tuned") == 2


def test_families_and_unknown_words() -> None:
    assert len(autotune.tasks_of("conv_depthwise2d", 3, 0)) == 3
    with pytest.raises(Exception, match="there is no task"):
        autotune.tasks_of("conv_sideways", 3, 0)
    with pytest.raises(UsageError, match="nothing to tune"):
        autotune.trials(autotune.tasks_of("small_matmul", 1, 0), names=["block=64"])


def test_best_is_the_fastest_that_is_correct() -> None:
    def trial(verdict: str, ms: float) -> Measured:
        return Measured("t", "s", verdict, "", ms, None, None, 0)

    found = ranked([trial("correct", 2.0), trial("wrong", 0.5), trial("correct", 1.0)])
    assert [m.best for m in found] == [False, False, True]
