"""Measures how well timing separates kernels: a kernel against itself, and two kernels made 3 % apart.

    python benchmarks/gpu_precision.py [--json FILE]

A/A: the task's reference and the candidate run the same kernel at 50 sizes between about 5 us and 50 ms, through all of
judging and timing. The reported ratio should be within 1 % of 1, and its interval should cover 1. Apart: 20 pairs of
candidates, of which the second repeats 3 % of its work. The intervals of their times should not overlap.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from pathlib import Path

from result_file import write_text

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.judge.intervals import ratio_interval
from kernelwright.records import Candidate, SourceFile, Task

TASK = """
import torch, torch.nn as nn
n = {n}
repeats = {repeats}
class Model(nn.Module):
    def forward(self, x):
        for _ in range(repeats):
            x = torch.relu(x)
        return x
def get_inputs():
    return [torch.randn(n)]
def get_init_inputs():
    return []
"""
SAME = """
import torch, torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        for _ in range({repeats}):
            x = torch.relu(x)
        return x
# {stamp}
"""
APART = """
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = r'''
__global__ void work(const float* x, float* y, long n, int rounds) {{
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i], w = 0.f;
  for (int k = 0; k < rounds; ++k) w = fmaf(w, 0.999f, v);
  y[i] = fmaxf(v, 0.f) + w * 1e-30f;
}}
torch::Tensor forward(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  long n = x.numel();
  work<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, {rounds});
  return y;
}}
'''
ext = load_inline(name="apart_{rounds}", cpp_sources="torch::Tensor forward(torch::Tensor x);", cuda_sources=source,
                  functions=["forward"])
class ModelNew(nn.Module):
    def forward(self, x):
        return ext.forward(x)
# {stamp}
"""


def candidate(text: str, language: str = "cuda") -> Candidate:
    return Candidate(sources=(SourceFile(path="candidate.py", content=text),), language=language)


def same(evaluator: Evaluator, count: int) -> list[dict[str, object]]:
    """Measures A/A at calls of 5 us to 50 ms, evenly in the logarithm: one to three kernels, many for the longest."""
    rows = []
    for i in range(count):
        target_us = 5 * 10 ** (4 * i / max(1, count - 1))
        repeats = 1 + i % 3 if target_us < 2000 else round(target_us / 500)
        # A kernel takes about 1.7 us and 8 bytes an element at 4.2 TB/s.
        n = max(4096, int((target_us / repeats - 1.7) * 4.2e6 / 8))
        task = Task(task_id=f"aa-{i}", source=TASK.format(n=n, repeats=repeats), policy="libraries")
        result = evaluator.evaluate(task, candidate(SAME.format(repeats=repeats, stamp=time.time_ns())))
        timing = result.timing
        if timing is None or timing.speedup is None or timing.interval is None:
            rows.append({"n": n, "repeats": repeats, "verdict": result.verdict, "reason": result.reason})
            continue
        rows.append(
            {
                "n": n,
                "repeats": repeats,
                "candidate_ms": timing.candidate_ms,
                "ratio": timing.speedup,
                "interval": timing.interval,
                "launch": result.environment.launch_us,
                "samples": len(timing.samples["candidate"]),
                "within_1_percent": abs(timing.speedup - 1) <= 0.01,
                "covers_1": timing.interval[0] <= 1 <= timing.interval[1],
                "raw": timing.samples,
            }
        )
    return rows


def apart(evaluator: Evaluator, count: int) -> list[dict[str, object]]:
    """Measures pairs of candidates whose work differs by 3 %."""
    rows = []
    for i in range(count):
        n, rounds = 1 << (18 + i % 6), 2000
        task = Task(task_id=f"apart-{i}", source=TASK.format(n=n, repeats=1))
        slow_rounds = round(rounds * 1.03)
        pair = [
            evaluator.evaluate(task, candidate(APART.format(rounds=r, stamp=time.time_ns())))
            for r in (rounds, slow_rounds)
        ]
        if any(r.timing is None for r in pair):
            rows.append({"n": n, "verdicts": [r.verdict for r in pair], "reasons": [r.reason for r in pair]})
            continue
        fast, slow = (r.timing.samples["candidate"] for r in pair if r.timing)
        ratio, low, high = ratio_interval(slow, fast)
        rows.append({"n": n, "ratio": ratio, "interval": [low, high], "told_apart": low > 1.0, "raw": [fast, slow]})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--pairs", type=int, default=20)
    args = parser.parse_args()
    with Evaluator(EvalOptions(backend="gpu", trials=1, timing_seconds=1.0)) as evaluator:
        first, second = same(evaluator, args.count), apart(evaluator, args.pairs)
    totals = {
        "same": len(first),
        "within_1_percent": sum(bool(r.get("within_1_percent")) for r in first),
        "interval_covers_1": sum(bool(r.get("covers_1")) for r in first),
        "pairs_3_percent_apart": len(second),
        "told_apart": sum(bool(r.get("told_apart")) for r in second),
    }
    report = {
        "benchmark": "gpu_precision",
        "date": datetime.date.today().isoformat(),
        "totals": totals,
        "same": first,
        "apart": second,
    }
    if args.json:
        write_text(args.json, json.dumps(report) + "\n")
    for row in first + second:
        print({k: v for k, v in row.items() if k != "raw"})
    print(json.dumps(totals))
    return 0


if __name__ == "__main__":
    sys.exit(main())
