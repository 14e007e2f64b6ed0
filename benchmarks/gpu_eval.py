"""Measures how many CUDA candidates a minute one GPU judges and times, and the seconds of each stage.

    python benchmarks/gpu_eval.py [--jsonl FILE] [--own 70] [--jobs 8] [--json FILE]

The candidates with CUDA code come from a JSONL file in KernelBench's format (fields llm_candidate, reference,
problem_id). `--own` distinct ones are ours at full size: the honest library's first, each with a comment that makes its
text new, then generated ones. Each is built (nothing from the cache), checked five times at full size and, if correct,
timed against eager. At the end one ReLU of 4096 x 393216 is judged alone.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import statistics
import sys
import time
from itertools import zip_longest
from pathlib import Path

from cpu_eval import CANDIDATE
from cpu_eval import FAMILIES as GENERATED
from gpu_smoke import cases
from result_file import write_text

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.honest import FAMILIES

from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

TASK = """
import torch
import torch.nn as nn

rows = {rows}
cols = {cols}

class Model(nn.Module):
    def forward(self, x):
        return {expression}

def get_inputs():
    return [torch.randn(rows, cols)]

def get_init_inputs():
    return []
"""
SIZES = ((1024, 1024), (4096, 4096), (16384, 2048), (128, 65536), (8192, 8192))


def own_pairs(count: int) -> list[tuple[Task, Candidate]]:
    """Returns `count` candidates of our own: the honest library's that run anywhere, then generated ones.

    The library's families take turns; those that call libraries come last. A stamp keeps every text out of the cache.
    """
    queues = [[case for case in family if not case.needs] for family in FAMILIES.values()]
    turns = [case for row in zip_longest(*queues) for case in row if case is not None]
    honest = sorted(turns, key=lambda case: case.policy == "libraries")[:count]
    pairs = [(case.task(), case.candidate(f"{case.name} {time.time_ns()}")) for case in honest]
    return pairs + generated_pairs(count - len(pairs))


def generated_pairs(count: int) -> list[tuple[Task, Candidate]]:
    """Returns candidates that differ in a constant, over four families and five sizes."""
    made = []
    start = int(time.time()) % 1_000_000 * 1000
    for i in range(count):
        expression, kernel, body, launch = GENERATED[i % len(GENERATED)]
        rows, cols = SIZES[i // len(GENERATED) % len(SIZES)]
        text = CANDIDATE.format(kernel=kernel.format(body=body, number=start + i), launch=launch, number=start + i)
        source = TASK.format(expression=expression, rows=rows, cols=cols)
        task = Task(task_id=f"own-{i % len(GENERATED)}-{rows}x{cols}", source=source)
        made.append((task, Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")))
    return made


def file_pairs(path: Path) -> list[tuple[Task, Candidate]]:
    """Returns the CUDA rows of a file in KernelBench's format, with a comment that makes each text new."""
    made = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        text = row.get("llm_candidate") or ""
        if "__global__" not in text:
            continue
        task = Task(task_id=str(row["problem_id"]), source=row["reference"])
        text += f"\n# {time.time_ns()}\n"
        made.append((task, Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")))
    return made


def summary(results: list[Evaluation | Exception], wall: float) -> dict[str, object]:
    good = [r for r in results if isinstance(r, Evaluation)]
    correct = [r for r in good if r.verdict == "correct"]
    stages = {
        name: round(statistics.mean(getattr(r.seconds, name) for r in good), 4)
        for name in ("build", "check", "time", "total")
    }
    return {
        "evaluations": len(results),
        "wall_s": round(wall, 2),
        "per_minute": round(60 * len(results) / wall, 1),
        "verdicts": dict(collections.Counter(r.verdict if isinstance(r, Evaluation) else "task" for r in results)),
        "timed": len([r for r in correct if r.timing]),
        "mean_seconds_by_stage": stages,
    }


def lines(results: list[Evaluation | Exception]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for r in results:
        if not isinstance(r, Evaluation):
            rows.append({"task": str(r)})
            continue
        rows.append(
            {
                "task": r.task_id,
                "verdict": r.verdict,
                "reason": r.reason,
                "findings": [f"{f.rule}: {f.evidence}"[:300] for f in r.findings],
                "timing": r.timing.model_dump(mode="json") if r.timing else None,
                "seconds": r.seconds.model_dump(),
                "environment": r.environment.plain(),
                "log": r.log[-600:] if r.verdict in ("harness_error", "unsupported", "runtime_error") else "",
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jsonl", type=Path)
    parser.add_argument("--own", type=int, default=70)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--timing-seconds", type=float, default=0.3)
    args = parser.parse_args()
    with Evaluator(EvalOptions(backend="gpu", timing_seconds=args.timing_seconds)) as evaluator:
        list(evaluate_many(generated_pairs(2 * args.jobs), pool=evaluator, jobs=args.jobs))
        work = (file_pairs(args.jsonl) if args.jsonl else []) + own_pairs(args.own)
        started = time.perf_counter()
        results = list(evaluate_many(work, pool=evaluator, jobs=args.jobs))
        many = summary(results, time.perf_counter() - started)
        alone = []
        for _ in range(3):
            _, _, task, candidate = next(c for c in cases() if c[0] == "relu-large")
            text = candidate.text + f"\n# {time.time_ns()}\n"
            candidate = candidate.model_copy(update={"sources": (SourceFile(path="candidate.py", content=text),)})
            started = time.perf_counter()
            result = evaluator.evaluate(task, candidate)
            alone.append({"wall_s": time.perf_counter() - started, "row": lines([result])[0]})
            print(f"large ReLU: {result.verdict} {alone[-1]['wall_s']:.2f} s {result.seconds} {result.reason[:200]}")
    report = {
        "benchmark": "gpu_eval",
        "date": datetime.date.today().isoformat(),
        "jobs": args.jobs,
        "timing_seconds": args.timing_seconds,
        "together": many,
        "large_relu": alone,
        "rows": lines(results),
    }
    if args.json:
        write_text(args.json, json.dumps(report, indent=1) + "\n")
    print(json.dumps(many))
    return 0


if __name__ == "__main__":
    sys.exit(main())
