"""Keeps the samples of bench runs as one small record: a table may then be computed again without their run folders.

    python benchmarks/keep_bench.py OUT.json RUN...

Each run's entry has its settings, and by task each counted sample's verdict, speedup over eager, and first words of its
reason; a sample without an answer has the policy's error. The greedy sample, if there is one, comes first.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from result_file import write_text

from kernelwright.bench import numbers
from kernelwright.runs.store import Store

SETTINGS = ("suite", "policy", "samples", "greedy", "temperature", "turns", "seed", "form")
WORDS = 100
"""The most characters of a reason."""


def kept(run: Path) -> dict[str, Any]:
    """Returns a run's settings and its samples by task. Raises `StoreError`."""
    with Store.open(run, writable=False) as store:
        bench = numbers.read(store)
    rows: dict[str, list[Any]] = {}
    for task in bench.tasks:
        samples = [*([task.greedy] if task.greedy and task.samples else []), *task.counted]
        rows[task.task_id] = [[s.verdict, s.speedup("eager"), s.reason[:WORDS]] for s in samples]
        rows[task.task_id] += [["no_answer", None, why[:WORDS]] for why in task.unanswered.values()]
        if task.problem:
            rows[task.task_id] = [["bad_task", None, task.problem[:WORDS]]]
    first = [sample[0] for samples in rows.values() for sample in samples[:1]]
    counts = {verdict: first.count(verdict) for verdict in sorted(set(first))}
    settings = {name: bench.settings.get(name) for name in SETTINGS}
    return {**settings, "tasks": len(rows), "first_samples": counts, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--note", default="", help="on what, when and with which state of the code it was measured")
    asked = parser.parse_args()
    found = {"benchmark": "keep_bench", "note": asked.note, "runs": [kept(run) for run in asked.runs]}
    write_text(asked.out, json.dumps(found) + "\n")
    for run in found["runs"]:
        print(f"{run['suite']}: {run['tasks']} tasks, {json.dumps(run['first_samples'])}")


if __name__ == "__main__":
    main()
