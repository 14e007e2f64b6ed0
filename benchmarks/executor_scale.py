"""Evaluations a minute by executor and by how much it may use: one unit and two, in one run, in turns.

    python benchmarks/executor_scale.py [--count 40] [--rounds 2] [--jobs 8] [--kinds local,ray,worker] [--json FILE]

A unit is a GPU where there are any (with `--jobs` candidates in flight on each), else one thread, actor or process.
`local` is threads of this process, `ray` Ray actors (left out with a note where Ray is not installed), `worker` as many
`kernelwright worker` processes on one run's queue, each with one unit and no warm-up. Candidates are distinct, so that
no build comes from the cache; the other executors are warmed up before they are timed, and `start_s` says how long that
took. Prints one JSON object; the file has every sample, too. `ratios` are of medians: two units over one, and the other
kinds over local.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from cpu_eval import pairs as cpu_pairs
from gpu_eval import own_pairs as gpu_pairs

from kernelwright.errors import UsageError
from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.options import visible_gpus
from kernelwright.executor import Executor, in_order
from kernelwright.executor.local import Local
from kernelwright.executor.ray_actors import RayActors, import_ray
from kernelwright.records import Candidate, Evaluation, Task
from kernelwright.runs.batch import queue_rows
from kernelwright.runs.store import Store
from kernelwright.tasks import Row

Pairs = list[tuple[Task, Candidate]]
UNITS = (1, 2)
DEADLINE = 1800.0


def rate(executor: Executor, work: Iterator[tuple[Task, Candidate]], count: int, options: EvalOptions) -> dict:
    """Warms an executor up, then measures its rate."""
    began = time.perf_counter()
    list(in_order(executor, itertools.islice(work, 2 * executor.capacity), options))
    start = time.perf_counter() - began
    began = time.perf_counter()
    results = list(in_order(executor, itertools.islice(work, count), options))
    wall = time.perf_counter() - began
    verdicts = Counter(r.verdict if isinstance(r, Evaluation) else "task" for r in results)
    used = Counter(r.environment.gpu_index for r in results if isinstance(r, Evaluation))
    return {
        "per_minute": round(60 * count / wall, 1),
        "wall_s": round(wall, 2),
        "start_s": round(start, 2),
        "verdicts": dict(verdicts),
        "by_gpu": dict(used),
    }


def local(units: int, work: Iterator[tuple[Task, Candidate]], args: argparse.Namespace) -> dict:
    gpus = visible_gpus()[:units]
    with Local(units * (args.jobs if gpus else 1), gpus=gpus) as executor:
        return rate(executor, work, args.count, args.options)


def on_ray(units: int, work: Iterator[tuple[Task, Candidate]], args: argparse.Namespace) -> dict:
    ray = import_ray()
    gpus = len(visible_gpus()[:units])
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    ray.init(address="local", num_cpus=max(units, os.cpu_count() or 1), num_gpus=gpus, **quiet)
    try:
        with RayActors(units * (args.jobs if gpus else 1)) as executor:
            return rate(executor, work, args.count, args.options)
    finally:
        ray.shutdown()


def workers(units: int, work: Iterator[tuple[Task, Candidate]], args: argparse.Namespace) -> dict:
    """Runs processes on one queue; the rate is that between the first and the last stored evaluation."""
    gpus = visible_gpus()[:units]
    jobs = args.jobs if gpus else 1
    rows = [Row(n, f"row-{n}", task, given) for n, (task, given) in enumerate(itertools.islice(work, args.count))]
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        with Store.create(run) as store:
            queue_rows(rows, store, args.options)
        command = [sys.executable, "-m", "kernelwright.cli", "worker", run, "--jobs", str(jobs), "--json"]
        began = time.time()
        processes = [
            subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **({"CUDA_VISIBLE_DEVICES": gpus[unit]} if gpus else {})},
            )
            for unit in range(units)
        ]
        ends = [process.wait(DEADLINE) for process in processes]
        with Store.open(run) as store, store.transaction() as db:
            times = sorted(at for (at,) in db.execute("SELECT created FROM evaluations"))
            verdicts = dict(db.execute("SELECT verdict, count(*) FROM evaluations GROUP BY verdict").fetchall())
    wall = times[-1] - times[0]
    return {
        "per_minute": round(60 * (len(times) - 1) / wall, 1),
        "wall_s": round(wall, 2),
        "start_s": round(times[0] - began, 2),
        "verdicts": verdicts,
        "ends": ends,
    }


KINDS = {"local": local, "ray": on_ray, "worker": workers}


def measure(args: argparse.Namespace) -> tuple[list[dict], list[str]]:
    """Measures every kind with every number of units, in reverse order in every other round."""
    gpus = bool(visible_gpus())
    sets = [(kind, units) for kind in args.kinds for units in UNITS if not gpus or units <= len(visible_gpus())]
    make = gpu_pairs if gpus else cpu_pairs
    room = args.count + 2 * max(UNITS) * max(args.jobs, 1)
    work = iter(make(args.rounds * len(sets) * room))
    samples, notes = [], []
    for number in range(args.rounds):
        for kind, units in sets if number % 2 == 0 else sets[::-1]:
            try:
                sample = KINDS[kind](units, work, args)
            except UsageError as error:
                notes.append(f"{kind}: {error}")
                continue
            samples.append({"kind": kind, "units": units, "round": number, **sample})
            print(json.dumps(samples[-1]), file=sys.stderr, flush=True)
    return samples, sorted(set(notes))


def ratios(samples: list[dict]) -> tuple[dict[str, float], dict[str, float]]:
    """Returns median evaluations a minute by kind and units, and their ratios."""
    groups: dict[str, list[float]] = {}
    for sample in samples:
        groups.setdefault(f"{sample['kind']}-{sample['units']}", []).append(sample["per_minute"])
    medians = {name: statistics.median(values) for name, values in groups.items()}
    wanted = [(f"{kind}-2", f"{kind}-1") for kind in KINDS]
    wanted += [(f"{kind}-{units}", f"local-{units}") for kind in ("ray", "worker") for units in UNITS]
    found = {f"{a} / {b}": round(medians[a] / medians[b], 3) for a, b in wanted if a in medians and b in medians}
    return medians, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--timing-seconds", type=float, default=0.3)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.options = EvalOptions(trials=args.trials, timing_seconds=args.timing_seconds)
    samples, notes = measure(args)
    medians, found = ratios(samples)
    report = {
        "benchmark": "executor_scale",
        "date": datetime.date.today().isoformat(),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "gpus": len(visible_gpus())},
        "backend": args.options.resolved(),
        "count": args.count,
        "jobs_a_gpu": args.jobs if visible_gpus() else None,
        "per_minute": medians,
        "ratios": found,
        "notes": notes,
        "samples": samples,
    }
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({key: value for key, value in report.items() if key != "samples"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
