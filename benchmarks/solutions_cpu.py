"""Counts the generated tasks that the solution library answers, and its answers that are correct on the CPU.

    python benchmarks/solutions_cpu.py [--count 200] [--seed 1] [--split train] [--families NAME,...] [--schedule N]
        [--source FILE.jsonl] [--plan] [--skip-judging] [--trials 2] [--out benchmarks/results/solutions_cpu.json]

Each task's canonical answer (or that of the N-th schedule) is judged like any candidate, with every rule. `--source`
takes tasks from the `reference` field of a JSONL file instead of the generator. Prints a line for each failure to
stderr, and one JSON object. The file holds the failures with their reasons, by family.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from kernelwright.errors import TaskError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Task
from kernelwright.solutions import CANONICAL, schedules, write
from kernelwright.solutions.read.reading import FAULT, Unreadable
from kernelwright.tasks import candidate_from_text
from kernelwright.tasks.normal_form.normal import normal_form


def tasks(args: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Yields name, family and source of each task."""
    if args.source:
        for i, line in enumerate(Path(args.source).read_text().splitlines()):
            row = json.loads(line)
            yield f"row {row.get('problem_id', i)}", "row", row["reference"]
        return
    from kernelwright.generate import generate

    families = args.families.split(",") if args.families else None
    for task in generate(args.seed, args.count, families=families, split=args.split):
        yield task.name, task.family, task.source


def main() -> None:
    """Writes, judges, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", default="train")
    parser.add_argument("--families", default="")
    parser.add_argument("--source", default="")
    parser.add_argument("--schedule", type=int, default=-1, help="index into schedules(source); -1: canonical")
    parser.add_argument("--plan", action="store_true", help="answer like our models: the normal form, with a plan")
    parser.add_argument("--skip-judging", action="store_true")
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/solutions_cpu.json"))
    args = parser.parse_args()
    start = time.monotonic()
    seen: Counter[str] = Counter()
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    failures: list[dict[str, str]] = []
    with Evaluator(EvalOptions(seed=args.seed, trials=args.trials, backend="cpu")) as evaluator:
        for name, family, source in tasks(args):
            seen[family] += 1
            verdict, reason, text = judged(evaluator, name, source, args)
            verdicts[family][verdict] += 1
            if verdict not in ("correct", "written"):
                print(f"{verdict}  {name}  {reason[:150]}", file=sys.stderr)
                failures.append(
                    {
                        "task": name,
                        "family": family,
                        "verdict": verdict,
                        "reason": reason,
                        "source": source,
                        "answer": text,
                    }
                )
    report(args, seen, verdicts, failures, time.monotonic() - start)


def judged(evaluator: Evaluator, name: str, source: str, args: argparse.Namespace) -> tuple[str, str, str]:
    """Returns verdict, reason and the answer's text; the verdict is `no template` without an answer."""
    try:
        schedule = CANONICAL if args.schedule < 0 else schedules(source)[args.schedule]
        text = write(normal_form(source), schedule, plan=True) if args.plan else write(source, schedule)
    except Unreadable as error:
        return "crash" if FAULT in str(error) else "no template", str(error), ""
    if args.skip_judging:
        return "written", "", text
    try:
        done = evaluator.evaluate(Task(task_id=name, source=source), candidate_from_text(text, "solutions"))
    except TaskError as error:  # the task's own fault
        return "task error", str(error), text
    return done.verdict, f"{done.reason} {done.log[:2000]}", text


def report(
    args: argparse.Namespace,
    seen: Counter[str],
    verdicts: dict[str, Counter[str]],
    failures: list[dict[str, str]],
    seconds: float,
) -> None:
    """Prints the totals and writes all results."""
    total = sum(seen.values())
    counts: Counter[str] = Counter()
    for found in verdicts.values():
        counts.update(found)
    total -= counts["task error"]
    missing = counts["no template"] + counts["crash"]
    judged_ = total - missing
    summary = {
        "split": args.split,
        "seed": args.seed,
        "tasks": total,
        "written": judged_,
        "coverage": round(judged_ / max(1, total), 4),
        "correct": counts["correct"],
        "correct_of_written": round(counts["correct"] / max(1, judged_), 4),
        "verdicts": dict(counts),
        "seconds": round(seconds, 1),
        "cores": len(os.sched_getaffinity(0)),
        "by_family": {f: {"tasks": seen[f], **verdicts[f]} for f in sorted(seen)},
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({**summary, "failures": failures}, indent=1) + "\n")
    print(json.dumps({k: v for k, v in summary.items() if k != "by_family"}))


if __name__ == "__main__":
    main()
