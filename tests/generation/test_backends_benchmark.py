"""`benchmarks/generation_backends.py`: its output for installed back-ends and for a missing one."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from inference.checkpoints import random_checkpoint

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "generation_backends.py"


def test_each_back_end_has_its_row(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path / "checkpoint", context=2048, heads=2)
    out = tmp_path / "found.json"
    backends = "engine,vllm" if importlib.util.find_spec("vllm") is None else "engine"
    line = [sys.executable, str(SCRIPT), str(folder), "--backends", backends, "--json", str(out)]
    shape = ["--tasks", "2", "--samples", "2", "--max-tokens", "12", "--rounds", "1"]
    done = subprocess.run([*line, *shape], capture_output=True, text=True, check=False, timeout=240)
    found = json.loads(out.read_text())
    row = found["backends"]["engine"]
    assert row["answers"] == 4 and 4 <= row["tokens"] <= 48 and len(row["seconds"]) == 1
    assert row["log_prob_error"]["most"] < 0.1 and row["handed"]["log_prob_error"]["most"] < 0.1
    assert row["handed"]["changed"] == 0  # the same weights, the same draws
    if backends == "engine":
        assert done.returncode == 0
    else:
        assert "not installed" in found["backends"]["vllm"]["error"] and done.returncode == 1


def test_what_a_back_end_said_last_is_kept_when_it_is_cut() -> None:
    spec = importlib.util.spec_from_file_location("generation_backends", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.last_said(b'Loading {weights}\n{"rows": 64}\n\n{"rows": 64, "seconds": [1.5]}\n{"rows": 6') == {
        "rows": 64,
        "seconds": [1.5],
    }
    assert module.last_said(None) == {} and module.last_said(b"\xff\n") == {}
