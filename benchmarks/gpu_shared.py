"""Judges on a GPU that other processes use: verdicts beside their work, and the after-effects of a fault.

    python benchmarks/gpu_shared.py OUT.json [--honest 12] [--exploits 10]
        [--parts quiet,matmul,generation,faults,crossfire] [--crossfire 48]

`quiet`, `matmul` and `generation` judge an honest kernel of 10 us and the same with 2 ms of work on an unawaited
stream: while the GPU is idle, while another process multiplies matrices, and while the starter generates. `faults`
tests whether the runners that are opened ahead come up after candidates with faults, and measures the seconds.
`crossfire` judges so many candidates eight at once; every fourth reads an illegal address, and the others are honest.
The candidates are those of tests/evaluation/test_gpu_judging.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "evaluation"))

import test_gpu_judging as candidates
from gpu_machine import hardware

from kernelwright.errors import KernelwrightError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.gpu_seats import Gpu
from kernelwright.executor import load_executor
from kernelwright.records import Task
from kernelwright.tasks import candidate_from_text

EXPLOIT = "work on a stream that nobody waits for"
MATMUL = """
import torch
a = torch.randn(4096, 4096, device="cuda")
print("ready", flush=True)
while True:
    a @ a
    torch.cuda.synchronize()
"""
GENERATION = """
import sys
from kernelwright.policies import Request
from kernelwright.policies.starter import StarterPolicy
from kernelwright.records import Message
policy = StarterPolicy.from_spec("starter", temperature=1.0)
asked, seed = (Message(role="user", content=open(sys.argv[1]).read()),), 0
while True:
    policy.generate_many([Request(asked, seed + n, None, 1.0) for n in range(128)])
    print("ready", flush=True)
    seed += 128
"""
LOADS = {"quiet": "", "matmul": MATMUL, "generation": GENERATION}
OPENED_SECONDS = 30.0


class Judge:
    """An evaluator that caches no verdict: it judges each text again."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.count = evaluator, 0

    def __call__(self, text: str) -> dict[str, Any]:
        self.count += 1
        found = candidates.judged(self.evaluator, f"# {self.count}\n{text}")
        timing = found.timing
        speedup = (timing.speedup, *timing.interval) if timing and timing.interval else None
        return {"verdict": found.verdict, "reason": found.reason[:120], "speedup": speedup}


def beside(judge: Judge, load: str, honest: int, exploits: int) -> dict[str, Any]:
    """Returns verdicts while another process computes."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as task:
        task.write(candidates.TASK)
        task.flush()
        argv = [sys.executable, "-c", load, task.name]
        other = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) if load else None
        try:
            if other is not None and other.stdout is not None:
                other.stdout.readline()
            rows = {
                "honest": [judge(candidates.text()) for _ in range(honest)],
                "exploit": [judge(candidates.EXPLOITS[EXPLOIT][0]) for _ in range(exploits)],
            }
            return {**rows, "other_lived": other is None or other.poll() is None}
        finally:
            if other is not None:
                other.kill()
                other.communicate()


def opened(gpu: Gpu) -> dict[str, Any]:
    """Counts the runners that wait with the GPU opened, of how many, and after how many seconds."""
    began, wanted = time.monotonic(), len(gpu._makers) + 1
    while gpu._spares.qsize() < wanted and time.monotonic() - began < OPENED_SECONDS:
        time.sleep(0.05)
    return {"waiting": gpu._spares.qsize(), "of": wanted, "seconds": round(time.monotonic() - began, 2)}


def crossfire(count: int) -> dict[str, Any]:
    """Returns verdicts and seconds of honest candidates among faulting ones, eight at once."""
    task = Task(task_id="crossfire", source=candidates.TASK)
    texts = [candidates.FAULTS["illegal address"][0] if n % 4 == 3 else candidates.text() for n in range(count)]
    began = time.monotonic()
    rows: dict[str, list[dict[str, Any]]] = {"honest": [], "fault": []}
    with load_executor("local", 8, "gpu") as executor:
        options = executor.settle(EvalOptions(backend="gpu", timeout=10, timing_seconds=0.1, trials=3))
        given = [candidate_from_text(f"# {number}\n{text}", "crossfire") for number, text in enumerate(texts)]
        jobs = [executor.submit(task, candidate, options) for candidate in given]
        for number, job in enumerate(jobs):
            try:
                found = job.result()
                row = {"verdict": found.verdict, "reason": found.reason[:160], "seconds": found.seconds.total}
            except KernelwrightError as error:
                row = {"verdict": type(error).__name__, "reason": str(error)[:160], "seconds": None}
            rows["fault" if number % 4 == 3 else "honest"].append(row)
    counts = {name: dict(Counter(row["verdict"] for row in every)) for name, every in rows.items()}
    return {"counts": counts, "seconds": round(time.monotonic() - began, 1), **rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--honest", type=int, default=12)
    parser.add_argument("--exploits", type=int, default=10)
    parser.add_argument("--crossfire", type=int, default=48)
    parser.add_argument("--parts", default="quiet,matmul,generation,faults")
    args = parser.parse_args()
    found = {"hardware": hardware()}
    with Evaluator(EvalOptions(backend="gpu", timeout=10, timing_seconds=0.1, trials=3)) as evaluator:
        judge = Judge(evaluator)
        judge(candidates.text())
        for part in args.parts.split(","):
            if part == "crossfire":
                found[part] = crossfire(args.crossfire)
            elif part in LOADS:
                found[part] = beside(judge, LOADS[part], args.honest, args.exploits)
            else:
                assert evaluator._gpu is not None
                rows = [(name, judge(text), opened(evaluator._gpu)) for name, (text, _) in candidates.FAULTS.items()]
                found["faults"] = [{"fault": name, **verdict, **after} for name, verdict, after in rows]
            args.out.write_text(json.dumps(found) + "\n")
            print(part, json.dumps(found[part])[:300], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
