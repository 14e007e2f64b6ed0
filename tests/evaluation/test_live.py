"""Candidates whose programs depend on values, judged on a GPU by executing their records as they arrive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.backends.triton import triton_support
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.evaluation.program.live_repeat import allocates
from kernelwright.machine import nvrtc
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

TASK = """
import torch
import torch.nn as nn
rows, cols = 24, 40
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        return torch.relu(x) * self.scale
def get_inputs():
    return [torch.randn(rows, cols)]
def get_init_inputs():
    return [cols]
"""
CANDIDATE = '''
import torch
import torch.nn as nn
from kernelwright.cuda import Module
kernels = Module(r"""
extern "C" __global__ void scaled_relu(const float* x, const float* s, float* y, int rows, int cols) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * cols) y[i] = {wrong} fmaxf(x[i], 0.f) * s[i % cols];
}}
extern "C" __global__ void part(const float* x, const float* s, float* y, int rows, int cols, int first) {{
  int i = first + blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * cols) y[i] = fmaxf(x[i], 0.f) * s[i % cols];
}}
extern "C" __global__ void counted(const float* x, int* n, int count) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && x[i] > 0.f) atomicAdd(n, 1);
}}
extern "C" __global__ void in_turn(const float* x, const float* s, float* y, int rows, int cols, int* n, int calls) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * cols && *n + 1 == calls) y[i] = fmaxf(x[i], 0.f) * s[i % cols];
}}
extern "C" __global__ void next_turn(int* n) {{ *n += 1; }}
extern "C" __global__ void touched(float* y) {{ }}
""")
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.kept, self.calls = None, 0
    def launched(self, name, x, y, rows, *more):
        cols = self.scale.numel()
        getattr(kernels, name)[(rows * cols + 127) // 128, 128](x, self.scale, y, rows, cols, *more)
        return y
    def forward(self, x):
        rows = x.shape[0]
        {body}
'''
PLAIN = "return self.launched('scaled_relu', x, torch.empty_like(x), rows)"


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    options = EvalOptions(timing_seconds=0.05, trials=2, timeout=20, live=True)
    with Evaluator(options, device="cpu", pool=pool) as made:
        yield made


def candidate(body: str, wrong: str = "") -> Candidate:
    text = CANDIDATE.format(body=body.replace("\n", "\n        "), wrong=wrong)
    return Candidate(sources=(SourceFile(path="c.py", content=text),), language="cuda")


def judged(evaluator: Evaluator, body: str, wrong: str = "", source: str = TASK) -> Evaluation:
    task = Task(task_id="scaled-relu", source=source, policy="from_scratch")
    return evaluator.evaluate(task, candidate(body, wrong))


def told(found: Evaluation) -> tuple[str, str, str, str]:
    return found.verdict, found.environment.road, found.environment.replayed, found.reason


LIVE = {
    "a branch by a value": "if x[0].cpu()[0] > 1e9: return x\n" + PLAIN,
    "a value by item": "n = x[0, 0].item()\nassert n == n\n" + PLAIN,
    "a grid by a value": (
        "n = torch.zeros(1, dtype=torch.int32, device=x.device)\n"
        "kernels.counted[(x.numel() + 127) // 128, 128](x, n, x.numel())\n"
        "y = torch.zeros_like(x)\nleft = int(n.item())\nassert 0 <= left <= x.numel()\n"
        "kernels.scaled_relu[max((x.numel() + 127) // 128, left // 128), 128](x, self.scale, y, rows, x.shape[1])\n"
        "return y"
    ),
    "a loop": (
        "y = torch.empty_like(x)\nfirst = torch.zeros(1, dtype=torch.int32, device=x.device)\n"
        "while first.item() < x.numel():\n"
        "    kernels.part[1, 128](x, self.scale, y, rows, x.shape[1], int(first.item()))\n"
        "    first += 128\n"
        "return y"
    ),
    "other launches from call to call": "self.calls += 1\ny = torch.empty_like(x)\n"
    "for _ in range(self.calls): self.launched('scaled_relu', x, y, rows)\nreturn y",
}


@pytest.mark.parametrize("name", LIVE)
def test_a_program_that_depends_on_values_goes_live(evaluator: Evaluator, name: str) -> None:
    found = judged(evaluator, LIVE[name])
    assert told(found)[:2] == ("correct", "program") and "live: " in found.environment.replayed, told(found)
    assert found.timing is not None and found.timing.speedup and found.environment.issue_ms is not None
    assert found.launches


def test_the_host_may_return_a_value_that_kernels_stored(evaluator: Evaluator) -> None:
    body = """
n = torch.zeros(3, dtype=torch.int32, device=x.device)
kernels.counted[(x.numel() + 127) // 128, 128](x, n[2:], x.numel())
return torch.tensor(n[2].item(), device=x.device)"""
    found = judged(evaluator, body, source=TASK.replace("torch.relu(x) * self.scale", "(x > 0).sum()"))
    assert told(found)[:2] == ("correct", "program") and "live: " in found.environment.replayed, told(found)


def test_time_of_the_host_between_records_is_not_the_candidates(evaluator: Evaluator) -> None:
    found = judged(evaluator, "import time\nx[0, 0].item()\ntime.sleep(0.3)\nx[0, 0].item()\n" + PLAIN)
    assert told(found)[:2] == ("correct", "program"), told(found)
    assert found.timing is not None and found.environment.issue_ms is not None
    assert found.environment.issue_ms >= 300 > found.timing.candidate_ms


def test_a_call_is_timed_on_the_memory_before_it(evaluator: Evaluator) -> None:
    """The kernel is right only if its counter is what the host has counted."""
    body = """
if self.kept is None: self.kept = torch.zeros(1, dtype=torch.int32, device=x.device)
assert x[0, 0].item() < 1e9
self.calls += 1
y = torch.empty_like(x)
kernels.in_turn[(x.numel() + 127) // 128, 128](x, self.scale, y, rows, x.shape[1], self.kept, self.calls)
kernels.next_turn[1, 1](self.kept)
return y"""
    found = judged(evaluator, body)
    assert told(found)[:2] == ("correct", "program"), told(found)
    assert judged(evaluator, body.replace("self.calls += 1", "self.calls += self.calls < 5")).verdict == "wrong"


def test_the_rules_hold_in_timed_calls(evaluator: Evaluator) -> None:
    """The host computes in some of the timed calls only; each checked call is honest."""
    body = """
self.calls += 1
assert x[0, 0].item() < 1e9
if 5 <= self.calls <= 6:
    y = (torch.relu(x.cpu()) * self.scale.cpu()).to(x.device)
    kernels.touched[1, 1](y)
    return y
"""
    found = judged(evaluator, body + PLAIN)
    assert found.verdict == "rejected" and "in a timed call" in found.reason, told(found)


HEAPS = {
    "int* p = (int*)malloc(64); *p = *x; x[1] = *p; free(p);": True,
    "int* p = new int[4]; *p = *x; x[1] = *p; delete[] p;": True,
    'x[0] += 1; /* malloc */ printf("malloc %d", x[0]);': False,
}


@pytest.mark.parametrize("body", HEAPS)
def test_device_code_with_a_heap_is_known(body: str) -> None:
    built = nvrtc.compile_ptx(f'extern "C" __global__ void k(int* x) {{ {body} }}')
    assert built.ptx and allocates(built.ptx) == HEAPS[body], built.log


CHEATS = {
    "all values on the host": (
        "y = (torch.relu(x.cpu()) * self.scale.cpu()).to(x.device)\nkernels.touched[1, 1](y)\nreturn y",
        "rejected",
    ),
    "host values in large steps": (
        "h = x.cpu() if x[0, 0].item() < 1e9 else None\ny = torch.empty_like(x)\n"
        "y.copy_(torch.relu(h) * self.scale.cpu())\n"
        "return self.launched('scaled_relu', x, y, rows)",
        "rejected",
    ),
    "an operator of torch": ("x[0, 0].item()\nkernels.touched[1, 1](x)\nreturn torch.relu(x) * self.scale", "rejected"),
    "a library": (
        "x[0, 0].item()\ny = torch.mm(x, torch.eye(x.shape[1], device=x.device))\n"
        "return self.launched('scaled_relu', y, torch.empty_like(x), rows)",
        "rejected",
    ),
    "nothing": ("x[0, 0].item()\ny = torch.empty_like(x)\nkernels.touched[1, 1](y)\nreturn y", "wrong"),
}


@pytest.mark.parametrize("name", CHEATS)
@pytest.mark.parametrize("first", [True, False])
def test_what_cheats_is_refused_live_too(evaluator: Evaluator, name: str, first: bool) -> None:
    """Also where the functional machine was not asked before: the rules hold on the GPU itself."""
    body, verdict = CHEATS[name]
    task = Task(task_id="scaled-relu", source=TASK, policy="from_scratch")
    options = evaluator.options.changed(program_first=first)
    found = evaluator.evaluate(task, candidate(body), options)
    assert found.verdict == verdict, told(found)
    assert found.environment.road == "program" or verdict == "wrong", told(found)


TRITON = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=4) for b in (64, 256)], key=["n"])
@triton.jit
def tuned(x_ptr, s_ptr, y_ptr, n, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, s = tl.load(x_ptr + i, mask=i < n), tl.load(s_ptr + i % cols, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0) * s, mask=i < n)
@triton.jit
def described(x, s, y, ROWS: tl.constexpr, COLS: tl.constexpr):
    at = [tl.program_id(0) * ROWS, tl.program_id(1) * COLS]
    y.store(at, tl.maximum(x.load(at), 0.0) * s.load([at[1]])[None, :])
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        y, (rows, cols) = torch.empty_like(x), x.shape
        {body}
        return y
"""
CALLS = {
    "tuned": "tuned[lambda m: (triton.cdiv(x.numel(), m['BLOCK']),)](x, self.scale, y, x.numel(), cols)",
    "described": (
        "two = [TensorDescriptor.from_tensor(t, [8, 32]) for t in (x, y)]; "
        "one = TensorDescriptor.from_tensor(self.scale.detach(), [32]); "
        "described[(triton.cdiv(rows, 8), triton.cdiv(cols, 32))](two[0], one, two[1], ROWS=8, COLS=32)"
    ),
    "clusters": ("tuned.fn[(triton.cdiv(x.numel(), 256),)](x, self.scale, y, x.numel(), cols, BLOCK=256, num_ctas=2)"),
}


@pytest.mark.skipif(not triton_support.installed(), reason="Triton is not installed")
@pytest.mark.parametrize("name", CALLS)
def test_triton_holds_no_values(evaluator: Evaluator, name: str) -> None:
    text = TRITON.replace("{body}", CALLS[name])
    made = Candidate(sources=(SourceFile(path="c.py", content=text),), language="triton")
    found = evaluator.evaluate(Task(task_id="scaled-relu", source=TASK, policy="from_scratch"), made)
    assert told(found)[:2] == ("correct", "program"), told(found)
    assert ("live: " in found.environment.replayed) == (name == "tuned"), told(found)
