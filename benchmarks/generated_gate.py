"""Counts the generated tasks that the lint and the null-kernel gate refuse, by reason.

    python benchmarks/generated_gate.py [--count 1000] [--seed 2026] [--jobs 1] [--rows FILE.jsonl] [--out FILE.json]

Tasks of split `train` are drawn from all families by their weights and examined one by one on the CPU. Finished rows
are kept in --rows, and the same command resumes. Prints one JSON object, and writes it to --out.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.generate import generate, writing

RESULTS = Path(__file__).parent / "results" / "generated_gate.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=Path("generated_gate.jsonl"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    rows = _examined(given)
    result = summary(rows, given.seed, given.jobs)
    text = json.dumps(result, indent=1)
    given.out.write_text(text + "\n", encoding="utf-8")
    print(text)


def _examined(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns all rows, earlier runs' first. A row is examined again if the generator now makes another text."""
    known = {}
    if given.rows.exists():
        lines = given.rows.read_text(encoding="utf-8").splitlines()
        known = {r["sha256"]: r for r in map(json.loads, lines)}
    tasks = list(generate(given.seed, given.count))
    wanted = [writing.row_of(t)["sha256"] for t in tasks]
    missing = [t for t, digest in zip(tasks, wanted, strict=True) if digest not in known]
    print(f"{len(tasks) - len(missing)} of {len(tasks)} are done", file=sys.stderr)
    options = EvalOptions(backend="cpu")
    with Evaluator(options) as evaluator, ThreadPoolExecutor(given.jobs) as threads:
        evaluator.pool.warm()
        with open(given.rows, "a", encoding="utf-8") as stream:
            for number, row in enumerate(threads.map(lambda t: writing.examine(t, evaluator), missing), 1):
                known[row["sha256"]] = row
                stream.write(json.dumps(row) + "\n")
                stream.flush()
                print(f"{number}/{len(missing)} {writing.line(row)}", file=sys.stderr)
    return [known[digest] for digest in wanted]


def summary(rows: list[dict[str, Any]], seed: int, jobs: int) -> dict[str, Any]:
    """Counts states, reasons of refusals and rules of notes, and adds up seconds."""
    bad = [r for r in rows if r["state"] not in ("sound", "hardened")]
    seconds = sorted(r.get("seconds", 0.0) for r in rows)
    return {
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "hardware": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores (shared), jobs {jobs}",
        "seed": seed,
        "tasks": len(rows),
        "families": len({r["family"] for r in rows}),
        "states": dict(collections.Counter(r["state"] for r in rows)),
        "rejected_share": round(len(bad) / len(rows), 4),
        "rejected": [{k: r[k] for k in ("task_id", "family", "signature", "state", "reason")} for r in bad],
        "hardened_by": dict(collections.Counter(d for r in rows for d in r.get("distributions", ()))),
        "notes": dict(collections.Counter(n.partition(":")[0] for r in rows for n in r.get("notes", ()))),
        "seconds_a_task": {"median": seconds[len(seconds) // 2], "p95": seconds[int(len(seconds) * 0.95)]},
    }


if __name__ == "__main__":
    main()
