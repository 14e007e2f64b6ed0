"""Measures how many CUDA candidates a second two cores judge without a GPU, and the seconds of each stage.

    python benchmarks/cpu_eval.py [--count 60] [--jobs 2] [--trials 3] [--json FILE]

Every candidate is distinct text (a different constant in its kernel), so no build comes from the cache. The worker
process is warm and each task's sizes are already derived, as in a training run. The cost of a candidate that does not
compile is measured too. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Candidate, SourceFile, Task

TASK = """
import torch
import torch.nn as nn

rows = 64
cols = 512

class Model(nn.Module):
    def forward(self, x):
        return {expression}

def get_inputs():
    return [torch.randn(rows, cols)]

def get_init_inputs():
    return []
"""

CANDIDATE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>
{kernel}
torch::Tensor forward(torch::Tensor x) {{
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    auto input = x.contiguous();
    auto out = torch::empty_like(input);
    const int rows = input.size(0), cols = input.size(1);
    {launch}
    return out;
}}
"""
extension = load_inline(name="bench_{number}", cpp_sources="torch::Tensor forward(torch::Tensor x);",
                        cuda_sources=cuda_source, functions=["forward"])

class ModelNew(nn.Module):
    def forward(self, x):
        return extension.forward(x)
'''

ELEMENTWISE = """
__global__ void chain(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{ float v = x[i]; y[i] = {body} + 0.0f * {number}.0f; }}
}}
"""
ELEMENTWISE_LAUNCH = (
    "int n = rows * cols; chain<<<(n + 255) / 256, 256>>>(input.data_ptr<float>(), out.data_ptr<float>(), n);"
)

ROWWISE = """
__inline__ __device__ float warp_sum(float v) {{
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
    return v;
}}
__inline__ __device__ float warp_max(float v) {{
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o));
    return v;
}}
__global__ void rowwise(const float* x, float* y, int cols) {{
    __shared__ float part[32];
    const float* row = x + blockIdx.x * cols;
    float* out = y + blockIdx.x * cols;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    {body}
    if (row == nullptr) out[0] = {number}.0f;
}}
"""
ROWWISE_LAUNCH = "rowwise<<<rows, 256>>>(input.data_ptr<float>(), out.data_ptr<float>(), cols);"
REDUCE = """
    {name} = warp_{op}({name});
    if (lane == 0) part[warp] = {name};
    __syncthreads();
    {name} = warp_{op}(lane < 8 ? part[lane] : {zero});
    __syncthreads();
"""
SOFTMAX = (
    "float m = -INFINITY; for (int i = threadIdx.x; i < cols; i += 256) m = fmaxf(m, row[i]);"
    + REDUCE.format(name="m", op="max", zero="-INFINITY")
    + "float s = 0; for (int i = threadIdx.x; i < cols; i += 256) s += expf(row[i] - m);"
    + REDUCE.format(name="s", op="sum", zero="0.0f")
    + "for (int i = threadIdx.x; i < cols; i += 256) out[i] = expf(row[i] - m) / s;"
)
RMS = (
    "float s = 0; for (int i = threadIdx.x; i < cols; i += 256) s += row[i] * row[i];"
    + REDUCE.format(name="s", op="sum", zero="0.0f")
    + "float r = rsqrtf(s / cols + 1e-5f); for (int i = threadIdx.x; i < cols; i += 256) out[i] = row[i] * r;"
)

FAMILIES = [
    ("torch.relu(x) * 2 + 1", ELEMENTWISE, "fmaxf(v, 0.0f) * 2.0f + 1.0f", ELEMENTWISE_LAUNCH),
    ("x * torch.sigmoid(x)", ELEMENTWISE, "v / (1.0f + expf(-v))", ELEMENTWISE_LAUNCH),
    ("torch.softmax(x, dim=1)", ROWWISE, SOFTMAX, ROWWISE_LAUNCH),
    ("x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5)", ROWWISE, RMS, ROWWISE_LAUNCH),
]


def pairs(count: int, broken: str = "") -> list[tuple[Task, Candidate]]:
    """Returns distinct candidates of the families in turn; `broken` misspells a name in `device` or `host` code."""
    made = []
    start = int(time.time()) % 1_000_000 * 1000
    for i in range(count):
        expression, kernel, body, launch = FAMILIES[i % len(FAMILIES)]
        number = start + i
        text = kernel.format(body=body, number=number)
        if broken == "device":
            text = text.replace("{", "{ undeclared;", 1)  # in the kernel's body, which host compilers do not read
        source = CANDIDATE.format(kernel=text, launch=launch, number=number)
        if broken == "host":
            source = source.replace("torch::empty_like(input)", "torch::empty_like(imput)")
        task = Task(task_id=f"bench-{i % len(FAMILIES)}", source=TASK.format(expression=expression))
        made.append((task, Candidate(sources=(SourceFile(path="candidate.py", content=source),), language="cuda")))
    return made


def judged(work: list[tuple[Task, Candidate]], evaluator: Evaluator, jobs: int, expected: str) -> dict[str, object]:
    started = time.perf_counter()
    results = list(evaluate_many(work, pool=evaluator, jobs=jobs))
    wall = time.perf_counter() - started
    unexpected = [r for r in results if isinstance(r, Exception) or r.verdict != expected]
    for result in unexpected[:3]:
        print(result if isinstance(result, Exception) else f"{result.verdict}: {result.reason}", file=sys.stderr)
    totals = [r.seconds.total for r in results if not isinstance(r, Exception)]
    builds = [r.seconds.build for r in results if not isinstance(r, Exception)]
    return {
        "candidates": len(work),
        "as_expected": len(work) - len(unexpected),
        "wall_s": round(wall, 3),
        "per_second": round(len(work) / wall, 3),
        "seconds_each": {
            "total_median": round(statistics.median(totals), 4),
            "build_median": round(statistics.median(builds), 4),
            "check_median": round(statistics.median([t - b for t, b in zip(totals, builds, strict=True)]), 4),
        },
        "samples_total_s": totals,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with Evaluator(EvalOptions(trials=args.trials)) as evaluator:
        warm = judged(pairs(2 * len(FAMILIES)), evaluator, args.jobs, "correct")
        good = judged(pairs(args.count), evaluator, args.jobs, "correct")
        device = judged(pairs(args.count // 2, "device"), evaluator, 1, "compile_error")
        host = judged(pairs(args.count // 2, "host"), evaluator, 1, "compile_error")
    report = {
        "benchmark": "cpu_eval",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "jobs": args.jobs,
        "trials": args.trials,
        "first_batch": warm,
        "correct": good,
        "device_error_one_job": device,
        "host_error_one_job": host,
    }
    text = json.dumps(report, indent=1)
    if args.json:
        args.json.write_text(text + "\n")
    print(text)
    return 0 if good["as_expected"] == args.count else 1


if __name__ == "__main__":
    sys.exit(main())
