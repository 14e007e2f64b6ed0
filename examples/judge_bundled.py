"""Judges every bundled example candidate on its bundled task and compares the verdicts with `expected.toml`.

    python examples/judge_bundled.py runs/bundled

It also shows the package's use from Python: tasks and candidates are loaded, rows are judged into a run folder that
resumes, and each evaluation is a plain record. Exit status 1 if a verdict is not the expected one.
"""

from __future__ import annotations

import os
import sys
import tomllib
from importlib import resources
from pathlib import Path

from kernelwright.evaluation import EvalOptions
from kernelwright.records import Evaluation
from kernelwright.report import terminal
from kernelwright.runs import batch
from kernelwright.runs.store import Store
from kernelwright.tasks import Row, load_candidate, load_task

CANDIDATES = Path(str(resources.files("kernelwright") / "data" / "candidates"))


def bundled() -> tuple[list[Row], dict[str, dict[str, str]]]:
    """Returns one row a candidate, and each one's expected facts by the row's id."""
    manifest = tomllib.loads((CANDIDATES / "expected.toml").read_text())
    rows: list[Row] = []
    expected: dict[str, dict[str, str]] = {}
    for task_id, candidates in manifest.items():
        task = load_task(task_id)
        for file, wanted in candidates.items():
            name = f"{task_id}/{file}"
            rows.append(Row(len(rows), name, task, load_candidate(CANDIDATES / task_id / file)))
            expected[name] = wanted
    return rows, expected


def main(run: Path) -> int:
    rows, expected = bundled()
    surprises: list[str] = []
    with Store.open_or_create(run, {"verb": "eval", "input": "bundled candidates"}) as store:
        with terminal.BatchView(len(rows), run, lines=True) as view:

            def on_row(row: Row, evaluation: Evaluation | None, note: str) -> None:
                view.show(row.item_id, evaluation, note)
                wanted = expected[row.item_id]
                verdict = evaluation.verdict if evaluation else note
                reason = evaluation.reason if evaluation else ""
                if verdict != wanted["verdict"] or wanted.get("reason", "") not in reason:
                    surprises.append(f"{row.item_id}: {verdict} ({reason}), expected {wanted}")

            summary = batch.judge_rows(rows, store, EvalOptions(), jobs=os.cpu_count() or 1, on_row=on_row)
    terminal.print_batch(summary, run, quiet=False)
    for line in surprises:
        print(f"not as expected: {line}", file=sys.stderr)
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/bundled")))
