"""Judges the corpus of correct and wrong kernels on one backend.

    python benchmarks/judge_corpus.py --backend cpu|gpu --json OUT.json [--jobs 2] [--only WORD...] [--set own|honest]
        [--sizes REPORT.json] [--resume REPORT.json] [--seconds S]

Both backends get the same task with the same small workloads, so that `benchmarks/confusion.py` can compare their
verdicts. `--resume` names a report, which may be OUT itself. Members that have a verdict there are not judged again;
their rows are taken over, so that a run can be completed in pieces. `--backend host` judges the GPU's way on the CPU,
to test this script.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from result_file import read_json, write_text
from sets.corpus import MUTANTS, RIGHT, Member
from sets.honest import CASES

from kernelwright.errors import TaskError
from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Evaluation, Task, Workload

SECONDS_A_MEMBER = 30.0
Sizes = dict[str, dict[str, Any]]
SEED = 20261122
LARGEST_OWN_SIZE = 500_000
"""Elements up to which a task's own size is run too."""


def members(which: str) -> list[Member]:
    """Returns the corpus: our families' members, and the honest candidates that need no GPU and no library."""
    honest = [
        Member(f"honest-{case.name}", case.task_source, case.candidate_source)
        for case in CASES
        if not case.needs and case.policy == "from_scratch" and case.suffix == ".py" and case.entry == "ModelNew"
    ]
    own = [*RIGHT, *MUTANTS]
    return {"own": own, "honest": honest, "all": own + honest}[which]


def with_workloads(task: Task, evaluator: Evaluator) -> Task:
    """Returns the task with a CPU's sizes spelt out, its own first, so that every backend runs the same ones."""
    plan = evaluator.check_task(task)
    sizes = [w for w in plan.workloads if w.constants]
    if not sizes or (plan.declared is not None and 0 < plan.declared.elements <= LARGEST_OWN_SIZE):
        sizes.insert(0, Workload(name="declared"))
    return stated(task, {w.name: w.constants for w in sizes})


def stated(task: Task, sizes: Sizes) -> Task:
    return task.changed(workloads=tuple(Workload(name=name, constants=values) for name, values in sizes.items()))


def plan_all(chosen: Sequence[Member], known: Mapping[str, Sizes]) -> dict[str, Task]:
    """Returns the members' tasks by their source, with the sizes of an earlier run where it has them."""
    tasks: dict[str, Task] = {}
    with Evaluator(EvalOptions(backend="cpu", seed=SEED)) as planner:
        for member in chosen:
            if member.task_source not in tasks:
                task = member.task()
                sizes = known.get(task.task_id)
                try:
                    tasks[member.task_source] = stated(task, sizes) if sizes else with_workloads(task, planner)
                except TaskError as error:
                    print(f"{task.task_id}: {error}", flush=True)
                    tasks[member.task_source] = task
    return tasks


def row(member: Member, result: Evaluation | Exception) -> dict[str, object]:
    made: dict[str, object] = {"name": member.name, "right": member.right}
    if member.edit:
        made["kind"] = member.edit.kind
    if not isinstance(result, Evaluation):
        return {**made, "verdict": "task error", "reason": str(result)[:400]}
    rules = [f.rule for f in result.findings]
    failed = next((w.name for w in result.workloads if not w.passed), "")
    return {
        **made,
        "verdict": result.verdict,
        "reason": result.reason[:300],
        "rules": rules,
        "calls": len(result.workloads),
        "failed": failed,
        "seconds": round(result.seconds.total, 3),
        "stages": result.environment.gpu_seconds,
        "log": "" if result.verdict in ("correct", "wrong") else result.log[-400:],
    }


def judged_before(path: Path, backend: str, names: set[str]) -> list[dict[str, Any]]:
    """Returns the rows of an earlier report that need not be made again; none without a report."""
    if not path.exists():
        return []
    report = read_json(path)
    if report["backend"] != backend:
        raise SystemExit(f"{path}: a report of backend {report['backend']}, not of {backend}")
    known = [r for r in report["rows"] if r["name"] in names]
    return [r for r in known if r["verdict"] not in ("harness_error", "task error")]


def spread(left: Sequence[Member]) -> list[Member]:
    """Alternates correct and wrong members, so that a run that ends early has judged some of both."""
    sides = [m for m in left if m.right], [m for m in left if not m.right]
    share = {m.name: (k + 1) / len(side) for side in sides for k, m in enumerate(side)}
    return sorted(left, key=lambda m: share[m.name])


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
    parser.add_argument("--sizes", type=Path, help="a report of the CPU's run whose sizes are used")
    parser.add_argument("--resume", type=Path, help="a report of this backend whose verdicts are reused")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop then, and list the missing members")
    args = parser.parse_args()
    chosen = [m for m in members(args.set) if not args.only or any(word in m.name for word in args.only)]
    started = time.perf_counter()
    rows = judged_before(args.resume, args.backend, {m.name for m in chosen}) if args.resume else []
    stamp = f"{args.backend} {time.time_ns()}"
    known = read_json(args.sizes)["sizes"] if args.sizes else {}
    done = {r["name"] for r in rows}
    left = spread([m for m in chosen if m.name not in done])
    tasks = plan_all(left, known)
    sizes = known | {task.task_id: {w.name: w.constants for w in task.workloads} for task in tasks.values()}
    report = {"benchmark": "corpus", "date": datetime.date.today().isoformat(), "backend": args.backend,
              "members": len(chosen), "sizes": sizes, "rows": rows}  # fmt: skip
    print(f"{len(tasks)} tasks planned in {time.perf_counter() - started:.1f} s", flush=True)
    with evaluator_for(args.backend) as evaluator:
        pairs = ((tasks[m.task_source], m.candidate(stamp)) for m in left)
        results = evaluate_many(pairs, pool=evaluator, jobs=args.jobs)
        for member, result in zip(left, results, strict=False):
            rows.append(row(member, result))
            write(args.json, report, started)
            print(f"{member.name:44} {rows[-1]['verdict']!s:14} {str(rows[-1]['reason'])[:120]}", flush=True)
            if time.perf_counter() - started > args.seconds:
                break
    write(args.json, report, started)
    print(json.dumps({k: v for k, v in report.items() if k not in ("rows", "sizes")}))
    return 0 if len(rows) == len(chosen) else 1


def write(path: Path, report: dict[str, Any], started: float) -> None:
    """Writes the report so far, so that an interrupted run loses nothing."""
    rows = report["rows"]
    report["counts"] = dict(sorted(collections.Counter(f"{side(r)}: {r['verdict']}" for r in rows).items()))
    report["judged"], report["wall_s"] = len(rows), round(time.perf_counter() - started, 1)
    head = {k: v for k, v in report.items() if k != "rows"}
    lines = ",\n".join(json.dumps(r) for r in rows)
    write_text(path, json.dumps(head)[:-1] + ', "rows": [\n' + lines + "\n]}\n")


def side(made: Mapping[str, Any]) -> str:
    return "right" if made["right"] else "wrong"


if __name__ == "__main__":
    sys.exit(main())
