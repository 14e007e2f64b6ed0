"""Judges Triton candidates, honest and wrong ones, without a GPU or with one.

    python benchmarks/triton_cpu.py [--backend cpu|gpu|both] [--trials 3] [--only WORD...] [--json FILE]

Needs Triton (`pip install 'kernelwright[triton]'`). Prints a line for each candidate and backend, then three kernels
run by `TRITON_INTERPRET=1` and by the machine on equal inputs. Exit status 1 if an honest candidate is refused, if a
wrong one passes or gets another verdict than expected, or if both backends could know the same and their verdicts
differ. `--repeat` judges each again under a text that no cache has seen: the second run is the warm one.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.honest import FAMILIES, Case
from triton_interpreter import compare_with_interpreter
from triton_wrong import CASES_WRONG, Wrong

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.options import gpu_count
from kernelwright.records import Evaluation


@dataclass(frozen=True)
class Entry:
    """A candidate and its expected verdicts."""

    case: Case
    wrong: Wrong | None

    def expected(self, backend: str) -> tuple[str, ...]:
        return self.wrong.on(backend) if self.wrong else ("correct",)


def entries(words: list[str]) -> Iterator[Entry]:
    """Yields the Triton candidates whose name contains one of the words, without those that also need a GPU."""
    honest = [Entry(case, None) for case in FAMILIES["triton_kernels"] if case.needs == "triton"]
    for entry in (*honest, *(Entry(wrong.case, wrong) for wrong in CASES_WRONG)):
        if not words or any(word in entry.case.name for word in words):
            yield entry


def problem(entry: Entry, result: Evaluation, backend: str) -> str:
    """Returns the fault of a verdict; empty if it is as expected."""
    if result.verdict not in entry.expected(backend):
        return f"expected {' or '.join(entry.expected(backend))}"
    if entry.wrong is None or backend == "gpu":
        return ""
    finding = next((f for f in result.findings if f.rule == entry.wrong.rule), None)
    if entry.wrong.rule and finding is None:
        return f"no finding of rule {entry.wrong.rule}"
    if entry.wrong.marked and finding is not None:
        lines = entry.case.candidate().text.split("\n")
        named = lines[finding.line - 1] if finding.line else ""
        if entry.wrong.marked not in named:
            return f"the finding names line {finding.line}: {named.strip()!r}"
    return ""


def processor_seconds() -> float:
    """Returns CPU seconds of all descendants of this process; other load hardly changes them."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may end meanwhile
            t = process.cpu_times()
            total += t.user + t.system + t.children_user + t.children_system
    return total


def judged(entry: Entry, evaluator: Evaluator, backend: str, repeat: int) -> dict[str, object]:
    """Returns one row: the verdict of the last of `1 + repeat` evaluations, and wall and CPU seconds of each.

    CPU seconds include those of the task's reference.
    """
    seconds: list[float] = []
    for _ in range(1 + repeat):
        before = processor_seconds()
        result = evaluator.evaluate(entry.case.task(), entry.case.candidate(f"{time.time_ns()}"))
        seconds.append(round(result.seconds.total, 3))
        time.sleep(0.05)  # until the runner has been waited for
        spent = processor_seconds() - before
    findings = [f for f in result.findings if f.severity != "info"]
    return {
        "name": entry.case.name,
        "backend": backend,
        "planted": entry.wrong is not None,
        "verdict": result.verdict,
        "reason": result.reason,
        "findings": [f"{f.severity} {f.rule} line {f.line}: {f.evidence}"[:300] for f in findings],
        "kernels": [{"name": k.kernel, "launches": k.count, "instructions": k.instructions} for k in result.launches],
        "seconds": seconds,
        "cpu_s": round(spent, 3),
        "problem": problem(entry, result, backend),
    }


def shown(row: dict[str, object]) -> str:
    trouble = f"  PROBLEM: {row['problem']}" if row["problem"] else ""
    seconds = " ".join(f"{s:6.2f}" for s in row["seconds"])  # type: ignore[attr-defined]
    reason = "" if row["verdict"] == "correct" else f"  {str(row['reason'])[:130]}"
    return (
        f"{row['backend']} {row['name']!s:36} {row['verdict']!s:14} {seconds} s {row['cpu_s']:6} cpu-s{reason}{trouble}"
    )


def summary(rows: list[dict[str, object]], backend: str) -> dict[str, object]:
    own = [r for r in rows if r["backend"] == backend]
    honest, planted = [r for r in own if not r["planted"]], [r for r in own if r["planted"]]
    seconds = [r["seconds"][-1] for r in honest]  # type: ignore[index]
    return {
        "honest": len(honest),
        "honest_correct": sum(r["verdict"] == "correct" for r in honest),
        "wrong": len(planted),
        "wrong_as_expected": sum(not r["problem"] for r in planted),
        "verdicts": dict(collections.Counter(str(r["verdict"]) for r in own)),
        "seconds_median": round(statistics.median(seconds), 3) if seconds else None,
        "seconds_most": max(seconds) if seconds else None,
        "cpu_s_median": round(statistics.median(r["cpu_s"] for r in honest), 3) if honest else None,  # type: ignore[type-var]
    }


def disagreements(rows: list[dict[str, object]]) -> list[str]:
    """Returns the names with different verdicts on both backends, except faults that only the machine can see."""
    verdicts: dict[str, set[object]] = collections.defaultdict(set)
    for row in rows:
        verdicts[str(row["name"])].add(row["verdict"])
    hidden = {w.case.name for w in CASES_WRONG if w.gpu_verdicts}
    return sorted(name for name, found in verdicts.items() if len(found) > 1 and name not in hidden)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("cpu", "gpu", "both"), default="cpu")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=0, help="judge each candidate this many times more")
    parser.add_argument("--only", nargs="*", default=[], help="judge only candidates whose name contains a word")
    parser.add_argument("--no-interpreter", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if importlib.util.find_spec("triton") is None:
        print("error: Triton is not installed\nhint: pip install 'kernelwright[triton]'", file=sys.stderr)
        return 2
    backends = ["cpu", "gpu"] if args.backend == "both" else [args.backend]
    if "gpu" in backends and not gpu_count():
        print("error: there is no GPU here\nhint: --backend cpu needs none", file=sys.stderr)
        return 2
    rows: list[dict[str, object]] = []
    for backend in backends:
        options = EvalOptions(backend=backend, trials=args.trials, seed=args.seed, timeout=120, timing_seconds=0.3)
        with Evaluator(options) as evaluator:
            for entry in entries(args.only):
                rows.append(judged(entry, evaluator, backend, args.repeat))
                print(shown(rows[-1]), flush=True)
    interpreted = [] if args.no_interpreter else list(compare_with_interpreter())
    for line in interpreted:
        print(json.dumps(line), flush=True)
    report = {
        "benchmark": "triton_cpu",
        "date": datetime.date.today().isoformat(),
        "triton": importlib.metadata.version("triton"),
        "trials": args.trials,
        "load": [round(load, 1) for load in os.getloadavg()],
        "processors": os.cpu_count(),
        "backends": {backend: summary(rows, backend) for backend in backends},
        "disagreements": disagreements(rows),
        "interpreter": interpreted,
        "rows": rows,
    }
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({k: v for k, v in report.items() if k not in ("rows", "interpreter")}))
    return 0 if rows and not any(r["problem"] for r in rows) and not report["disagreements"] else 1


if __name__ == "__main__":
    sys.exit(main())
