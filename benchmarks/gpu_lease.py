"""Measures how long a judgement holds a GPU, by stage, judged one at a time and several concurrently.

    python benchmarks/gpu_lease.py OUT.json [--tasks 12] [--jobs 0,1,4,8] [--makers 4] [--timing-seconds 0.1]
        [--most 1e6] [--seats 4] [--trials 3] [--ways usual,replayed] [--device cuda|cpu]

The solution library's correct answers to generated single operators, whose kernels take microseconds, are judged again
for each number of jobs, with other texts (a comment) and other inputs. A stage's additional seconds with several jobs
are the cost of sharing. Work that is not timed shares the GPU: `at_work_s` has all of it, `alone_s` is the exclusive
part, and `lease` and `seat` are waits. `--makers` processes at once open the GPU for the next runners. All tasks are
judged once before, which starts the processes and does not count. With 0 jobs each judgement waits until the runners of
later ones have been opened, so that nothing else calls the driver. `--device cpu` judges the same way on the CPU. For
each number of jobs the ways alternate: `usual`, and `replayed`, by launches alone (`EvalOptions.replay`), with the
speedups of both for the same answers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from gpu_machine import hardware
from result_file import write_text
from rl_schedules import suite

from kernelwright import evaluation
from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.evaluation.processes import gpu_seats
from kernelwright.records import Candidate, Evaluation, Task
from kernelwright.solutions import write
from kernelwright.tasks import candidate_from_text

REST_SECONDS = 5.0
FAMILIES = ["silu", "sum", "rms_norm", "batch_norm2d", "amax", "var"]


def pairs(count: int, most: float, stamp: str) -> list[tuple[Task, Candidate]]:
    """Returns tasks with the library's answers; the stamp keeps each text out of the build cache."""
    made = []
    for task in suite(1, count, FAMILIES, most):
        text = f"# {stamp}\n" + write(task.source)
        made.append((Task(task_id=task.name, source=task.source), candidate_from_text(text, stamp)))
    return made


def stages(found: Evaluation) -> dict[str, float]:
    """Returns the seconds by stage that one judgement reports."""
    return dict(found.environment.gpu_seconds)


def widths(found: list[Evaluation]) -> float | None:
    """Returns the median relative width of the speedups' intervals, which shows how much other work disturbs."""
    times = [one.timing for one in found if one.timing]
    seen = [(t.interval[1] - t.interval[0]) / t.speedup for t in times if t.interval and t.speedup]
    return round(statistics.median(seen), 4) if seen else None


def opening(evaluator: Evaluator) -> float | None:
    """Returns the seconds in which a runner opens an idle GPU."""
    gpu = evaluator._gpu
    if gpu is None:
        return None
    time.sleep(REST_SECONDS)
    began = time.monotonic()
    gpu.runner(programs=True).end()
    return round(time.monotonic() - began, 3)


def measured(
    asked: argparse.Namespace, evaluator: Evaluator, options: EvalOptions, jobs: int, way: str
) -> dict[str, Any]:
    """Judges all tasks with so many jobs and returns one row."""
    evaluator.options = options = options.changed(replay=way == "replayed")
    work = pairs(asked.tasks, asked.most, f"{jobs} at once, {time.time_ns()}")
    began = time.monotonic()
    results: list[Any] = []
    if jobs:
        results += evaluate_many(work, options, jobs, pool=evaluator)
    else:
        for one in work:
            time.sleep(REST_SECONDS)  # meanwhile the runners of later candidates are opened
            results += evaluate_many([one], options, 1, pool=evaluator)
    wall = time.monotonic() - began
    found = [r for r in results if isinstance(r, Evaluation)]
    by_stage = defaultdict(list)
    for one in found:
        for name, value in stages(one).items():
            by_stage[name].append(value)
    each = {name: round(statistics.mean([*v, *[0.0] * (len(found) - len(v))]), 4) for name, v in by_stage.items()}
    return {
        "jobs": jobs,
        "way": way,
        "replayed": sum("launches a call" in one.environment.replayed for one in found),
        "not_replayed": sorted({o.environment.replayed for o in found if "no: " in o.environment.replayed}),
        "speedups": {one.task_id: one.timing.speedup for one in found if one.timing},
        "per_minute": round(60 * len(found) / wall, 1),
        "at_work_s": round(sum(v for name, v in each.items() if name not in ("lease", "seat", "alone")), 4),
        "alone_s": each.get("alone", 0.0),
        "stages_s": dict(sorted(each.items())),
        "verdicts": sorted({one.verdict for one in found}),
        "interval_width": widths(found),
        "raw": [stages(one) for one in found],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--jobs", type=lambda text: [int(n) for n in text.split(",")], default=[0, 1, 4, 8])
    parser.add_argument("--makers", type=int, default=evaluation.MAKERS)
    parser.add_argument("--seats", type=int, default=gpu_seats.SEATS)
    parser.add_argument("--timing-seconds", type=float, default=0.1)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--ways", type=lambda text: text.split(","), default=["usual", "replayed"])
    parser.add_argument("--most", type=float, default=1e6)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked = parser.parse_args()
    evaluation.MAKERS, gpu_seats.SEATS = asked.makers, asked.seats
    options = EvalOptions(backend="gpu", trials=asked.trials, timing_seconds=asked.timing_seconds)
    rows: list[dict[str, Any]] = []
    with Evaluator(options, device=asked.device) as evaluator:
        first = pairs(asked.tasks, asked.most, f"first, {time.time_ns()}")
        if not first:
            parser.error(f"no task of every family has at most {asked.most:g} elements")
        for way in asked.ways:
            evaluator.options = options.changed(replay=way == "replayed")
            list(evaluate_many(first, evaluator.options, 2 * asked.seats, pool=evaluator))
        opened = opening(evaluator)
        for jobs, way in itertools.product(asked.jobs, asked.ways):
            rows.append(measured(asked, evaluator, options, jobs, way))
            print({k: v for k, v in rows[-1].items() if k not in ("raw", "speedups")}, flush=True)
            kept = {
                "benchmark": "gpu_lease",
                **hardware(),
                "device": asked.device,
                "makers": asked.makers,
                "seats": asked.seats,
            }
            kept |= {"opening_s": opened, "rows": rows}
            write_text(asked.out, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
