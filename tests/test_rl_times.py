"""The table of schedule times: verdicts become a table, the table the same verdicts, and training finds them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelwright
from kernelwright.evaluation import EvalOptions
from kernelwright.runs.known_verdicts import question
from kernelwright.runs.store import Store

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
FAMILIES = "sum,gelu"


def _called(monkeypatch: pytest.MonkeyPatch, name: str, *words: object) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = __import__(name)
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    module.main()
    return module


def test_a_table_restores_what_it_was_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, table, again = tmp_path / "tasks", tmp_path / "table.json", tmp_path / "again.json"
    sizes = ["--tasks", 2, "--train", 2, "--held-out", 2, "--jobs", 1, "--most", 2e6, "--families", FAMILIES]
    _called(monkeypatch, "rl_schedules", folder, *sizes)
    times = __import__("rl_times")
    rows = []
    for number, (suite, task, schedule, _) in enumerate(times.answers(folder)):
        eager, own = 0.02, 0.01 * (1 + number % 5)
        row = {"suite": suite, "task": task.task_id, "schedule": schedule, "verdict": "correct", "gpu": "a card"}
        row |= {"candidate_ms": own, "eager_ms": eager, "interval": [eager / own, eager / own], "own_share": 1.0}
        rows.append(row | {"samples": {"candidate": [own, own], "eager": [eager, eager]}})
    assert {row["suite"] for row in rows} == {"train", "held_out"} and len(rows) > 12
    stalled = {**rows[-1], "samples": {"candidate": [0.01, 0.01], "eager": [0.02, 0.3]}}
    table.write_text(json.dumps({"rows": [*rows[:-1], stalled]}))
    _called(monkeypatch, "rl_times", folder, tmp_path / "verdicts", table, "--restore")
    _called(monkeypatch, "rl_times", folder, tmp_path / "verdicts", again)
    found = json.loads(again.read_text())
    assert found["rows"] == rows[:-1], "a stall is to be judged again"
    speedups = found["families"]["all"]["speedup"]
    assert 0.4 <= speedups["even"] <= speedups["best"] <= 2.0

    # A step of training asks the filter first, then the GPU.
    with Store.open(tmp_path / "verdicts", writable=False) as store:
        _, task, _, candidate = next(times.answers(folder))
        gpu = EvalOptions(backend="gpu", trials=3, timing_seconds=0.1)
        for options in (gpu.changed(backend="cpu", small_sizes=True), gpu):
            known = store.find_evaluation(question(task, candidate, options))
            assert known is not None and known.verdict == "correct" and known.environment.notes

    # The choice of a schedule is learnt from the same table.
    learnt = __import__("rl_schedule_choice")
    tokenizer = learnt.ChatTokenizer.load(Path(kernelwright.__file__).parent / "data" / "starter")
    tasks = learnt.choices(folder, again, tokenizer, [])
    assert {task.suite for task in tasks} == {"train", "held_out"}
    for task in tasks:
        lines = [tokenizer.decode(head) for head in task.heads]
        assert all(line.startswith("# schedule: ") and "\n" in line for line in lines)
        assert not any(a != b and a.startswith(b) for a in lines for b in lines)
        assert len(task.heads) == len(task.speedups) and task.rewards("stanford").min() > 1.0
    # torch.compile takes half of eager's time on one task, which alone then counts.
    halves = {"task": tasks[0].task.task_id, "eager_ms": 2.0, "compile_ms": 1.0}
    table.write_text(json.dumps({"rows": [halves, {**halves, "compile_ms": None}]}))
    (one,) = learnt.choices(folder, again, tokenizer, [], learnt.compiled_shares(table))
    paid = one.rewards("cuda_agent")
    assert ((paid >= 2) == (one.speedups > 1 / 0.95)).all() and ((paid == 3) == (one.speedups > 2 / 0.95)).all()
    assert (one.rewards("kevin:cap=1.0") <= 1.3).all()

    # And the tags of its deciles: every answer once, the fastest under 10/10.
    deciles = __import__("decile_choice")
    for choice in tasks:
        rows = deciles.tagged(tokenizer, choice)
        assert sorted(head for row in rows for head in row.heads) == sorted(choice.heads)
        best = choice.heads[int(choice.speedups.argmax())]
        (first,) = [row for row in rows if best in row.heads]
        assert "Speed: 10/10 of the fastest known." in tokenizer.decode(first.prompt)
