"""Judges every honest candidate of `tests/sets/honest` on the GPU: none of them may be refused.

    python benchmarks/gpu_honest.py [--jobs 8] [--only NAME...] [--json FILE] [--resume FILE]

Exit status 1 if a verdict is not `correct`. For development `--device host` judges the GPU's way on the CPU and
`--device cpu` the CPU's way, both at reduced sizes and without the cases that need a GPU.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.honest import CASES, FAMILIES, Case

from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Evaluation, Task

SECONDS_A_CASE = 30.0
"""The limit on a candidate's own time in seconds, builds not counted."""


def chosen(only: Iterable[str], device: str) -> list[Case]:
    """Returns the cases whose name or family contains one of the words; without a GPU, those that need none."""
    words = list(only)
    family = {case.name: name for name, cases in FAMILIES.items() for case in cases}
    return [
        case
        for case in CASES
        if (device == "cuda" or not case.needs)
        and (not words or any(word in case.name or word == family[case.name] for word in words))
    ]


def reduced(task: Task, evaluator: Evaluator) -> Task:
    """Returns the task with the sizes at which a CPU judges it, the first of them to be timed: for the host device."""
    first, *others = evaluator.check_task(task).workloads
    return task.changed(workloads=(first.changed(scope="declared", purpose="timing"), *others))


def row(case: Case, result: Evaluation | Exception) -> dict[str, object]:
    """Returns one row of the report; a failure has its log."""
    start = {"name": case.name, "policy": case.policy, "needs": case.needs}
    if not isinstance(result, Evaluation):
        return {**start, "verdict": "task error", "reason": str(result)}
    return {
        **start,
        "verdict": result.verdict,
        "reason": result.reason,
        "findings": [f"{f.severity} {f.rule}: {f.evidence}"[:400] for f in result.findings],
        "timing": result.timing.model_dump(mode="json") if result.timing else None,
        "stages": result.seconds.model_dump(),
        "environment": result.environment.plain(),
        "log": "" if result.verdict == "correct" else result.log[-3000:],
    }


def line(made: dict[str, object], result: Evaluation | Exception) -> str:
    told = ""
    if isinstance(result, Evaluation):
        told = f"{result.seconds.total:6.2f} s"
        if result.timing:
            told += f"  {result.timing.candidate_ms:.4f} ms, x{result.timing.speedup or 0:.2f}"
        told += "".join(f"  [{f.rule}]" for f in result.findings)
    reason = "" if made["verdict"] == "correct" else f"  {str(made['reason'])[:300]}"
    return f"{made['name']!s:34} {made['verdict']!s:14} {told}{reason}"


def evaluator_for(device: str, timing_seconds: float, seed: int | None) -> Evaluator:
    if device == "cpu":
        return Evaluator(EvalOptions(backend="cpu", timeout=SECONDS_A_CASE, seed=seed))
    options = EvalOptions(backend="gpu", timing_seconds=timing_seconds, timeout=SECONDS_A_CASE, seed=seed)
    return Evaluator(options, device="cpu" if device == "host" else None)


def report(rows: list[dict[str, object]], device: str, seconds: float) -> dict[str, object]:
    return {
        "benchmark": "gpu_honest",
        "date": datetime.date.today().isoformat(),
        "device": device,
        "cases": len(rows),
        "verdicts": dict(collections.Counter(str(r["verdict"]) for r in rows)),
        "wall_s": round(seconds, 1),
        "rows": rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "host", "cpu"), default="cuda")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=[], help="judge only cases whose name or family contains a word")
    parser.add_argument("--timing-seconds", type=float, default=0.3)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--json", type=Path, help="results, written after each case")
    parser.add_argument("--resume", type=Path, help="results of an earlier run, whose cases are skipped")
    args = parser.parse_args()
    rows: list[dict[str, object]] = json.loads(args.resume.read_text())["rows"] if args.resume else []
    cases = [c for c in chosen(args.only, args.device) if c.name not in {r["name"] for r in rows}]
    started = time.perf_counter()
    with evaluator_for(args.device, args.timing_seconds, args.seed) as evaluator:
        tasks = [reduced(c.task(), evaluator) if args.device == "host" else c.task() for c in cases]
        candidates = [c.candidate(f"{c.name} {time.time_ns()}") for c in cases]
        results = evaluate_many(zip(tasks, candidates, strict=True), pool=evaluator, jobs=args.jobs)
        for case, result in zip(cases, results, strict=True):
            rows.append(row(case, result))
            print(line(rows[-1], result), flush=True)
            if args.json:
                done = report(rows, args.device, time.perf_counter() - started)
                args.json.write_text(json.dumps(done, indent=1) + "\n")
    final = report(rows, args.device, time.perf_counter() - started)
    print(json.dumps({k: v for k, v in final.items() if k != "rows"}))
    return 0 if rows and final["verdicts"] == {"correct": len(rows)} else 1


if __name__ == "__main__":
    sys.exit(main())
