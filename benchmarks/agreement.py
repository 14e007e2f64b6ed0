"""Compares our verdicts with KernelBench's on the candidates of a JSONL file, and names the cause of each difference.

    python benchmarks/agreement.py --jsonl FILE --json OUT.json [--md OUT.md] [--backend auto] [--jobs 4]

One worker judges each row's candidate three times in a row: by us with libraries allowed, by KernelBench's protocol
(`strict_kernelbench`), and, where the first verdict is `correct`, by us from scratch. OUT is rewritten after every row,
so that an interrupted run loses only the rows in flight. Rows that were not reached are listed. Progress goes to
stderr. On a GPU both judges time; the GPU's lease separates their measurements.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kernelwright import __version__
from kernelwright.errors import HarnessError, TaskError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Evaluation, WorkloadResult
from kernelwright.tasks import Row, read_rows

APART = 0.10
"""Speedups that differ by less, relatively, are called equal."""
SHORT_MS = 0.1

Facts = dict[str, Any]


def facts_of(evaluation: Evaluation) -> Facts:
    """Returns the facts of one verdict that the table and the search for causes need."""
    timing = evaluation.timing
    return {
        "verdict": evaluation.verdict,
        "reason": evaluation.reason,
        "rules": [f.rule for f in evaluation.findings if f.severity in ("reject", "fault")],
        "failing": next((_failing(w, i) for i, w in enumerate(evaluation.workloads) if not w.passed), None),
        "seconds": round(evaluation.seconds.total, 2),
        "speedup": timing.speedup if timing else None,
        "interval": timing.interval if timing else None,
        "candidate_ms": timing.candidate_ms if timing else None,
        "eager_ms": timing.eager_ms if timing else None,
        "built_by": evaluation.environment.built_by,
        "kernelbench": evaluation.environment.kernelbench.plain() if evaluation.environment.kernelbench else None,
    }


def _failing(result: WorkloadResult, index: int) -> Facts:
    names = ("name", "scope", "distribution", "shape", "max_abs_error", "max_rel_error", "tolerance", "reason")
    return {"call": index, **{name: result.plain()[name] for name in names}}


def why(ours: Facts, strict: Facts) -> str:
    """Returns the cause of a difference as `category: evidence`, from both verdicts; empty where they agree."""
    mine, theirs = ours["verdict"], strict["verdict"]
    if mine == theirs == "correct":
        return _why_speed(ours, strict)
    if mine == theirs:
        return ""
    if "timeout" in (mine, theirs):
        who = "ours" if mine == "timeout" else "strict"
        return f"timeout: {who}: {(ours if mine == 'timeout' else strict)['reason']}"
    for who, one in (("ours", ours), ("strict", strict)):
        if "out of memory" in one["reason"]:
            return f"memory: {who}: {one['reason']}"
        if one["verdict"] in ("unsupported", "harness_error"):
            return f"{one['verdict']}: {who}: {one['reason']}"
    if theirs != "correct" and mine != "correct":
        return f"stage: both refuse, we with {mine} and KernelBench with {theirs}"
    return _why_we_refuse(ours) if theirs == "correct" else _why_they_refuse(strict)


def _why_we_refuse(ours: Facts) -> str:
    """Returns the cause where KernelBench's verdict is correct and ours is not."""
    failing, reason = ours["failing"], ours["reason"]
    if ours["verdict"] == "rejected":
        return f"rule: {reason}"
    if ours["verdict"] == "compile_error":  # it returns the correct values elsewhere, so it does not need that build
        return f"compile: a build fails, and the candidate goes on without it: {reason}"
    if ours["verdict"] == "runtime_error":
        return f"fault: {reason}"
    if "data-race" in ours["rules"] or reason.startswith("data-race"):
        return f"race: {reason}"
    if failing is None:
        return f"other: {reason}"
    if "has dtype" in failing["reason"]:
        return f"dtype: {failing['reason']}"
    if failing["scope"] != "declared":
        return (
            f"size: fails at {failing['name']} {failing['shape']}, which KernelBench does not run: {failing['reason']}"
        )
    error, tolerance = failing["max_rel_error"], failing["tolerance"]
    if isinstance(error, float) and tolerance and error <= 100 * tolerance:
        return f"tolerance: error {error:.2g} where we allow {tolerance:.2g}, {failing['distribution']} values"
    if failing["distribution"] != "own":
        return (
            f"values: fails on {failing['distribution']} values, which KernelBench does not draw: {failing['reason']}"
        )
    if failing["call"] > 0:
        return f"state: right in the first call, wrong in call {failing['call'] + 1}: {failing['reason']}"
    return f"weights: fails at the declared size with the judge's weights: {failing['reason']}"


def _why_they_refuse(strict: Facts) -> str:
    """Returns the cause where our verdict is correct and KernelBench's is not."""
    failing = strict["failing"]
    if strict["verdict"] in ("compile_error", "runtime_error"):
        return f"{'compile' if strict['verdict'] == 'compile_error' else 'fault'}: strict: {strict['reason']}"
    if failing is None or failing["max_abs_error"] is None:
        return f"shape: strict: {strict['reason']}"
    error, tolerance = failing["max_abs_error"], failing["tolerance"]
    if error <= 100 * tolerance:
        return f"tolerance: strict: difference {error:.2g} where {tolerance:.0e} (absolute + relative) is allowed"
    return f"weights: strict: difference {error:.2g} between models that only share a seed; we copy the weights"


def _why_speed(ours: Facts, strict: Facts) -> str:
    """Tells which of the two times differs, where both verdicts are correct and the speedups differ."""
    a, b = ours["speedup"], strict["speedup"]
    if a is None or b is None or max(a, b) <= (1 + APART) * min(a, b):
        return ""
    gaps = {name: strict[f"{name}_ms"] / ours[f"{name}_ms"] for name in ("candidate", "eager")}
    added = [strict[f"{name}_ms"] - ours[f"{name}_ms"] for name in ("candidate", "eager")]
    shown = ", ".join(f"{n} {ours[f'{n}_ms']:.4g} and {strict[f'{n}_ms']:.4g} ms" for n in gaps)
    if min(ours["candidate_ms"], ours["eager_ms"]) < SHORT_MS and min(added) > 0:
        return f"overhead: KernelBench's events include what the host takes to launch; {shown}"
    worst = max(gaps, key=lambda n: max(gaps[n], 1 / gaps[n]))
    return f"{'baseline' if worst == 'eager' else 'candidate'}-time: {shown} (ours, KernelBench's)"


def judged(row: Row, evaluator: Evaluator, options: EvalOptions, strict: EvalOptions) -> Facts:
    """Returns all verdicts on one row."""
    assert row.task is not None and row.candidate is not None
    free = options.changed(policy="libraries")
    scratch = options.changed(policy="from_scratch", trials=1, timing_seconds=0.0)
    found: Facts = {"language": row.candidate.language}
    try:
        found["ours"] = facts_of(evaluator.evaluate(row.task, row.candidate, free))
        found["strict"] = facts_of(evaluator.evaluate(row.task, row.candidate, strict))
        found["from_scratch"] = {name: found["ours"][name] for name in ("verdict", "reason")}
        if found["ours"]["verdict"] == "correct":
            alone = facts_of(evaluator.evaluate(row.task, row.candidate, scratch))
            found["from_scratch"] = {name: alone[name] for name in ("verdict", "reason")}
    except (TaskError, HarnessError) as error:
        return {**found, "note": f"not judged: {error}"}
    return {**found, "why": why(found["ours"], found["strict"])}


def summary(rows: Iterable[Facts]) -> Facts:
    """Counts how often the two agree, and how often each cause is named."""
    both = [r for r in rows if "why" in r]
    pairs = Counter(f"{r['ours']['verdict']} / {r['strict']['verdict']}" for r in both)
    passed = [(r["ours"]["verdict"] == "correct", r["strict"]["verdict"] == "correct") for r in both]
    return {
        "judged": len(both),
        "same_verdict_on_correctness": sum(a == b for a, b in passed),
        "only_ours_correct": sum(a and not b for a, b in passed),
        "only_strict_correct": sum(b and not a for a, b in passed),
        "verdicts_ours_and_strict": dict(pairs.most_common()),
        "causes": dict(Counter(r["why"].split(":")[0] for r in both if r["why"]).most_common()),
    }


def table(rows: Iterable[Facts]) -> list[str]:
    """Returns the rows as a Markdown table."""
    head = ("task", "ours", "from scratch", "KernelBench", "our speedup", "its speedup", "claimed", "why")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        claimed = "" if row["claimed"] is None else f"{row['claimed']:.3g}"
        cells = [row["task"], row.get("note", ""), "", "", "", "", claimed, ""]
        if "why" in row:
            ours, strict = row["ours"], row["strict"]
            cells[1:] = [
                _verdict(ours),
                row["from_scratch"]["verdict"],
                _verdict(strict),
                _speedup(ours),
                _speedup(strict),
                claimed,
                row["why"][:300],
            ]
        lines.append("| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |")
    return lines


def _verdict(one: Facts) -> str:
    return one["verdict"] + (f": {one['reason'][:120]}" if one["reason"] else "")


def _speedup(one: Facts) -> str:
    if one["speedup"] is None:
        return ""
    interval = one["interval"]
    return f"{one['speedup']:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


def conditions(given: argparse.Namespace, backend: str) -> Facts:
    return {
        "benchmark": "agreement",
        "date": datetime.date.today().isoformat(),
        "backend": backend,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": version("torch"),
        "kernelwright": __version__,
        "file": given.jsonl.name,
        "jobs": given.jobs,
        "timing_seconds": given.timing_seconds,
        "strict_tolerance": given.tolerance or "by dtype",
    }


class Report:
    """The results so far, rewritten after every row."""

    def __init__(self, given: argparse.Namespace, head: Facts, rows: list[Facts]) -> None:
        self.given, self.head, self.rows = given, head, rows
        self.started = time.monotonic()

    def write(self) -> None:
        whole = {**self.head, "wall_s": round(time.monotonic() - self.started, 1), **summary(self.rows)}
        rows = ",\n".join(json.dumps(row) for row in self.rows)
        text = json.dumps(whole, indent=1).removesuffix("\n}") + f',\n "rows": [\n{rows}\n]\n}}\n'
        _replace(self.given.json, text)
        if self.given.md is not None:
            notes = [f"- {name}: {value}" for name, value in whole.items()]
            page = ["# Our verdicts beside KernelBench's", "", *notes, "", *table(self.rows), ""]
            _replace(self.given.md, "\n".join(page))


def _replace(file: Path, text: str) -> None:
    """Replaces a file atomically: whenever the process ends, the new or the old one is whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(file.name + ".part")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, file)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jsonl", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--md", type=Path)
    parser.add_argument("--reference-field", default="reference")
    parser.add_argument("--candidate-field", default="llm_candidate")
    parser.add_argument("--claimed-field", default="llm_candidate_claimed_speedup_h100")
    parser.add_argument("--id-field", default=None)
    parser.add_argument("--ids", default="", help="judge only these rows, separated by commas")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=330.0, help="start no row after this many seconds")
    parser.add_argument("--timeout", type=float, default=20.0, help="a candidate's seconds by our judge")
    parser.add_argument(
        "--strict-timeout",
        type=float,
        default=60.0,
        help="by KernelBench's protocol",
    )
    parser.add_argument("--timing-seconds", type=float, default=0.5)
    parser.add_argument("--tolerance", type=float, help="KernelBench's tolerance; 1e-2 for v0 and v0.1")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def claims(file: Path, field: str) -> list[float | None]:
    """Returns the claimed speedup of every non-blank line, in order."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [row.get(field) for row in rows]


def main() -> int:
    given = arguments()
    fields = {"reference_field": given.reference_field, "candidate_field": given.candidate_field}
    rows = read_rows(given.jsonl, **fields, id_field=given.id_field, limit=given.limit)
    claimed = claims(given.jsonl, given.claimed_field)
    wanted = [row for row in rows if not given.ids or row.item_id in given.ids.split(",")]
    facts: list[Facts] = [{"task": row.item_id, "claimed": claimed[row.index], "note": "not reached"} for row in wanted]
    options = EvalOptions(
        backend=given.backend, timeout=given.timeout, seed=given.seed, timing_seconds=given.timing_seconds
    )
    # The protocol's own budget is a multiple of this one (judge/kernelbench_protocol.py).
    strict = options.changed(
        strict_kernelbench=True, kernelbench_tolerance=given.tolerance, timeout=given.strict_timeout / 10
    )
    report = Report(given, conditions(given, options.resolved()), facts)
    with Evaluator(options) as evaluator:
        run(wanted, report, evaluator, options, strict)
    report.write()
    print(json.dumps(summary(facts)))
    return 0


def run(rows: list[Row], report: Report, evaluator: Evaluator, options: EvalOptions, strict: EvalOptions) -> None:
    """Judges the rows on threads, with a bound on rows in flight, and writes after each."""
    given, left = report.given, []
    for index, row in enumerate(rows):
        if row.task is None or row.candidate is None:
            report.rows[index]["note"] = row.problem or "no candidate"
        else:
            left.append((index, row))
    total, done = len(left), 0
    running: dict[Future[Facts], int] = {}
    with ThreadPoolExecutor(given.jobs) as executor:
        while left or running:
            while left and len(running) < given.jobs and time.monotonic() - report.started < given.seconds:
                index, row = left.pop(0)
                running[executor.submit(judged, row, evaluator, options, strict)] = index
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                index, found, done = running.pop(future), future.result(), done + 1
                report.rows[index] = {
                    "task": report.rows[index]["task"],
                    "claimed": report.rows[index]["claimed"],
                } | found
                report.write()
                print(f"{done}/{total} {' '.join(table([report.rows[index]])[2].split())[:300]}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
