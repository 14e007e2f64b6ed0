"""Compares the processor time of one small candidate in two checkouts, without a GPU.

    python benchmarks/cpu_ratio.py BEFORE AFTER [--count 12] [--rounds 9] [--form load_inline|module] [--json FILE]

Both checkouts judge the same candidates in turns, in this one run, each in a process of its own that is warm and has
derived the tasks' sizes. The processor time is that of the judge and all its children, so other work on the machine
hardly changes it. Every candidate is distinct text, so no build comes from the cache. Prints one JSON object with the
median of each checkout in milliseconds a candidate, and the ratio AFTER / BEFORE of each round with its median.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

TICK = 1000 / os.sysconf("SC_CLK_TCK")
"""Milliseconds of one tick of processor time."""
MODULE = '''
import torch, torch.nn as nn
from kernelwright.cuda import Module

kernels = Module(r"""extern "C" __global__ void f(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f + 1.0f + 0.0f * {number}.0f; }}""")

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x); n = x.numel()
        kernels.f[((n + 255) // 256, 1, 1), (256, 1, 1), 0](x.contiguous(), y, n)
        return y
'''


def used(root: int) -> float:
    """Returns the milliseconds of processor time of a process, its living descendants, and all they have reaped."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
        except OSError:
            continue
        if fields:
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family and pid not in family}:
        family |= more
    return TICK * sum(ticks.get(pid, 0) for pid in family)


def judge(form: str) -> None:
    """Judges as many candidates as each line on standard input says; answers with the number of correct ones."""
    from cpu_eval import FAMILIES, TASK, pairs

    from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
    from kernelwright.records import Candidate, SourceFile, Task

    expression = FAMILIES[0][0]
    task = Task(task_id="bench-0", source=TASK.format(expression=expression))
    with Evaluator(EvalOptions(trials=3, seed=5)) as evaluator:
        for line in sys.stdin:
            count = int(line)
            work = pairs(count)
            if form == "module":
                texts = [MODULE.format(number=time.time_ns() % 10**9 + i) for i in range(count)]
                sources = [(SourceFile(path="candidate.py", content=text),) for text in texts]
                work = [(task, Candidate(sources=source, language="cuda")) for source in sources]
            found = list(evaluate_many(work, pool=evaluator, jobs=1))
            print(sum(not isinstance(f, Exception) and f.verdict == "correct" for f in found), flush=True)


class Checkout:
    """The warm judge of one checkout."""

    def __init__(self, root: Path, form: str) -> None:
        code = (
            f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}]; import cpu_ratio; cpu_ratio.judge({form!r})"
        )
        environment = {**os.environ, "PYTHONPATH": str(root / "src"), "KERNELWRIGHT_BACKEND": "cpu"}
        environment.pop("KERNELWRIGHT_WARM", None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def milliseconds(self, count: int) -> float:
        """Judges `count` candidates; returns the processor time of each. Raises `SystemExit` where one is refused."""
        before = used(self.process.pid)
        _pipe(self.process.stdin).write(f"{count}\n")
        _pipe(self.process.stdin).flush()
        correct = int(_pipe(self.process.stdout).readline() or 0)
        if correct != count:
            raise SystemExit(f"{correct} of {count} candidates are correct")
        return (used(self.process.pid) - before) / count

    def close(self) -> None:
        """Ends the judge."""
        _pipe(self.process.stdin).close()
        self.process.wait()


def _pipe(pipe: IO[Any] | None) -> IO[Any]:
    assert pipe is not None
    return pipe


def main() -> None:
    """Compares the two checkouts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--form", choices=("load_inline", "module"), default="load_inline")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    checkouts = [Checkout(root.resolve(), args.form) for root in (args.before, args.after)]
    times: list[list[float]] = [[], []]
    for checkout in checkouts:
        checkout.milliseconds(args.count)  # starts the children and derives the tasks' sizes
    for number in range(args.rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            times[side].append(checkouts[side].milliseconds(args.count))
    for checkout in checkouts:
        checkout.close()
    ratios = [after / before for before, after in zip(*times, strict=True)]
    report = {
        "benchmark": "cpu_ratio",
        "form": args.form,
        "candidates": args.count * args.rounds,
        "before_ms": round(statistics.median(times[0]), 1),
        "after_ms": round(statistics.median(times[1]), 1),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in sorted(ratios)],
    }
    text = json.dumps(report)
    if args.json:
        args.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
