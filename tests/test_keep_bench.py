"""The record of a bench run has each sample, whatever became of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from test_suitebench import TASK, right, script, wrong

ROOT = Path(__file__).parents[1]


def test_the_record_has_every_sample(tmp_path: Path) -> None:
    suite = tmp_path / "suite.jsonl"
    names = ("double", "triple", "faulty", "unasked")
    factors = ("2", "3", "undefined_name", "5")
    rows = [{"task_id": n, "reference": TASK.replace("FACTOR", f)} for n, f in zip(names, factors, strict=True)]
    suite.write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = {"double": [right(0), wrong(0)], "triple": [wrong(1), "no code"], "faulty": [right(0)] * 2}
    policy = script(tmp_path / "answers.jsonl", answers)
    words = ["bench", suite, "--policy", policy, "--samples", 2, "--trials", 2, "--backend", "cpu", "--jobs", 1]
    command = [sys.executable, "-m", "kernelwright", *map(str, words), "--run", str(tmp_path / "run")]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    out = tmp_path / "kept.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "keep_bench.py"), str(out), str(tmp_path / "run")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    (run,) = json.loads(out.read_text())["runs"]
    verdicts = {name: [sample[0] for sample in samples] for name, samples in run["rows"].items()}
    assert verdicts["double"] == ["correct", "wrong"] and verdicts["triple"] == ["wrong", "no_candidate"]
    assert verdicts["faulty"] == ["bad_task"] and verdicts["unasked"] == ["no_answer", "no_answer"]
    assert run["first_samples"] == {"bad_task": 1, "correct": 1, "no_answer": 1, "wrong": 1} and run["samples"] == 2
