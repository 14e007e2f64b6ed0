"""Judges and times a few candidates of our own on the GPU, to test that judging works on this machine.

Run on a machine with a GPU: python benchmarks/gpu_smoke.py [--sandbox auto|none] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Candidate, SourceFile, Task

RELU_TASK = """
import torch, torch.nn as nn
rows, cols = {rows}, {cols}
class Model(nn.Module):
    def forward(self, x):
        return {expression}
def get_inputs():
    return [torch.rand(rows, cols) * 2 - 1]
def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
cuda_source = r'''
__global__ void elementwise(const float4* x, float4* y, long n) {{
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) {{ float4 v = x[i]; {body} y[i] = v; }}
}}
torch::Tensor forward(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  long n = x.numel() / 4;
  elementwise<<<(n + 255) / 256, 256>>>((const float4*)x.data_ptr<float>(), (float4*)y.data_ptr<float>(), n);
  return y;
}}
'''
ext = load_inline(name="{name}", cpp_sources="torch::Tensor forward(torch::Tensor x);", cuda_sources=cuda_source,
                  functions=["forward"])
class ModelNew(nn.Module):
    def forward(self, x):
        return ext.forward(x)
"""
RELU = " ".join(f"v.{c} = fmaxf(v.{c}, 0.f);" for c in "xyzw")
WRONG = " ".join(f"v.{c} = fmaxf(v.{c}, 0.0001f);" for c in "xyzw")
FAULT = RELU + " if (i == 5) ((float4*)x)[1ll << 40] = v;"
ENDLESS = "while (*(volatile const float*)x < 1e30f) {}" + RELU
TORCH_ONLY = """
import torch, torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
TRITON = """
import torch, torch.nn as nn, triton, triton.language as tl
@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


def cases() -> list[tuple[str, str, Task, Candidate]]:
    """Returns name, expected verdict, task and candidate of each case."""
    small = {"rows": 1024, "cols": 1024}
    large = {"rows": 4096, "cols": 393216}
    made = []

    def add(name: str, verdict: str, sizes: dict[str, int], text: str, language: str = "cuda") -> None:
        task = Task(task_id=name, source=RELU_TASK.format(expression="torch.relu(x)", **sizes))
        file = SourceFile(path="candidate.py", content=text)
        made.append((name, verdict, task, Candidate(sources=(file,), language=language)))

    add("relu-small", "correct", small, CANDIDATE.format(body=RELU, name="relu_small"))
    add("relu-large", "correct", large, CANDIDATE.format(body=RELU, name="relu_large"))
    add("wrong", "wrong", small, CANDIDATE.format(body=WRONG, name="wrong"))
    add("illegal-address", "runtime_error", small, CANDIDATE.format(body=FAULT, name="fault"))
    add("after-a-fault", "correct", small, CANDIDATE.format(body=RELU, name="relu_after"))
    add("torch-only", "rejected", small, TORCH_ONLY)
    add("triton", "correct", small, TRITON, "triton")
    add("endless", "timeout", small, CANDIDATE.format(body=ENDLESS, name="endless"))
    add("after-a-hang", "correct", small, CANDIDATE.format(body=RELU, name="relu_again"))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    rows, bad = [], 0
    with Evaluator(EvalOptions(backend="gpu", sandbox=args.sandbox, timeout=15)) as evaluator:
        for name, expected, task, candidate in cases():
            if args.only and args.only not in name:
                continue
            started = time.perf_counter()
            try:
                result = evaluator.evaluate(task, candidate)
            except Exception:
                traceback.print_exc()
                bad += 1
                continue
            wall = time.perf_counter() - started
            timing = result.timing
            told = timing and f"{timing.candidate_ms:.4f} ms, eager {timing.eager_ms:.4f} ms, x{timing.speedup:.3f}"
            told = told and f"{told} {tuple(round(x, 3) for x in timing.interval)} n={len(timing.samples['candidate'])}"
            print(f"{name:16} {result.verdict:14} {wall:6.2f} s  {result.seconds}  {told}  {result.reason[:200]}")
            print(
                "    ", result.sandbox, result.environment, [f"{f.rule}: {f.evidence[:120]}" for f in result.findings]
            )
            if result.verdict != expected:
                bad += 1
                print("     UNEXPECTED", result.log[-1500:])
            rows.append({"wall_s": wall, "expected": expected, **result.model_dump(mode="json")})
            sys.stdout.flush()
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
