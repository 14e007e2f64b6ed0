"""Compares the functional machine with a GPU on the same corpus and writes docs/conformance.md.

    python benchmarks/confusion.py CPU.json GPU.json [--opcodes RECORDING.json] [--out docs/conformance.md]

CPU.json and GPU.json are reports of benchmarks/judge_corpus.py. Every disagreement is listed with its cause.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from result_file import read_json

Row = dict[str, Any]
HERE = Path(__file__).resolve().parent
PASSED, FAILED, NONE = "correct", "wrong", "none"

_UNSEEN = {
    "race": "a race that the GPU's timing hides: two unordered accesses whose values came out correct",
    "memory": "an access outside its array but inside the GPU's allocation; its result is unused or correct by chance",
    "init": "a read of memory that was never written; on the GPU it held the correct value (mostly zero)",
}

_BY_HAND = {
    "last-block-max!3-operation": "the first block to finish joins all parts, instead of the last one: on the GPU the "
    "parts that it read had the same maximum",
}
"""Causes found by reading the kernel, by the mutant's name."""


def outcome(row: Row) -> str:
    """Returns `correct`, `wrong` for a verdict that refuses the candidate, or `none` for no verdict on it."""
    if row["verdict"] == "correct":
        return PASSED
    if "did not finish within" in row["reason"]:  # a build that ran out of time says nothing of the kernel
        return NONE
    return FAILED if row["verdict"] in ("wrong", "runtime_error", "timeout", "compile_error", "rejected") else NONE


def cause(cpu: Row, gpu: Row) -> str:
    """Explains why the two differ, from both reasons; `unexplained` where neither suffices."""
    ours, theirs = outcome(cpu), outcome(gpu)
    reason = cpu["reason"]
    if NONE in (ours, theirs):
        who, row = ("machine", cpu) if ours == NONE else ("GPU", gpu)
        return f"no verdict on the {who}: {row['verdict']}: {row['reason'][:160]}"
    if ours == FAILED and theirs == PASSED and not cpu["right"]:
        if reason.startswith("data-race"):
            return _UNSEEN["race"]
        if "out-of-bounds" in reason or "misaligned" in reason:
            return _UNSEEN["memory"]
        if cpu.get("kind") in ("barrier", "race"):
            return _UNSEEN["race"]
        if cpu.get("kind") in ("init", "zeroing") or "nan" in reason:
            return _UNSEEN["init"]
    if cpu["name"] in _BY_HAND:
        return _BY_HAND[cpu["name"]]
    return f"unexplained: machine: {reason[:120] or 'correct'}; GPU: {gpu['reason'][:120] or 'correct'}"


def matrix(rows: Iterable[tuple[Row, Row]]) -> Counter[tuple[bool, str, str]]:
    return Counter((cpu["right"], outcome(cpu), outcome(gpu)) for cpu, gpu in rows)


def table(counts: Counter[tuple[bool, str, str]]) -> list[str]:
    lines = ["| kernels | machine | GPU: correct | GPU: refused | GPU: no verdict |", "|---|---|---|---|---|"]
    for right, name in ((True, "correct"), (False, "mutants")):
        for ours, shown in ((PASSED, "correct"), (FAILED, "refused"), (NONE, "no verdict")):
            cells = [counts[right, ours, theirs] for theirs in (PASSED, FAILED, NONE)]
            if any(cells):
                lines.append(f"| {name} | {shown} | " + " | ".join(map(str, cells)) + " |")
    return lines


def kinds(rows: Iterable[tuple[Row, Row]]) -> list[str]:
    """Returns a table with the mutants that either side refuses, by kind of mistake."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for cpu, gpu in rows:
        if cpu["right"]:
            continue
        mine = seen[cpu["kind"]]
        mine["all"] += 1
        mine["machine"] += outcome(cpu) == FAILED
        mine["gpu"] += outcome(gpu) == FAILED
    lines = ["| mistake | mutants | refused by the machine | refused on the GPU |", "|---|---|---|---|"]
    return lines + [f"| {kind} | {n['all']} | {n['machine']} | {n['gpu']} |" for kind, n in sorted(seen.items())]


def disagreements(rows: Iterable[tuple[Row, Row]]) -> list[str]:
    groups: dict[str, list[str]] = defaultdict(list)
    for cpu, gpu in rows:
        if outcome(cpu) != outcome(gpu):
            groups[cause(cpu, gpu)].append(cpu["name"])
    lines = []
    for why, names in sorted(groups.items(), key=lambda item: -len(item[1])):
        lines += [f"* {len(names)}: {why}:", f"  {', '.join(f'`{name}`' for name in names)}"]
    return lines or ["None."]


def verdict_pairs(rows: Iterable[tuple[Row, Row]]) -> list[str]:
    """Counts the pairs of verdicts where both refuse."""
    pairs = Counter((cpu["verdict"], gpu["verdict"]) for cpu, gpu in rows if FAILED == outcome(cpu) == outcome(gpu))
    rows = [f"| {pair[0]} | {pair[1]} | {count} |" for pair, count in pairs.most_common()]
    return ["| machine | GPU | mutants |", "|---|---|---|", *rows]


def opcode_section(path: Path) -> list[str]:
    """Compares the recorded opcode cases with the present machine and returns the section's lines."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from sets.opcodes import check, coverage, suite

    report = check.recorded(path)
    every = suite.cases()
    opcodes, _ = coverage.used(every)
    accepted = coverage.accepted()
    missing = sorted(set(accepted) - opcodes)
    total = report.same.total()
    lines = [
        "A case is one kernel for one opcode, type and modifier, with 128 to 512 operand tuples.",
        f"The {len(every)} cases were recorded on {report.device} (`tests/sets/opcodes/record.py`).",
        "",
        f"Of these cases {total} give the same results on the machine, {len(report.different)} differ, "
        f"{len(report.unsupported)} are refused by the machine at load, and {len(report.refused)} by the driver.",
        "",
        f"The decoder accepts {len(accepted)} opcodes. {len(accepted) - len(missing)} have cases; these have none:",
        f"{', '.join(f'`{name}`' for name in missing) or 'none'}.",
        "",
        "| family | cases with the same results |",
        "|---|---|",
        *[f"| {family} | {count} |" for family, count in report.same.items()],
        "",
    ]
    lines += [f"* `{d.case}` differs in {d.rows} rows: {d.example}" for d in report.different]
    lines += [f"* `{name}` is refused by the machine: {reason}" for name, reason in report.unsupported.items()]
    lines += [f"* `{name}` is refused by the driver: {reason}" for name, reason in report.refused.items()]
    lines += [
        "",
        "The largest distances of approximate instructions from the GPU, in the unit of the case's policy:",
        "",
    ]
    by_name = {case.name: case for case in every}
    lines += ["| case | policy | largest distance |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {by_name[name].policy} | {apart:.3g} |" for name, apart in sorted(report.distances.items())
    ]
    return [*lines, "", *policy()]


def policy() -> list[str]:
    """Returns the rules for equal results, from the docstring of the code that applies them."""
    from sets.opcodes import compare

    return ["### When two results are the same", "", *(compare.__doc__ or "").strip().splitlines()[2:]]


_HEAD = """# Conformance of the functional machine

`benchmarks/confusion.py` writes this page; do not edit it. The machine is compared with a GPU in two ways: opcode by
opcode, and by the verdicts on whole kernels.
"""
_CORPUS = """## Whole kernels

The corpus has the families of kernels in `tests/sets/corpus`, their mutants with one declared mistake each, and the
candidates of `tests/sets/honest` that need neither a GPU nor a library. Both sides judge the same texts at the same
sizes (`python benchmarks/judge_corpus.py --backend cpu|gpu`). "Refused" is any verdict except `correct`.
"""


def _left(missing: list[str], cpu: dict[str, Any]) -> str:
    """Names the part of the corpus that the GPU has not judged yet."""
    if not missing:
        return "This is the whole corpus."
    right = sum(row["right"] for row in cpu["rows"] if row["name"] in set(missing))
    names = f": {', '.join(missing)}" if len(missing) <= 40 else ""
    return (
        f"**This is a part of the corpus:** the GPU ran out of time before {right} correct kernels and "
        f"{len(missing) - right} mutants{names}. `judge_corpus.py --resume` judges them."
    )


def page(cpu: dict[str, Any], gpu: dict[str, Any], recording: Path | None) -> str:
    theirs = {row["name"]: row for row in gpu["rows"]}
    rows = [(row, theirs[row["name"]]) for row in cpu["rows"] if row["name"] in theirs]
    missing = [row["name"] for row in cpu["rows"] if row["name"] not in theirs]
    right = sum(cpu_row["right"] for cpu_row, _ in rows)
    lines = [_HEAD, "## Opcodes", "", *(opcode_section(recording) if recording else ["Not recorded yet."]), "", _CORPUS]
    lines.append(
        f"{right} correct kernels and {len(rows) - right} mutants were judged on both sides. {_left(missing, cpu)}"
    )
    lines += ["", *table(matrix(rows)), "", "### By kind of mistake", "", *kinds(rows), ""]
    lines += [
        "### Disagreements",
        "",
        *disagreements(rows),
        "",
        "### Verdicts where both refuse",
        "",
        *verdict_pairs(rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cpu", type=Path)
    parser.add_argument("gpu", type=Path)
    parser.add_argument("--opcodes", type=Path)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "conformance.md")
    args = parser.parse_args()
    cpu, gpu = read_json(args.cpu), read_json(args.gpu)
    text = page(cpu, gpu, args.opcodes)
    args.out.write_text(text)
    unexplained = text.count("unexplained")
    print(f"{args.out}: {unexplained} groups of disagreements without an explanation")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
