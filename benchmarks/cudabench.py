"""Runs every row of a file in CUDABench's format on the functional machine and publishes the verdicts.

    python benchmarks/cudabench.py FILE.jsonl [--timeout S] [--jobs N] [--out benchmarks/results/cudabench_dev100]

Writes OUT.json (a row each, and the counts) and OUT.md. The rows' own code is not copied.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from pathlib import Path

from kernelwright.checks import program_checks
from kernelwright.evaluation.judge.programs import ProgramLimits, ProgramVerdict

RESULTS = Path(__file__).parent / "results" / "cudabench_dev100"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--timeout", type=float, default=ProgramLimits().seconds)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    words = parser.parse_args()
    tasks = program_checks.read(words.file)
    started = time.monotonic()

    def show(verdict: ProgramVerdict) -> None:
        print(program_checks.line(verdict), file=sys.stderr, flush=True)

    found = program_checks.check(tasks, show, jobs=words.jobs, limits=ProgramLimits(seconds=words.timeout))
    facts = {
        "file": Path(words.file).name,
        "date": time.strftime("%Y-%m-%d"),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "jobs": words.jobs,
        "timeout": words.timeout,
        "wall_seconds": round(time.monotonic() - started, 1),
        "load_at_end": round(os.getloadavg()[0], 1),
        "verdicts": dict(Counter(v.verdict for v in found)),
        "rows": [v.plain() for v in found],
    }
    words.out.parent.mkdir(parents=True, exist_ok=True)
    words.out.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    words.out.with_suffix(".md").write_text(page(found, facts))
    print(program_checks.counts(found))


def page(found: list[ProgramVerdict], facts: dict[str, object]) -> str:
    """Returns the page: the counts, the rows that did not pass with their reasons, then every row."""
    whole = program_checks.markdown(found, f"{facts['file']} on the functional machine")
    head, table = whole.split("\n\n", 2)[0], whole.split("\n\n", 2)[2]
    failed = [v for v in found if v.verdict != "correct"]
    lines = [
        head,
        "",
        f"{len(found)} programs: {program_checks.counts(found)}. Each row's own reference program, judged by",
    ]
    lines += [f"its own comparison; {facts['jobs']} at once on {facts['cores']} cores, {facts['timeout']:g} s a row"]
    lines += [f"after its build; {facts['wall_seconds']} s in all at a load of {facts['load_at_end']}.", ""]
    lines += ["What did not pass:", "", *(f"- {program_checks.line(v)}" for v in failed), ""] if failed else []
    return "\n".join(lines) + "\n" + table


if __name__ == "__main__":
    main()
