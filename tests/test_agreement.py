"""benchmarks/agreement.py: causes are read from the evidence, and every judged row is on disk."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "agreement.py"
spec = importlib.util.spec_from_file_location("agreement", SCRIPT)
assert spec is not None and spec.loader is not None
agreement = importlib.util.module_from_spec(spec)
spec.loader.exec_module(agreement)


def facts(
    verdict: str = "correct", reason: str = "", failing: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    empty = dict.fromkeys(("speedup", "interval", "candidate_ms", "eager_ms"))
    return {"verdict": verdict, "reason": reason, "rules": [], "failing": failing, **empty, **more}


def call(**more: Any) -> dict[str, Any]:
    usual = {
        "call": 0,
        "name": "declared",
        "scope": "declared",
        "distribution": "own",
        "shape": [[4]],
        "reason": "differs",
    }
    return {**usual, "max_abs_error": 0.5, "max_rel_error": 0.5, "tolerance": 1e-4, **more}


def times(candidate: float, eager: float) -> dict[str, Any]:
    return facts(candidate_ms=candidate, eager_ms=eager, speedup=eager / candidate)


RIGHT = facts()
CASES = [
    (RIGHT, RIGHT, ""),
    (facts("wrong", "a"), facts("wrong", "b"), ""),
    (facts("rejected", "library-op: it"), RIGHT, "rule: library-op: it"),
    (
        facts("compile_error", "error: x"),
        RIGHT,
        "compile: a build fails, and the candidate goes on without it: error: x",
    ),
    (facts("runtime_error", "out-of-bounds-read"), RIGHT, "fault: out-of-bounds-read"),
    (facts("runtime_error", "out of memory here"), RIGHT, "memory: ours"),
    (facts("timeout", "no answer"), RIGHT, "timeout: ours: no answer"),
    (RIGHT, facts("timeout", "no answer"), "timeout: strict: no answer"),
    (facts("unsupported", "size: large"), RIGHT, "unsupported: ours: size: large"),
    (facts("wrong", "data-race: two"), RIGHT, "race"),
    (facts("wrong", "-", call(reason="output 0 has dtype float64, expected float32")), RIGHT, "dtype"),
    (facts("wrong", "-", call(name="prime", scope="reduced")), RIGHT, "size: fails at prime"),
    (facts("wrong", "-", call(max_rel_error=5e-4)), RIGHT, "tolerance: error 0.0005 where we allow 0.0001"),
    (facts("wrong", "-", call(distribution="heavy_tail")), RIGHT, "values: fails on heavy_tail values"),
    (facts("wrong", "-", call(call=1)), RIGHT, "state: right in the first call"),
    (facts("wrong", "-", call()), RIGHT, "weights: fails at the declared size"),
    (RIGHT, facts("wrong", "-", call()), "weights: strict"),
    (RIGHT, facts("wrong", "-", call(max_abs_error=1e-3)), "tolerance: strict: difference 0.001"),
    (RIGHT, facts("wrong", "shape mismatch", call(max_abs_error=None)), "shape: strict"),
    (RIGHT, facts("runtime_error", "Error"), "fault: strict: Error"),
    (facts("wrong", "-"), facts("compile_error", "-"), "stage: both refuse"),
    (times(1.0, 2.0), times(1.05, 2.0), ""),
    (times(1.0, 2.0), times(1.0, 3.0), "baseline-time"),
    (times(1.0, 2.0), times(2.0, 2.0), "candidate-time"),
    (times(0.01, 0.02), times(0.02, 0.03), "overhead"),
]


@pytest.mark.parametrize(("ours", "strict", "cause"), CASES)
def test_causes(ours: dict[str, Any], strict: dict[str, Any], cause: str) -> None:
    found = agreement.why(ours, strict)
    assert found.startswith(cause) and bool(found) == bool(cause), found


TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
def get_inputs():
    return [torch.randn(8, 50)]
"""


def candidate(body: str) -> str:
    return f"import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {body}\n"


def test_a_run_over_a_file(tmp_path: Path) -> None:
    made = [("good", candidate("torch.relu(x) * 2"), 1.5), ("in-place", candidate("x.relu_().mul_(2)"), 9.0)]
    rows = [
        {"id": n, "reference": TASK, "llm_candidate": c, "llm_candidate_claimed_speedup_h100": s} for n, c, s in made
    ]
    rows.append({"id": "none", "reference": TASK, "llm_candidate": None})
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    words = ["--jsonl", tmp_path / "rows.jsonl", "--json", tmp_path / "out.json", "--md", tmp_path / "out.md"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *map(str, words), "--backend", "cpu", "--jobs", "2"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    good, in_place, none = found["rows"]
    assert (good["ours"]["verdict"], good["strict"]["verdict"], good["why"]) == ("correct", "correct", "")
    assert good["from_scratch"]["verdict"] == "rejected" and good["claimed"] == 1.5
    assert in_place["strict"]["verdict"] == "correct" and in_place["why"].startswith("rule: ")
    assert none["note"] == "no candidate"
    assert (found["judged"], found["only_strict_correct"], found["causes"]) == (2, 1, {"rule": 1})
    page = (tmp_path / "out.md").read_text()
    assert "| in-place | rejected" in page and "| 9 | rule: " in page
    assert "2/2" in done.stderr and not list(tmp_path.glob("*.part"))
