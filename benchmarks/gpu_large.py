"""Judges candidates on tasks of official magnitudes (up to 8 GB of inputs, 4 GB of weights) on one GPU.

    python benchmarks/gpu_large.py [--jobs 8] [--leave-gb 80] [--only WORD...] [--json FILE]

Each task has a right candidate, a wrong one (some elements are 1 % too large) and a slow one (one thread a row).
`--leave-gb` holds the rest of a larger card's memory in another process, as if the card were smaller. The last line has
the verdicts, the failures of ours (`unsupported` and `harness_error`), and evaluations a minute. Exit status 1 if a
verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

Row = dict[str, Any]
TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F
{sizes}
class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {setup}
    def forward(self, x):
        {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return [{init}]
"""
CANDIDATE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
typedef long long ll;
#define FACTOR {factor}
{kernel}
torch::Tensor run(torch::Tensor x{more}) {{
  {host}
}}
"""
module = load_inline("large_{name}", "torch::Tensor run(torch::Tensor x{more});", source, ["run"])
class ModelNew(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {setup}
    def forward(self, x):
        return module.run(x{given})
'''
ROWS = """
__device__ float all_of(float v, bool largest) {
  __shared__ float part[32];
  for (int d = 16; d; d /= 2) { float o = __shfl_xor_sync(~0u, v, d); v = largest ? fmaxf(v, o) : v + o; }
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = part[0];
  for (int i = 1; i < blockDim.x / 32; ++i) v = largest ? fmaxf(v, part[i]) : v + part[i];
  return v;
}
"""


@dataclass(frozen=True)
class Large:
    """One task, with a fast and a slow kernel. `FACTOR` in them is 1 or wrong by 1 %."""

    name: str
    sizes: str
    inputs: str
    body: str
    kernel: str
    host: str
    slow_kernel: str
    slow_host: str
    init: str = ""
    parameters: str = ""
    setup: str = "pass"
    more: str = ""
    given: str = ""

    def task(self) -> Task:
        text = TASK.format(**{k: getattr(self, k) for k in ("sizes", "parameters", "setup", "body", "inputs", "init")})
        return Task(task_id=f"large-{self.name}", source=text, policy="from_scratch")

    def candidate(self, kind: str) -> Candidate:
        slow = kind == "slow"
        text = CANDIDATE.format(
            factor="1.01f" if kind == "wrong" else "1.f",
            kernel=self.slow_kernel if slow else self.kernel,
            host=self.slow_host if slow else self.host,
            more=self.more,
            name=f"{self.name}_{kind}".replace("-", "_"),
            parameters=self.parameters,
            setup=self.setup,
            given=self.given,
        )
        text += f"# {time.time_ns()}\n"
        return Candidate(sources=(SourceFile(path="c.py", content=text),), language="cuda")


_FLAT = "auto y = torch::empty_like(x); ll n = x.numel(); {launch}<<<{grid}, 256>>>(x.data_ptr<float>(), "
_FLAT += "y.data_ptr<float>(), n); return y;"
_BY_ROW = "auto y = torch::empty_like(x); int c = x.size(-1); ll r = x.numel() / c; {launch}<<<{grid}, 256>>>"
_BY_ROW += "(x.data_ptr<float>(), y.data_ptr<float>(), r, c); return y;"
_ONE_A_ROW = "(r + 255) / 256"


def flat(name: str, sizes: str, shape: str, body: str, expression: str) -> Large:
    """Returns an elementwise task; `expression` is C++ of `v`."""
    kernel = f"""__global__ void fast(const float4* x, float4* y, ll n) {{
  ll i = blockIdx.x * 256LL + threadIdx.x;
  if (i * 4 + 3 >= n) {{
    for (ll k = i * 4; k < n; ++k) {{ float v = ((const float*)x)[k]; ((float*)y)[k] = FACTOR * ({expression}); }}
  }} else {{
    float4 q = x[i];
    float* e = &q.x;
    for (int k = 0; k < 4; ++k) {{ float v = e[k]; e[k] = FACTOR * ({expression}); }}
    y[i] = q;
  }}
}}"""
    slow = f"""__global__ void slow(const float* x, float* y, ll n) {{
  ll stride = gridDim.x * 256LL, each = (n + stride - 1) / stride, i = (blockIdx.x * 256LL + threadIdx.x) * each;
  for (ll k = i; k < i + each && k < n; ++k) {{ float v = x[k]; y[k] = {expression}; }}
}}"""
    host = "auto y = torch::empty_like(x); ll n = x.numel(); fast<<<(n / 4 + 256) / 256, 256>>>"
    host += "((const float4*)x.data_ptr<float>(), (float4*)y.data_ptr<float>(), n); return y;"
    return Large(name, sizes, f"torch.rand({shape})", body, kernel, host, slow, _FLAT.format(launch="slow", grid="264"))


def by_row(name: str, sizes: str, shape: str, body: str, steps: str, slow_steps: str) -> Large:
    """Returns a task over rows; the steps are C++ of a row `x` of `c` values, for a block and for one thread."""
    head = "const float* x, float* y, ll r, int c) {"
    kernel = f"{ROWS}__global__ void fast({head} x += blockIdx.x * (ll)c; y += blockIdx.x * (ll)c; {steps} }}"
    slow = f"__global__ void slow({head} ll i = blockIdx.x * 256LL + threadIdx.x; if (i >= r) return;"
    slow += f" x += i * c; y += i * c; {slow_steps} }}"
    host, slow_host = _BY_ROW.format(launch="fast", grid="r"), _BY_ROW.format(launch="slow", grid=_ONE_A_ROW)
    return Large(name, sizes, f"torch.rand({shape})", body, kernel, host, slow, slow_host)


_SOFTMAX = """float m = -INFINITY, s = 0.f;
  for (int k = threadIdx.x; k < c; k += 256) m = fmaxf(m, x[k]);
  m = all_of(m, true);
  for (int k = threadIdx.x; k < c; k += 256) s += expf(x[k] - m);
  s = all_of(s, false);
  for (int k = threadIdx.x; k < c; k += 256) y[k] = (k == c - 1 ? FACTOR : 1.f) * expf(x[k] - m) / s;"""
_SOFTMAX_SLOW = """float m = -INFINITY, s = 0.f;
  for (int k = 0; k < c; ++k) m = fmaxf(m, x[k]);
  for (int k = 0; k < c; ++k) s += expf(x[k] - m);
  for (int k = 0; k < c; ++k) y[k] = expf(x[k] - m) / s;"""
_NORM = """float s = 0.f;
  for (int k = threadIdx.x; k < c; k += 256) s += x[k] * x[k];
  s = rsqrtf(all_of(s, false) / c + 1e-5f);
  for (int k = threadIdx.x; k < c; k += 256) y[k] = (k == c - 1 ? FACTOR : 1.f) * x[k] * s;"""
_NORM_SLOW = """float s = 0.f;
  for (int k = 0; k < c; ++k) s += x[k] * x[k];
  s = rsqrtf(s / c + 1e-5f);
  for (int k = 0; k < c; ++k) y[k] = x[k] * s;"""
_LINEAR_HOST = "auto y = torch::empty({{x.size(0), w.size(0)}}, x.options()); int k = w.size(1), n = w.size(0); "
_LINEAR_HOST += "{launch}; return y;"
_LINEAR = """
__global__ void fast(const float* x, const float* w, float* y, int m, int n, int k) {
  int o = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (o >= n) return;
  for (int i = 0; i < m; i += 4) {
    float s[4] = {0.f, 0.f, 0.f, 0.f};
    for (int j = lane; j < k; j += 32) {
      float v = w[(ll)o * k + j];
      for (int q = 0; q < 4 && i + q < m; ++q) s[q] += v * x[(ll)(i + q) * k + j];
    }
    for (int q = 0; q < 4 && i + q < m; ++q) {
      for (int d = 16; d; d /= 2) s[q] += __shfl_xor_sync(~0u, s[q], d);
      if (!lane) y[(ll)(i + q) * n + o] = (o == n - 1 ? FACTOR : 1.f) * s[q];
    }
  }
}"""
_LINEAR_SLOW = """
__global__ void slow(const float* x, const float* w, float* y, int m, int n, int k) {
  int o = blockIdx.x * 256 + threadIdx.x;
  if (o >= n) return;
  for (int i = 0; i < m; ++i) {
    float s = 0.f;
    for (int j = 0; j < k; ++j) s += w[(ll)o * k + j] * x[(ll)i * k + j];
    y[(ll)i * n + o] = s;
  }
}"""
_POINTERS = "(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), x.size(0), n, k)"
CASES = (
    flat("relu", "rows, cols = 4096, 393216", "rows, cols", "return torch.relu(x - 0.5)", "fmaxf(v - 0.5f, 0.f)"),
    flat("gelu", "n = 2_000_000_000", "n", "return F.gelu(x)", "0.5f * v * (1.f + erff(v * 0.70710678f))"),
    by_row(
        "softmax",
        "rows, cols = 4096, 393216",
        "rows, cols",
        "return torch.softmax(x, 1)",
        _SOFTMAX,
        _SOFTMAX_SLOW,
    ),
    by_row(
        "rms-norm",
        "b, t, d = 256, 2048, 2048",
        "b, t, d",
        "return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)",
        _NORM,
        _NORM_SLOW,
    ),
    Large(
        "linear",
        "m, n, k = 16, 32768, 32768",
        "torch.rand(m, k)",
        "return F.linear(x, self.weight)",
        _LINEAR,
        _LINEAR_HOST.format(launch="fast<<<(n + 7) / 8, 256>>>" + _POINTERS),
        _LINEAR_SLOW,
        _LINEAR_HOST.format(launch="slow<<<(n + 255) / 256, 256>>>" + _POINTERS),
        init="n, k",
        parameters=", n, k",
        setup="self.weight = nn.Parameter(torch.randn(n, k) * 0.01)",
        more=", torch::Tensor w",
        given=", self.weight",
    ),
)


def ballast(leave: float) -> subprocess.Popen[str] | None:
    """Starts a process that holds all but this many GB of the card; None if it has no more."""
    import torch

    free = torch.cuda.mem_get_info()[0] / 2**30
    if free <= leave:
        return None
    code = f"import torch; x = torch.empty(int({free - leave} * 2**30), dtype=torch.uint8, device='cuda'); "
    code += "print('held', flush=True); input()"
    held = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert held.stdout is not None and held.stdout.readline().strip() == "held"
    return held


def row(large: Large, kind: str, result: Evaluation | Exception, seconds: float) -> Row:
    """Returns one row of the report."""
    expected = "wrong" if kind == "wrong" else "correct"
    if not isinstance(result, Evaluation):
        return {"name": large.name, "kind": kind, "verdict": "error", "reason": str(result), "as_expected": False}
    return {
        "name": large.name,
        "kind": kind,
        "verdict": result.verdict,
        "as_expected": result.verdict == expected,
        "reason": result.reason[:300],
        "road": result.environment.road,
        "replayed": result.environment.replayed,
        "seconds": round(result.seconds.total, 2),
        "stages": result.environment.gpu_seconds,
        "at_s": round(seconds, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--leave-gb", type=float, default=80.0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--kinds", nargs="*", default=["right", "wrong", "slow"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cases = [c for c in CASES if not args.only or any(w in c.name for w in args.only)]
    held = ballast(args.leave_gb)
    rows: list[Row] = []
    wanted = [(case, kind) for case in cases for kind in args.kinds]
    with Evaluator(EvalOptions(backend="gpu")) as evaluator:
        started = time.perf_counter()
        pairs = [(case.task(), case.candidate(kind)) for case, kind in wanted]
        for (case, kind), result in zip(wanted, evaluate_many(pairs, pool=evaluator, jobs=args.jobs), strict=True):
            rows.append(row(case, kind, result, time.perf_counter() - started))
            print(json.dumps(rows[-1]), flush=True)
        seconds = time.perf_counter() - started
    final = {
        "benchmark": "gpu_large",
        "leave_gb": args.leave_gb,
        "verdicts": dict(collections.Counter(r["verdict"] for r in rows)),
        "ours": [r["name"] for r in rows if r["verdict"] in ("unsupported", "harness_error", "error")],
        "not_as_expected": [(r["name"], r["kind"], r["verdict"]) for r in rows if not r["as_expected"]],
        "a_minute": round(60 * len(rows) / seconds, 1),
        "wall_s": round(seconds, 1),
    }
    if args.json:
        args.json.write_text(json.dumps({**final, "rows": rows}, indent=1) + "\n")
    if held is not None:
        held.communicate("\n")
    print(json.dumps(final))
    return 1 if final["not_as_expected"] else 0


if __name__ == "__main__":
    sys.exit(main())
