"""Judges hundreds of crashing, hanging and dying candidates in a row on one GPU, with good ones between them.

    python benchmarks/gpu_faults.py [--count 500] [--jobs 8] [--device cuda|host] [--json FILE]

Every candidate must get its own verdict, whatever the previous one did. Afterwards no process of ours may be left, and
the card's memory must be as free as before. At the start a judge with candidates in flight is killed: none of its
processes may outlive it by more than `GRACE` seconds, and the next judge must be able to use the card. The file is
written after each candidate (`complete` tells whether it was the last). `--device host` judges the GPU's way on the
CPU.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "evaluation"))
from test_gpu_judging import FAULTS, TASK, text

from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

RARE = "endless kernel"
"""The kind that uses its whole time limit with the GPU leased, so only every 60th candidate is of it."""


Case = tuple[str, str, Task, Candidate]
"""Name, expected verdict, task, candidate."""


SMALL = TASK.replace("1024, 2048", "256, 512")
"""The task at a size that fits into the file that stands for a card's memory."""


def work(count: int, device: str) -> list[Case]:
    """Returns the cases, with a good candidate after every two bad ones."""
    source_of_task = TASK if device == "cuda" else SMALL
    names = [name for name in FAULTS if name != RARE]
    made = []
    for i in range(count):
        name = RARE if i % 60 == 59 else "good" if i % 3 == 2 else names[(i - i // 3) % len(names)]
        source, verdict = (text(), "correct") if name == "good" else FAULTS[name]
        file = SourceFile(path="candidate.py", content=f"{source}\n# {i}\n")
        task = Task(task_id="plus", source=source_of_task)
        made.append((name, verdict, task, Candidate(sources=(file,), language="cuda")))
    return made


GRACE = 15.0


def killed_judge(jobs: int, device: str) -> dict[str, object]:
    """Kills a judge after its first verdict, with candidates in flight, and returns what is left of it."""
    with tempfile.TemporaryFile("w+") as out:
        command = [sys.executable, __file__, "--count", "60", "--jobs", str(jobs), "--device", device, "--victim"]
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


def judge_all(cases: Sequence[Case], jobs: int, device: str, show: Callable[[int, list[str]], None]) -> list[str]:
    """Returns the unexpected verdicts; calls `show` after each candidate with the count and the faults so far."""
    bad: list[str] = []
    options = EvalOptions(backend="gpu", trials=2, timeout=4, timing_seconds=0.1)
    with Evaluator(options, device="cpu" if device == "host" else "cuda") as evaluator:
        results = evaluate_many([(c[2], c[3]) for c in cases], pool=evaluator, jobs=jobs)
        for judged, ((name, verdict, _, _), result) in enumerate(zip(cases, results, strict=True), 1):
            got = result.verdict if isinstance(result, Evaluation) else f"task error: {result}"
            if got != verdict:
                reason = result.reason if isinstance(result, Evaluation) else ""
                bad.append(f"{name}: {got} instead of {verdict}: {reason}")
                print(bad[-1], file=sys.stderr, flush=True)
            show(judged, bad)
    return bad


def free_memory(device: str) -> int:
    """Returns the card's free bytes; 0 without a card."""
    return int(torch.cuda.mem_get_info()[0]) if device == "cuda" else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--victim", action="store_true", help="only judge, and report the first verdict")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cases = work(args.count, args.device)
    if args.victim:
        judge_all(cases, args.jobs, args.device, lambda judged, _: print(judged, flush=True))
        return 0
    report: dict[str, Any] = {
        "benchmark": "gpu_faults",
        "date": datetime.date.today().isoformat(),
        "device": args.device,
        "count": args.count,
        "jobs": args.jobs,
        "kinds": dict(collections.Counter(c[0] for c in cases)),
        "complete": False,
    }
    before = free_memory(args.device)
    report["killed_judge"] = killed_judge(args.jobs, args.device)
    began = time.perf_counter()

    def keep(judged: int, bad: Sequence[str]) -> None:
        wall = time.perf_counter() - began
        report.update(judged=judged, unexpected=list(bad), wall_s=round(wall, 1))
        report["per_minute"] = round(60 * judged / wall, 1) if judged else None
        if args.json:
            args.json.write_text(json.dumps(report, indent=1) + "\n")
        if judged % 50 == 0:
            print(f"{judged} judged, {len(bad)} unexpected, {wall:.0f} s", file=sys.stderr, flush=True)

    keep(0, [])
    bad = judge_all(cases, args.jobs, args.device, keep)
    time.sleep(2)
    left = [p.pid for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    lost = round((before - free_memory(args.device)) / 2**20, 1)
    report.update(complete=True, processes_left=len(left), device_memory_lost_mb=lost)
    keep(len(cases), bad)
    print(json.dumps(report, indent=1))
    return 1 if bad or left or report["killed_judge"].get("left") else 0


if __name__ == "__main__":
    sys.exit(main())
