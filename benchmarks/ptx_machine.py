"""Measures the functional machine's speed on one core, beside g++ -O2 loops and TRITON_INTERPRET=1.

    python benchmarks/ptx_machine.py [--rounds 3] [--skip interpreter,candidates] [--json FILE]

The speed is in thread instructions a second. Every kernel runs plain, with race detection, and watched (like the first
200 M thread instructions of a candidate). Its runs alternate with a g++ loop that computes the same. Times are CPU
seconds, the best of the rounds; the file has all samples. The interpreter computes the same at the same size; without
Triton it is left out with a note. `candidates` judges whole `load_inline` candidates with three trials, and ones that
do not compile, and sums the CPU seconds of all processes. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import functools
import importlib.util
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from cpu_eval import pairs

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.machine import Allocation, LaunchOptions, Program
from kernelwright.machine.nvrtc import compile_ptx

CUDA = r"""
__device__ __forceinline__ float warp_max(float v) {
  for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}
__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}
extern "C" __global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.f);
}
extern "C" __global__ void softmax(const float* x, float* y, int cols) {
  __shared__ float part[8];
  const float* row = x + (long)blockIdx.x * cols;
  float* out = y + (long)blockIdx.x * cols;
  int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  float m = -INFINITY, s = 0.f;
  for (int i = t; i < cols; i += 256) m = fmaxf(m, row[i]);
  m = warp_max(m);
  if (lane == 0) part[warp] = m;
  __syncthreads();
  m = warp_max(lane < 8 ? part[lane] : -INFINITY);
  __syncthreads();
  for (int i = t; i < cols; i += 256) s += __expf(row[i] - m);
  s = warp_sum(s);
  if (lane == 0) part[warp] = s;
  __syncthreads();
  s = warp_sum(lane < 8 ? part[lane] : 0.f);
  for (int i = t; i < cols; i += 256) out[i] = __expf(row[i] - m) / s;
}
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float as[32][32], bs[32][32];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
  float sum = 0.f;
  for (int k = 0; k < n; k += 32) {
    as[y][x] = a[row * n + k + x];
    bs[y][x] = b[(k + y) * n + col];
    __syncthreads();
    for (int i = 0; i < 32; i++) sum += as[y][i] * bs[i][x];
    __syncthreads();
  }
  c[row * n + col] = sum;
}
extern "C" __global__ void conv(const float* x, const float* w, float* y, int size) {
  int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y, out = size - 2;
  if (col >= out) return;
  float sum = 0.f;
  for (int c = 0; c < 16; c++)
    for (int i = 0; i < 3; i++)
      for (int j = 0; j < 3; j++) sum += x[(c * size + row + i) * size + col + j] * w[c * 9 + i * 3 + j];
  y[row * out + col] = sum;
}
"""

LOOPS = r"""
#include <math.h>
#include <stddef.h>
void relu(const float* x, float* y, long n) { for (long i = 0; i < n; i++) y[i] = x[i] > 0.f ? x[i] : 0.f; }
void softmax(const float* x, float* y, long rows, long cols) {
  for (long r = 0; r < rows; r++, x += cols, y += cols) {
    float m = -INFINITY, s = 0.f;
    for (long i = 0; i < cols; i++) m = x[i] > m ? x[i] : m;
    for (long i = 0; i < cols; i++) s += expf(x[i] - m);
    for (long i = 0; i < cols; i++) y[i] = expf(x[i] - m) / s;
  }
}
void matmul(const float* a, const float* b, float* c, long n) {
  for (long i = 0; i < n; i++) {
    for (long j = 0; j < n; j++) c[i * n + j] = 0.f;
    for (long k = 0; k < n; k++)
      for (long j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
  }
}
void conv(const float* x, const float* w, float* y, long size) {
  long out = size - 2;
  for (long r = 0; r < out; r++)
    for (long q = 0; q < out; q++) {
      float sum = 0.f;
      for (long c = 0; c < 16; c++)
        for (long i = 0; i < 3; i++)
          for (long j = 0; j < 3; j++) sum += x[(c * size + r + i) * size + q + j] * w[c * 9 + i * 3 + j];
      y[r * out + q] = sum;
    }
}
"""

INTERPRETER = """
import os, sys, time
os.environ["TRITON_INTERPRET"] = "1"
import torch, triton, triton.language as tl

@triton.jit
def relu(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.maximum(tl.load(x + i, i < n, 0.0), 0.0), i < n)

@triton.jit
def softmax(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + i, i < n, -float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + tl.program_id(0) * n + i, e / tl.sum(e, 0), i < n)

@triton.jit
def matmul(a, b, c, n, B: tl.constexpr):
    i, j = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    s = tl.zeros((B, B), tl.float32)
    for k in range(0, n, B):
        q = k + tl.arange(0, B)
        s += tl.dot(tl.load(a + i[:, None] * n + q[None, :]), tl.load(b + q[:, None] * n + j[None, :]))
    tl.store(c + i[:, None] * n + j[None, :], s)

name, size = sys.argv[1], int(sys.argv[2])
x = torch.randn(size) if name == "relu" else torch.randn(size, 1024 if name == "softmax" else size)
y, z = torch.empty_like(x), torch.randn_like(x)
def run():
    if name == "relu": relu[(triton.cdiv(size, 1024),)](x, y, size, B=1024)
    if name == "softmax": softmax[(size,)](x, y, 1024, B=1024)
    if name == "matmul": matmul[(size // 32, size // 32)](x, z, y, size, B=32)
run()
began = time.process_time()
run()
print(time.process_time() - began)
"""


@dataclass(frozen=True)
class Case:
    """One kernel at one size: arguments are arrays, the last of them the output, and 32-bit integers."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arrays: tuple[np.ndarray, ...]
    device: tuple[int, ...]
    host: tuple[int, ...]
    interpreter: int = 0
    """The size for the interpreter; 0: not compared."""


def cases(rng: np.random.Generator) -> list[Case]:
    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    n, rows, cols, m, s = 1 << 22, 1024, 1024, 512, 258
    return [
        Case("relu", (n // 256, 1, 1), (256, 1, 1), (floats(n), floats(n)), (n,), (n,), n),
        Case(
            "softmax", (rows, 1, 1), (256, 1, 1), (floats(rows, cols), floats(rows, cols)), (cols,), (rows, cols), rows
        ),
        Case("matmul", (m // 32, m // 32, 1), (32, 32, 1), tuple(floats(m, m) for _ in range(3)), (m,), (m,), m),
        Case("conv", (2, 256, 1), (128, 1, 1), (floats(16, s, s), floats(16, 9), floats(256, 256)), (s,), (s,)),
    ]


def cpu_seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


MODES = {"plain": (False, False), "races": (True, False), "races_and_watched": (True, True)}


def machine_run(program: Program, case: Case, races: bool, watch: bool) -> int:
    """Runs one launch and returns its thread instructions."""
    allocations = [Allocation(a.ctypes.data, a.nbytes, f"arg{i}") for i, a in enumerate(case.arrays)]
    args = [struct.pack("<Q", a.ctypes.data) for a in case.arrays] + [struct.pack("<i", n) for n in case.device]
    options = LaunchOptions(detect_races=races, watch=watch)
    report = program.launch(case.name, case.grid, case.block, args, 0, allocations, options)
    if report.warnings:
        raise SystemExit(f"{case.name}: {report.warnings[0].message}")
    return report.instructions


def loops() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp())
    (folder / "loops.c").write_text(LOOPS)
    command = [
        "g++",
        "-x",
        "c",
        "-O2",
        "-shared",
        "-fPIC",
        str(folder / "loops.c"),
        "-o",
        str(folder / "loops.so"),
        "-lm",
    ]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "loops.so"))


def loop_run(library: ctypes.CDLL, case: Case) -> None:
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in case.arrays]
    getattr(library, case.name)(*pointers, *(ctypes.c_long(n) for n in case.host))


def interpreted(case: Case) -> float | str:
    """Returns CPU seconds of one interpreted launch, in a process of its own."""
    if not importlib.util.find_spec("triton"):
        return "Triton is not installed"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "interpreted.py"
        script.write_text(INTERPRETER)
        command = [sys.executable, str(script), case.name, str(case.interpreter)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return float(done.stdout) if done.returncode == 0 else done.stderr.strip().splitlines()[-1][:200]


def measured(case: Case, program: Program, library: ctypes.CDLL, rounds: int) -> dict[str, Any]:
    expected = case.arrays[-1]
    loop_run(library, case)
    values = expected.copy()
    instructions = machine_run(program, case, True, True)
    error = float(np.abs(case.arrays[-1] - values).max())
    samples: dict[str, list[float]] = {name: [] for name in (*MODES, "loop")}
    for _ in range(rounds):
        for name, how in MODES.items():
            samples[name].append(cpu_seconds(functools.partial(machine_run, program, case, *how)))
        samples["loop"].append(cpu_seconds(lambda: loop_run(library, case)))
    best = {name: min(times) for name, times in samples.items()}
    return {
        "thread_instructions": instructions,
        "largest_difference_to_the_loop": error,
        "giga_instructions_per_second": {k: round(instructions / best[k] / 1e9, 3) for k in MODES},
        "seconds": {k: round(v, 5) for k, v in best.items()},
        "times_the_loop": {k: round(best[k] / best["loop"], 2) for k in MODES},
        "samples_s": samples,
    }


def family_seconds() -> float:
    """Returns CPU seconds of this process, its children, and their children that have ended."""
    total = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        times = child.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


def candidate_cost(broken: str, count: int) -> dict[str, Any]:
    """Returns CPU seconds a candidate, of all processes together, without the build cache.

    The worker has judged a dozen before, so that its compilers have read their headers, as in all but the first second
    of a run.
    """
    with Evaluator(EvalOptions(backend="cpu", trials=3)) as evaluator:
        for task, candidate in pairs(12, broken):
            evaluator.evaluate(task, candidate)
        time.sleep(1.1)  # `pairs` makes distinct text by the second
        work = pairs(count, broken)
        began = family_seconds()
        verdicts = [evaluator.evaluate(task, candidate).verdict for task, candidate in work]
        spent = family_seconds() - began
    wanted = "compile_error" if broken else "correct"
    return {"candidates": count, "as_expected": verdicts.count(wanted), "cpu_seconds_each": round(spent / count, 4)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip", default="", help="skip interpreter or candidates, or both, separated by commas")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    built = compile_ptx(CUDA)
    if not built.ok:
        raise SystemExit(built.log)
    program, library = Program.load(built.ptx), loops()
    kernels = {}
    for case in cases(np.random.default_rng(0)):
        kernels[case.name] = measured(case, program, library, args.rounds)
        print(case.name, kernels[case.name]["giga_instructions_per_second"], file=sys.stderr, flush=True)
        if case.interpreter and "interpreter" not in args.skip:
            took = interpreted(case)
            kernels[case.name]["triton_interpreter_s"] = took
            if isinstance(took, float):
                ratio = took / kernels[case.name]["seconds"]["races_and_watched"]
                kernels[case.name]["times_faster_than_the_interpreter"] = round(ratio, 1)
    report: dict[str, Any] = {
        "benchmark": "ptx_machine",
        "date": datetime.date.today().isoformat(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernels": kernels,
        "median_giga_instructions_per_second": statistics.median(
            k["giga_instructions_per_second"]["plain"] for k in kernels.values()
        ),
    }
    if "candidates" not in args.skip:
        report["candidates"] = {kind or "correct": candidate_cost(kind, 20) for kind in ("", "device", "host")}
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({k: v for k, v in report.items() if k != "kernels"}))
    for name, kernel in kernels.items():
        print(json.dumps({name: {k: v for k, v in kernel.items() if k != "samples_s"}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
