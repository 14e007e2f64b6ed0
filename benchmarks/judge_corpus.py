"""Judges the corpus of right and wrong kernels on one backend.

    python benchmarks/judge_corpus.py --backend cpu|gpu --json OUT.json [--jobs 2] [--only WORD...] [--set own|honest]

Both backends get the same task with the same small workloads, so that their verdicts can be compared: see
`benchmarks/confusion.py`. `--backend host` goes the GPU's way on the processor, to try this script.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import sys
import time
from pathlib import Path

from corpus import MUTANTS, RIGHT, Member
from honest import CASES

from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Evaluation, Task

SECONDS_A_MEMBER = 30.0
SEED = 20261122


def members(which: str) -> list[Member]:
    """The corpus: our families' members and, of the honest candidates, those that need no GPU and no library."""
    honest = [
        Member(f"honest-{case.name}", case.task_source, case.candidate_source)
        for case in CASES
        if not case.needs and case.policy == "from_scratch" and case.suffix == ".py" and case.entry == "ModelNew"
    ]
    own = [*RIGHT, *MUTANTS]
    return {"own": own, "honest": honest, "all": own + honest}[which]


def with_workloads(task: Task, evaluator: Evaluator) -> Task:
    """The task with the sizes at which a CPU judges it spelt out, so that every backend runs these."""
    first, *others = evaluator.check_task(task).workloads
    return task.changed(workloads=(first.changed(scope="declared", purpose="timing"), *others))


def row(member: Member, result: Evaluation | Exception) -> dict[str, object]:
    made: dict[str, object] = {"name": member.name, "right": member.right}
    if member.edit:
        made |= {"kind": member.edit.kind, "old": member.edit.old, "new": member.edit.new}
    if not isinstance(result, Evaluation):
        return {**made, "verdict": "task error", "reason": str(result)[:400]}
    rules = [f.rule for f in result.findings]
    sizes = [[w.name, [list(s) for s in w.shape or ()], w.passed] for w in result.workloads]
    return {
        **made,
        "verdict": result.verdict,
        "reason": result.reason[:300],
        "rules": rules,
        "workloads": sizes,
        "seconds": round(result.seconds.total, 3),
        "log": "" if result.verdict in ("correct", "wrong") else result.log[-400:],
    }


def evaluator_for(backend: str) -> Evaluator:
    if backend == "cpu":
        return Evaluator(EvalOptions(backend="cpu", timeout=SECONDS_A_MEMBER, seed=SEED))
    options = EvalOptions(backend="gpu", timeout=SECONDS_A_MEMBER, timing_seconds=0.0, seed=SEED)
    return Evaluator(options, device="cpu" if backend == "host" else None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("cpu", "gpu", "host"), required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--set", choices=("own", "honest", "all"), default="all")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long, and say what is missing")
    args = parser.parse_args()
    chosen = [m for m in members(args.set) if not args.only or any(word in m.name for word in args.only)]
    rows, started = [], time.perf_counter()
    stamp = f"{args.backend} {time.time_ns()}"
    with Evaluator(EvalOptions(backend="cpu", seed=SEED)) as planner:
        tasks = {text: None for text in dict.fromkeys(m.task_source for m in chosen)}
        for member in chosen:
            if tasks[member.task_source] is None:
                tasks[member.task_source] = with_workloads(member.task(), planner)
    planned = time.perf_counter() - started
    print(f"{len(tasks)} tasks planned in {planned:.1f} s", flush=True)
    with evaluator_for(args.backend) as evaluator:
        pairs = ((tasks[m.task_source], m.candidate(stamp)) for m in chosen)
        results = evaluate_many(pairs, pool=evaluator, jobs=args.jobs)
        for member, result in zip(chosen, results, strict=False):
            rows.append(row(member, result))
            write(args, rows, chosen, started)
            print(f"{member.name:44} {rows[-1]['verdict']!s:14} {str(rows[-1]['reason'])[:120]}", flush=True)
            if time.perf_counter() - started > args.seconds:
                break
    write(args, rows, chosen, started, every=1)
    print(json.dumps({k: v for k, v in json.loads(args.json.read_text()).items() if k != "rows"}))
    return 0 if len(rows) == len(chosen) else 1


def write(args: argparse.Namespace, rows: list[dict[str, object]], chosen: list[Member], started: float, every: int = 25) -> None:
    """The report as far as it goes, now and then, so that an interrupted run keeps what it has."""
    if len(rows) % every:
        return
    counts = collections.Counter(f"{'right' if r['right'] else 'wrong'}: {r['verdict']}" for r in rows)
    report = {
        "benchmark": "corpus",
        "date": datetime.date.today().isoformat(),
        "backend": args.backend,
        "members": len(chosen),
        "judged": len(rows),
        "counts": dict(sorted(counts.items())),
        "wall_s": round(time.perf_counter() - started, 1),
        "rows": rows,
    }
    args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
