"""Writes how the functional machine and a GPU judge the same corpus to docs/conformance.md.

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
    "race": "a race that the GPU's timing hides: two accesses that nothing orders, whose values came out right",
    "memory": "an access outside its array but inside the GPU's allocation, whose result is unused or happens to fit",
    "init": "memory that was never written, which held the right value (mostly zero) on the GPU",
}

_BY_HAND = {
    "last-block-max!3-operation": "the first block to finish joins all parts, not the last one: on the GPU what it "
    "read of them had the same maximum",
}
"""Found by reading the kernel."""


def outcome(row: Row) -> str:
    """`correct`; `wrong` for what a candidate is refused for; `none` where there is no verdict on it."""
    if row["verdict"] == "correct":
        return PASSED
    if "did not finish within" in row["reason"]:  # a build that ran out of time says nothing of the kernel
        return NONE
    return FAILED if row["verdict"] in ("wrong", "runtime_error", "timeout", "compile_error", "rejected") else NONE


def cause(cpu: Row, gpu: Row) -> str:
    """Why the two differ, from what both say; `unexplained` where neither says enough."""
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
    for right, name in ((True, "right"), (False, "mutants")):
        for ours, shown in ((PASSED, "correct"), (FAILED, "refused"), (NONE, "no verdict")):
            cells = [counts[right, ours, theirs] for theirs in (PASSED, FAILED, NONE)]
            if any(cells):
                lines.append(f"| {name} | {shown} | " + " | ".join(map(str, cells)) + " |")
    return lines


def kinds(rows: Iterable[tuple[Row, Row]]) -> list[str]:
    """For each kind of mistake, how many either side sees."""
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


def verdict_changes(rows: Iterable[tuple[Row, Row]]) -> list[str]:
    """Pairs of verdicts where both refuse, by how they name it."""
    pairs = Counter(
        f"{cpu['verdict']} / {gpu['verdict']}" for cpu, gpu in rows if FAILED == outcome(cpu) == outcome(gpu)
    )
    return [f"* {pair} (machine / GPU): {count}" for pair, count in pairs.most_common()]


def opcode_section(path: Path) -> list[str]:
    """The recorded opcode cases against the machine as it is now."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from sets.opcodes import check, coverage, suite

    report = check.recorded(path)
    every = suite.cases()
    opcodes, _ = coverage.used(every)
    accepted = coverage.accepted()
    missing = sorted(set(accepted) - opcodes)
    total = report.same.total()
    lines = [
        f"{len(every)} kernels, one for each opcode, type and modifier, with 128 to 512 operand tuples each, recorded "
        f"on {report.device} (`tests/sets/opcodes/record.py`). {total} give the same results on the machine"
        f", {len(report.different)} differ, {len(report.unsupported)} are refused by the machine at load, "
        f"{len(report.refused)} by the driver. Of {len(accepted)} opcodes that the decoder accepts, "
        f"{len(accepted) - len(missing)} have cases; without: {', '.join(missing) or 'none'}.",
        "",
        "| family | same |",
        "|---|---|",
        *[f"| {family} | {count} |" for family, count in report.same.items()],
        "",
    ]
    lines += [f"* differs: `{d.case}`: {d.rows} rows; {d.example}" for d in report.different]
    lines += [f"* refused by the machine: `{name}`: {reason}" for name, reason in report.unsupported.items()]
    lines += [f"* refused by the driver: `{name}`: {reason}" for name, reason in report.refused.items()]
    lines += ["", "Largest distances of approximate instructions from the GPU, in the unit of the case's bound:", ""]
    by_name = {case.name: case for case in every}
    lines += [f"* `{name}` ({by_name[name].policy}): {apart:.3g}" for name, apart in sorted(report.distances.items())]
    return [*lines, "", *policy()]


def policy() -> list[str]:
    """What counts as the same, in the words of the code that decides it."""
    from sets.opcodes import compare

    return ["What counts as the same:", "", *(compare.__doc__ or "").strip().splitlines()[2:]]


_HEAD = """# Conformance of the functional machine

Written by `benchmarks/confusion.py`; do not edit. The machine is compared with a GPU in two ways: opcode by opcode, and
by the verdicts on whole kernels.
"""
_CORPUS = """## Whole kernels

The corpus is `tests/sets/corpus` (families of kernels with parameters, and mutants that each have one declared mistake)
and those of `tests/sets/honest` that need neither a GPU nor a library. Both sides judge the same texts on the same
sizes: `python benchmarks/judge_corpus.py --backend cpu|gpu`. "Refused" is any verdict but `correct`.
"""


def _left(missing: list[str], cpu: dict[str, Any]) -> str:
    """What part of the corpus the GPU has not judged yet."""
    if not missing:
        return "That is all of the corpus."
    right = sum(row["right"] for row in cpu["rows"] if row["name"] in set(missing))
    names = f": {', '.join(missing)}" if len(missing) <= 40 else ""
    return (
        f"**This is a part of the corpus:** {right} right kernels and {len(missing) - right} mutants were not reached "
        f"on the GPU in the time that there was{names}. `judge_corpus.py --resume` judges them."
    )


def page(cpu: dict[str, Any], gpu: dict[str, Any], recording: Path | None) -> str:
    theirs = {row["name"]: row for row in gpu["rows"]}
    rows = [(row, theirs[row["name"]]) for row in cpu["rows"] if row["name"] in theirs]
    missing = [row["name"] for row in cpu["rows"] if row["name"] not in theirs]
    right = sum(cpu_row["right"] for cpu_row, _ in rows)
    lines = [_HEAD, "## Opcodes", "", *(opcode_section(recording) if recording else ["Not recorded yet."]), "", _CORPUS]
    lines.append(f"{right} right kernels and {len(rows) - right} mutants were judged on both. {_left(missing, cpu)}")
    lines += ["", *table(matrix(rows)), "", "### By kind of mistake", "", *kinds(rows), ""]
    lines += [
        "### Disagreements",
        "",
        *disagreements(rows),
        "",
        "### How both name a refusal",
        "",
        *verdict_changes(rows),
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
