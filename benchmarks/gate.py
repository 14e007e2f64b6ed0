"""Runs the null-kernel gate and the lint over all tasks of a suite.

    python benchmarks/gate.py FILE.jsonl --reference-field reference --id-field problem_id --name dev80 --out FOLDER

Writes FOLDER/gate_NAME.md (a table) and FOLDER/gate_NAME.json.gz (every null with the trials that it passed and
failed).
Runs on the CPU, at the sizes that CPU judging derives; one task after another.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from result_file import write_text

from kernelwright import __version__
from kernelwright.checks import task_checks
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.judge.null_kernel_gate import GATE_PROTOCOL
from kernelwright.tasks import load_suite


def _processor() -> str:
    """Returns the processor's name from Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _conditions() -> dict[str, Any]:
    return {
        "benchmark": "gate",
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "kernelwright": __version__,
        "gate_protocol": GATE_PROTOCOL,
    }


def _row(facts: dict[str, Any]) -> dict[str, Any]:
    """Returns one task's facts without the long constant ones: sizes, and where each null kernel failed."""
    kept = {name: value for name, value in facts.items() if name not in ("workloads", "declared", "notes")}
    if facts["ok"]:
        kept["gate"] = {name: value for name, value in facts["gate"].items() if name not in ("passed", "of")}
        kept["nulls"] = [{**null, "failed": len(null["failed"])} for null in facts["nulls"]]
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite")
    parser.add_argument("--reference-field", default="reference")
    parser.add_argument("--id-field", default=None)
    parser.add_argument("--name", required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    tasks = load_suite(given.suite, reference_field=given.reference_field, id_field=given.id_field)
    started = time.monotonic()
    with Evaluator(EvalOptions(backend="cpu")) as evaluator:
        found = task_checks.check(tasks, evaluator, lambda facts: print(task_checks.line(facts), file=sys.stderr))
    conditions = _conditions()
    wall = round(time.monotonic() - started, 1)
    head = [
        f"By `benchmarks/gate.py` on {conditions['date']}: {conditions['cores']} cores of {conditions['processor']},",
        f"Python {conditions['python']}, torch {conditions['torch']}, numpy {conditions['numpy']}, kernelwright "
        f"{conditions['kernelwright']}, gate protocol {GATE_PROTOCOL}; {wall} s in all.",
        "Trials are those of CPU judging, five by default.",
    ]
    given.out.mkdir(parents=True, exist_ok=True)
    page = task_checks.markdown(found, f"Null-kernel gate: {given.name}", head)
    (given.out / f"gate_{given.name}.md").write_text(page, encoding="utf-8")
    result = {**conditions, "suite": given.name, "wall_s": wall, "states": task_checks.counts(found)}
    rows = ",\n".join(json.dumps(_row(facts)) for facts in found)
    text = json.dumps(result, indent=1).removesuffix("\n}") + f',\n "tasks": [\n{rows}\n]\n}}\n'
    write_text(given.out / f"gate_{given.name}.json.gz", text)


if __name__ == "__main__":
    main()
