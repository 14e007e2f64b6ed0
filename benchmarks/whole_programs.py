"""Runs the 80 whole programs of `tests/sets/programs` on the functional machine and counts how each ends.

    python benchmarks/whole_programs.py [--out benchmarks/results/whole_programs] [--only TEXT] [--timeout S]

An outcome is `passed`, `finding` (its own check passed, the machine reports something that the program does not
expect), `failed`, `unsupported` by name, or `compile_error`. Writes OUT.json and OUT.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.programs import Program, passed, programs

from kernelwright.checks import program_checks
from kernelwright.checks.program_checks import MachineOptions
from kernelwright.errors import KernelwrightError
from kernelwright.evaluation.judge.programs import ProgramLimits

RESULTS = Path(__file__).parent / "results" / "whole_programs"


@dataclass(frozen=True)
class Outcome:
    """The end of one program."""

    name: str
    outcome: str
    reason: str
    seconds: float


def judged(program: Program, timeout: float) -> Outcome:
    """Builds and runs one program as `machine run` does."""
    started = time.monotonic()
    options = MachineOptions(program.flags, limits=ProgramLimits(timeout))
    try:
        complaint, step = program_checks.run_file(
            program.path, program.arguments, options, files=program.files, keep=None
        )
    except KernelwrightError as error:
        return Outcome(program.name, type(error).__name__, str(error)[:300], time.monotonic() - started)
    seconds = round(time.monotonic() - started, 1)
    if complaint:
        kind = "unsupported" if complaint.startswith("unsupported") else "compile_error"
        return Outcome(program.name, kind, complaint.strip()[:300], seconds)
    if step.unsupported or step.timeout:
        return Outcome(program.name, "unsupported" if step.unsupported else "timeout", step.unsupported, seconds)
    if not passed(step.status, step.stdout):
        return Outcome(program.name, "failed", f"{step.how()}: {step.last_words}", seconds)
    unexpected = [finding for finding in step.findings if finding.rule not in program.findings]
    if unexpected:
        return Outcome(program.name, "finding", unexpected[0].evidence, seconds)
    return Outcome(program.name, "passed", "", seconds)


def page(found: list[Outcome]) -> str:
    """Returns the counts and the programs that did not pass, as Markdown."""
    counts = Counter(one.outcome for one in found)
    said = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    lines = ["# Whole programs on the functional machine", "", f"{len(found)} programs: {said}.", ""]
    lines += ["| program | outcome | reason |", "|---|---|---|"]
    for one in found:
        if one.outcome != "passed":
            reason = one.reason.split("\n")[0].replace("|", "\\|")
            lines.append(f"| {one.name} | {one.outcome} | {reason} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", default="", help="run programs whose name holds this text")
    parser.add_argument("--timeout", type=float, default=120.0)
    words = parser.parse_args()
    found = []
    for program in programs():
        if words.only in program.name:
            found.append(judged(program, words.timeout))
            print(f"{found[-1].name}: {found[-1].outcome} {found[-1].reason}", file=sys.stderr, flush=True)
    facts = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": platform.machine(),
        "programs": [asdict(one) for one in found],
    }
    words.out.parent.mkdir(parents=True, exist_ok=True)
    words.out.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    words.out.with_suffix(".md").write_text(page(found))
    print(dict(Counter(one.outcome for one in found)))


if __name__ == "__main__":
    main()
