"""Candidates that crash, hang and die in every way, hundreds in a row on one GPU, with good ones between them.

    python benchmarks/gpu_faults.py [--count 500] [--jobs 8] [--json FILE]

Every candidate must get its own verdict, whatever the one before it did; afterwards no process of ours may be left, and
the card's memory must be as free as before. Before that a judge with candidates in flight is killed: none of its
processes may outlive it by more than `GRACE` seconds, and the card is the next judge's.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "evaluation"))
from test_gpu_judging import FAULTS, TASK, text

from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

RARE = "endless kernel"
"""Costs its whole time limit with the GPU leased, so only every 60th is one."""


def work(count: int) -> list[tuple[str, str, Task, Candidate]]:
    """Name, expected verdict, task, candidate: a good one after every two bad ones."""
    names = [name for name in FAULTS if name != RARE]
    made = []
    for i in range(count):
        name = RARE if i % 60 == 59 else "good" if i % 3 == 2 else names[(i - i // 3) % len(names)]
        source, verdict = (text(), "correct") if name == "good" else FAULTS[name]
        file = SourceFile(path="candidate.py", content=f"{source}\n# {i}\n")
        made.append((name, verdict, Task(task_id="plus", source=TASK), Candidate(sources=(file,), language="cuda")))
    return made


GRACE = 15.0


def killed_judge(jobs: int) -> dict[str, object]:
    """What is left of a judge that is killed once its first verdict shows that candidates are in flight."""
    with tempfile.TemporaryFile("w+") as out:
        command = [sys.executable, __file__, "--count", "60", "--jobs", str(jobs), "--victim"]
        judge = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 90
        while not out.seek(0, 2) and judge.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
    family = psutil.Process(judge.pid).children(recursive=True)
    judge.kill()
    judge.wait()
    began = time.monotonic()
    _, alive = psutil.wait_procs(family, timeout=GRACE)
    left = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    return {"processes": len(family), "left": len(left), "seconds": round(time.monotonic() - began, 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--victim", action="store_true", help="only judge, and say when a verdict is there")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    free_before = torch.cuda.mem_get_info()[0]
    killed = {} if args.victim else killed_judge(args.jobs)
    cases = work(args.count)
    bad: list[str] = []
    judged = 0
    started = time.perf_counter()
    options = EvalOptions(backend="gpu", trials=2, timeout=4, timing_seconds=0.1)
    with Evaluator(options) as evaluator:
        results = evaluate_many([(c[2], c[3]) for c in cases], pool=evaluator, jobs=args.jobs)
        for (name, verdict, _, _), result in zip(cases, results, strict=True):
            if args.victim:
                print(name, flush=True)
            got = result.verdict if isinstance(result, Evaluation) else f"task error: {result}"
            if got != verdict:
                reason = result.reason if isinstance(result, Evaluation) else ""
                bad.append(f"{name}: {got} instead of {verdict}: {reason}")
                print(bad[-1], file=sys.stderr, flush=True)
            judged += 1
            if judged % 50 == 0 and not args.victim:
                print(f"{judged} judged, {len(bad)} unexpected, {time.perf_counter() - started:.0f} s", file=sys.stderr)
    wall = time.perf_counter() - started
    time.sleep(2)
    left = [p.pid for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    free_after = torch.cuda.mem_get_info()[0]
    report = {
        "benchmark": "gpu_faults",
        "date": datetime.date.today().isoformat(),
        "count": args.count,
        "jobs": args.jobs,
        "wall_s": round(wall, 1),
        "per_minute": round(60 * args.count / wall, 1),
        "kinds": dict(collections.Counter(c[0] for c in cases)),
        "unexpected": bad,
        "killed_judge": killed,
        "processes_left": len(left),
        "device_memory_lost_mb": round((free_before - free_after) / 2**20, 1),
    }
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    return 1 if bad or left or killed.get("left") else 0


if __name__ == "__main__":
    sys.exit(main())
