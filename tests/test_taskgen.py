"""`tasks generate`: files and folders for suites, resuming after a kill, and rejections by lint and gate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Command

from kernelwright.errors import UsageError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.generate import GeneratedTask, writing
from kernelwright.generate.writing import Wish
from kernelwright.tasks import load_suite, load_task

CONSTANT = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.softmax(x.sum(dim=1, keepdim=True), dim=1)

def get_inputs():
    return [torch.randn(64, 128)]

def get_init_inputs():
    return []
"""


def test_a_killed_run_continues_where_it_was(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    writing.write(Wish(30, seed=4), whole)
    text = whole.read_text()
    cut.write_text(text[: len(text) // 2])  # killed in the middle of a line
    outcome = writing.write(Wish(30, seed=4), cut)
    assert cut.read_text() == text
    assert 0 < outcome.resumed < outcome.kept == 30


def test_suites_read_files_and_folders(tmp_path: Path) -> None:
    writing.write(Wish(12, seed=1), tmp_path / "tasks.jsonl")
    writing.write(Wish(12, seed=1), tmp_path / "folder")
    rows, files = load_suite(tmp_path / "tasks.jsonl"), load_suite(tmp_path / "folder")
    assert {t.task_id: t.source for t in rows} == {t.task_id: t.source for t in files}
    assert len(rows) == 12
    assert load_task(f"{tmp_path / 'tasks.jsonl'}#{rows[3].task_id}").source == rows[3].source
    row = json.loads((tmp_path / "tasks.jsonl").read_text().splitlines()[0])
    wanted = "task_id family operators signature difficulty split reference licence origin"
    assert set(wanted.split()) <= set(row)
    manifest = [json.loads(line) for line in (tmp_path / "folder" / "manifest.jsonl").read_text().splitlines()]
    assert [m["task_id"] for m in manifest] == [t.task_id for t in rows]


def test_other_tasks_are_not_mixed_in(tmp_path: Path) -> None:
    writing.write(Wish(5, seed=1), tmp_path / "tasks.jsonl")
    with pytest.raises(UsageError, match="other tasks"):
        writing.write(Wish(5, seed=2), tmp_path / "tasks.jsonl")
    (tmp_path / "foreign.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(UsageError, match="did not write"):
        writing.write(Wish(5, seed=2), tmp_path / "foreign.jsonl")


def test_a_full_disk_is_a_clear_error() -> None:
    output = writing.Output.__new__(writing.Output)
    output.folder, output.kept, output.rejected = None, Path("/dev/full"), Path("/dev/full")
    with pytest.raises(UsageError, match="No space left"):
        output.keep({"task_id": "x", "reference": ""})


def test_the_gate_keeps_a_good_task_and_turns_a_constant_one_down(tmp_path: Path) -> None:
    bad = GeneratedTask("bad_0", "softmax", ("softmax",), "softmax", CONSTANT, 1.0, "train")
    with Evaluator(EvalOptions(backend="cpu")) as evaluator:
        row = writing.examine(bad, evaluator)
        assert row["state"] in ("quarantined", "degenerate")
        assert "constant-output" in row["reason"] or "passes" in row["reason"]
        outcome = writing.write(Wish(1, seed=3, families=("gelu",)), tmp_path / "good.jsonl", evaluator=evaluator)
    kept = json.loads((tmp_path / "good.jsonl").read_text())
    assert kept["state"] in ("sound", "hardened") and outcome.kept == 1


SMALL = CONSTANT.replace("x.sum(dim=1, keepdim=True)", "x")


def _timed(device: str | None) -> dict[str, object]:
    task = GeneratedTask("small_0", "softmax", ("softmax",), "softmax", SMALL, 1.0, "train")
    with (
        Evaluator(EvalOptions(backend="cpu")) as evaluator,
        Evaluator(EvalOptions.model_validate(writing.TIMING), device=device) as timer,
    ):
        return writing.examine(task, evaluator, timer)


def test_a_task_that_passes_is_timed() -> None:
    row = _timed("cpu")  # the GPU's code path, on the CPU
    assert row["state"] == "sound" and isinstance(row["eager_ms"], float) and row["eager_ms"] > 0


@pytest.mark.gpu
def test_a_task_that_passes_is_timed_on_a_gpu() -> None:
    eager = _timed(None)["eager_ms"]
    assert isinstance(eager, float) and 0.001 < eager < 5


def test_the_verb(kernelwright: Command, tmp_path: Path) -> None:
    done = kernelwright("tasks", "generate", "--count", 3, "--out", tmp_path / "t.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kept"] == 3
    printed = kernelwright("tasks", "generate", "--count", 2, "--families", "scan", "--json")
    assert len(printed.stdout.splitlines()) == 2
    unknown = kernelwright("tasks", "generate", "--families", "cov2d")
    assert unknown.returncode == 2 and "near matches: conv2d" in unknown.stderr
    unchecked = kernelwright("tasks", "generate", "--check")
    assert unchecked.returncode == 2 and "--out" in unchecked.stderr
