"""Families of claims: the exact p of every comparison that a results file keeps, with Holm's beside it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

from kernelwright.bench import metrics

ROOT = Path(__file__).parents[1]


def counts(first: int, second: int) -> dict[str, float]:
    return {"first_only": first, "second_only": second, "difference": 0.1}


def test_each_group_is_a_family_of_its_own(tmp_path: Path) -> None:
    found = {
        "one": {"a": {"func": counts(0, 6)}, "b": {"func": counts(1, 7), "other": counts(3, 3)}},
        "two": {"a": {"func": counts(0, 6)}, "note": "no comparison", "rows": [1, 2]},
    }
    path = tmp_path / "found.json.gz"
    path.write_bytes(gzip.compress(json.dumps(found).encode()))
    command = [sys.executable, str(ROOT / "benchmarks" / "exact_tests.py"), str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = {row["place"]: row for row in map(json.loads, said.splitlines())}
    exact = [2 / 2**6, 2 * (1 + 8) / 2**8]
    assert [rows[f"one / {n} / func"]["p_exact"] for n in "ab"] == [round(p, 4) for p in exact]
    assert [rows[f"one / {n} / func"]["p_holm"] for n in "ab"] == [round(2 * exact[0], 4), round(exact[1], 4)]
    assert rows["two / a / func"]["p_holm"] == round(exact[0], 4) and rows["two / a / func"]["family"] == 1
    assert rows["one / b / other"]["p_holm"] == 1.0


def test_a_family_leaves_out_what_has_no_tasks() -> None:
    pair = metrics.paired([0.0] * 9, [1.0] * 9, shares=True)
    made = metrics.family({"first": pair, "none": None, "second": pair})
    assert list(made) == ["first", "second"] and pair is not None
    assert {row["p_holm"] for row in made.values()} == {2 * pair.p_exact}
    assert all(row["p_bootstrap"] is not None for row in made.values())
    few = metrics.family({"few": metrics.paired([0.0] * 7, [1.0] * 7)})
    assert few["few"]["p_bootstrap"] is None and few["few"]["p_exact"] == 2 / 2**7


def test_no_script_has_a_bootstrap_of_its_own() -> None:
    """Intervals come from `bench.metrics`, or are exact: percentiles of resamples shrink to a point at 0 and 100 %."""
    drawing = ("quantile", "percentile", "resample", "rng.choice", "random.choices")
    found = [
        f"{path.name}: {word}"
        for path in (ROOT / "benchmarks").rglob("*.py")
        for word in drawing
        if word in path.read_text(encoding="utf-8")
    ]
    assert found == []
