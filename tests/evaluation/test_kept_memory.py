"""Models that keep memory between calls: what they keep may depend on weights, and on no input of an earlier call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, Evaluation, Language, SourceFile, Task

MODEL = """
import torch
import torch.nn as nn
ROWS, COLS = 12, 40
class {name}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.randn(width))
        self.register_buffer("ema", torch.zeros(width))
        {init}
    def forward(self, x):
        {forward}
"""
INPUTS = """
def get_inputs():
    return [torch.randn(ROWS, COLS)]
def get_init_inputs():
    return [COLS]
"""
REFERENCES = {
    "scaled": "return x * self.w",
    "running": "self.ema.mul_(0.5).add_(0.5 * x[0])\n        return x * self.w - self.ema",
}
KERNELS = '''
from kernelwright.cuda import Module
kernels = Module(r"""
#define I (blockIdx.x * blockDim.x + threadIdx.x)
__device__ float held[1 << 16];
extern "C" __global__ void scaled(const float* x, const float* w, float* y, int n, int c) {
  if (I < n) (y ? y : held)[I] = x[I] * w[I % c]; }
extern "C" __global__ void copied(const float* x, float* y, int n) { if (I < n) y[I] = (x ? x : held)[I]; }
extern "C" __global__ void averaged(float* e, const float* x, int c) { if (I < c) e[I] = 0.5f * e[I] + 0.5f * x[I]; }
extern "C" __global__ void less(const float* x, const float* w, const float* e, float* y, int n, int c) {
  if (I < n) y[I] = x[I] * w[I % c] - e[I % c]; }
""")
def go(name, count, *arguments):
    getattr(kernels, name)[(count + 127) // 128, 128](*arguments)
'''
HOST_CODE = '''
from torch.utils.cpp_extension import load_inline
extension = load_inline("e", cpp_sources="""
#include <torch/extension.h>
torch::Tensor f(torch::Tensor x, torch::Tensor w, torch::Tensor e) {
  auto y = torch::empty_like(x);
  const float *a = x.data_ptr<float>(), *b = w.data_ptr<float>();
  float *m = e.data_ptr<float>(), *o = y.data_ptr<float>();
  long c = x.size(1), n = x.numel();
  for (long i = 0; i < c; i++) m[i] = 0.5f * m[i] + 0.5f * a[i];
  for (long i = 0; i < n; i++) o[i] = a[i] * b[i % c] - m[i % c];
  return y;
}
""", functions=["f"])
'''
ROOM = "self.kept = torch.empty(1 << 16, device='cuda')"
ONCE = """n, c, y = x.numel(), x.shape[1], torch.empty_like(x)
        key = self.w._version, x.shape
        if key != getattr(self, "key", None):
            self.key = key
            {filled}
        go("copied", n, {kept}, y, n)
        return y"""
CACHED = {
    "constructor's memory": (ROOM, "go('scaled', n, x, self.w, self.kept, n, c)", "self.kept"),
    "a buffer": (
        "self.register_buffer('kept', torch.zeros(1 << 16), persistent=False)",
        "go('scaled', n, x, self.w, self.kept, n, c)",
        "self.kept",
    ),
    "a variable": ("pass", "go('scaled', n, x, self.w, 0, n, c)", "0"),
    "torch's copy": (
        ROOM,
        "go('scaled', n, x, self.w, y, n, c); self.kept[:n].copy_(y.view(-1))",
        "self.kept",
    ),
}
STATE = """n, c, y = x.numel(), x.shape[1], torch.empty_like(x)
        go("averaged", c, self.ema, x, c)
        {more}
        go("less", n, x, self.w, self.ema, y, n, c)
        return y"""
WITH_STATE = {
    "nothing else": ("pass", STATE.format(more="pass")),
    "memory": (ROOM, STATE.format(more='go("copied", 32, x, self.kept, 32)')),
    "a value on the host": ("pass", STATE.format(more="assert x[0, 0].item() < 1e30")),
    "host code": ("pass", "return extension.f(x, self.w, self.ema)"),
}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=3, seed=5), pool=pool) as shared:
        yield shared


def judged(evaluator: Evaluator, name: str, init: str, forward: str) -> Evaluation:
    reference = MODEL.format(name="Model", init="pass", forward=REFERENCES[name]) + INPUTS
    language: Language = "cpp" if "extension" in forward else "cuda"
    before = HOST_CODE if language == "cpp" else KERNELS
    text = before + MODEL.format(name="ModelNew", init=init, forward=forward)
    candidate = Candidate(sources=(SourceFile(path="c.py", content=text),), language=language)
    return evaluator.evaluate(Task(task_id=name, source=reference), candidate)


@pytest.mark.parametrize("case", CACHED)
def test_a_result_kept_for_a_version_of_weights_is_wrong(evaluator: Evaluator, case: str) -> None:
    init, filled, kept = CACHED[case]
    found = judged(evaluator, "scaled", init, ONCE.format(filled=filled, kept=kept))
    assert found.verdict == "wrong", found.reason
    again = judged(evaluator, "scaled", init, ONCE.format(filled=filled, kept=kept).replace("x.shape\n", "object()\n"))
    assert again.verdict == "correct", again.reason


@pytest.mark.parametrize("case", WITH_STATE)
def test_a_model_with_state_is_called_again_as_the_reference_is(evaluator: Evaluator, case: str) -> None:
    found = judged(evaluator, "running", *WITH_STATE[case])
    assert found.verdict == "correct", found.reason
