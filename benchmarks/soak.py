"""Judges crashing, hanging and good candidates in a row, and checks for leaks and for the order of results.

    python benchmarks/soak.py [--count 1000] [--jobs 2] [--json FILE]

Counts processes, descriptors and temporary files before and after, tracks the memory of this process and its children,
and judges the first rows twice to compare verdicts. Prints one JSON object; exit status 1 on a leak.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

TASK = Task(
    task_id="soak",
    source="""
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(32, 64)]
""",
)
KERNEL = '''
import torch, os, sys, threading, ctypes
import torch.nn as nn
from kernelwright.cuda import Module
module = Module("""extern "C" __global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * 2.0f; }""")

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        BODY
        return y
'''
BODIES = {
    "correct": "module.k[(x.numel() + 63) // 64, 64](x, y, x.numel())",
    "runtime_error": "ctypes.string_at(8)",
    "timeout": "while True: pass",
    "wrong": "module.k[1, 64](x, y, 64)",
    "rejected": "y.copy_(x * 2)",
}
OTHERS = {
    "runtime_error": [
        "os._exit(3)",
        "os.kill(os.getpid(), 9)",
        "hoard = [bytearray(1 << 28) for _ in range(64)]",
        "module.k[100, 64](x, y, 100000)",
        "open('left', 'w').write('x' * 100000); raise RuntimeError('after writing')",
    ]
}


def candidates(count: int) -> list[tuple[Task, Candidate, str]]:
    """Returns a fixed mix: mostly good and wrong candidates; every tenth crashes, every fiftieth hangs."""
    rows = []
    for i in range(count):
        if i % 50 == 49:
            expected, body = "timeout", BODIES["timeout"]
        elif i % 5 == 4:
            bodies = [BODIES["runtime_error"], *OTHERS["runtime_error"]]
            expected, body = "runtime_error", bodies[i // 5 % len(bodies)]
        else:
            expected = ("correct", "wrong", "correct", "rejected")[i % 4]
            body = BODIES[expected]
        text = KERNEL.replace("BODY", f"{body}  # row {i}")
        rows.append(
            (TASK, Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda"), expected)
        )
    return rows


def footprint() -> dict[str, int]:
    """Counts this process's children, descriptors and temporary folders, and its resident memory in MB."""
    me = psutil.Process()
    children = me.children(recursive=True)
    memory = me.memory_info().rss
    for child in children:
        try:
            memory += child.memory_info().rss
        except psutil.Error:
            continue
    home = Path(tempfile.gettempdir())
    files = sum(len(files) for folder in home.glob("kernelwright-*") for _, _, files in os.walk(folder))
    return {
        "processes": len(children),
        "descriptors": me.num_fds(),
        "folders": len(list(home.glob("kernelwright-*"))),
        "files": files,
        "rss_mb": memory >> 20,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = candidates(args.count)
    # A temporary folder of its own, so that other programs' files are not counted.
    tempfile.tempdir = tempfile.mkdtemp(prefix="soak-")
    before = footprint()
    verdicts: list[str] = []
    unexpected: list[str] = []
    samples: list[dict[str, int]] = []
    started = time.perf_counter()
    with Evaluator(EvalOptions(trials=2, timeout=4, memory_mb=1024, seed=1)) as evaluator:
        results = evaluate_many(((t, c) for t, c, _ in rows), pool=evaluator, jobs=args.jobs)
        for i, ((_, _, expected), result) in enumerate(zip(rows, results, strict=True)):
            verdict = result.verdict if isinstance(result, Evaluation) else "task_error"
            verdicts.append(verdict)
            if verdict != expected and not (expected == "wrong" and verdict == "unsupported"):
                unexpected.append(f"row {i}: {expected} expected, {verdict}: {getattr(result, 'reason', result)}")
            if i % max(1, args.count // 10) == 0:
                samples.append(footprint())
        again = [
            r.verdict if isinstance(r, Evaluation) else "task_error"
            for r in evaluate_many(((t, c) for t, c, _ in rows[:100]), pool=evaluator, jobs=args.jobs)
        ]
    wall = time.perf_counter() - started
    gc.collect()
    time.sleep(1)
    after = footprint()
    # A sample may count one more child for a moment, which shares most of its memory with others.
    grown = min(s["rss_mb"] for s in samples[-3:]) - samples[min(1, len(samples) - 1)]["rss_mb"]
    leaked = {name: after[name] - before[name] for name in ("processes", "descriptors", "folders", "files")}
    ok = not any(value > 0 for value in leaked.values()) and grown < 200 and not unexpected and again == verdicts[:100]
    report = {
        "benchmark": "soak",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "evaluations": args.count,
        "jobs": args.jobs,
        "wall_s": round(wall, 1),
        "verdicts": dict(Counter(verdicts)),
        "unexpected": unexpected[:20],
        "leaked": leaked,
        "memory_grown_mb": grown,
        "same_verdicts_again": again == verdicts[:100],
        "samples": samples,
        "ok": ok,
    }
    shutil.rmtree(tempfile.tempdir, ignore_errors=True)
    text = json.dumps(report, indent=1)
    if args.json:
        args.json.write_text(text + "\n")
    print(text)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
