"""Builds that torch, g++ or ptxas reject although our compilers would not: they must fail here too."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.backends.build import build, constant_bytes
from kernelwright.builds import BuildRequest
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.tasks import candidate_from_text

KERNEL = """
__constant__ float table[SIZE];
__constant__ float factor = 2.0f;
extern "C" __global__ void k(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = table[i + 7] * factor; }
"""
PTX = """
.const .align 4 .b8 table[65200];
.visible .const .align 4 .f32 second = 0f40000000;
.global .align 4 .b8 other[70000];
"""
TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.randn(64)]
def get_init_inputs():
    return []
"""
CANDIDATE = '''
import torch
from torch.utils.cpp_extension import load_inline
extension = load_inline(NAMED cuda_sources="""
#include <torch/extension.h>
__global__ void add(const float* x, float* y, int n) {
    int i = threadIdx.x + blockIdx.x * 64;
    if (i < n) y[i] = x[i] + 1;
}
torch::Tensor plus(torch::Tensor x) {
    auto y = torch::empty_like(x);
    add<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("plus", &plus); }
""")
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.plus(x)
'''


@pytest.mark.parametrize("size, status", [(16383, "ok"), (16384, "compile_error")])
def test_constant_memory_has_an_end(tmp_path: Path, size: int, status: str) -> None:
    result = build(BuildRequest("device", cuda_source=KERNEL.replace("SIZE", str(size))), tmp_path)
    assert result.status == status, result.log
    assert ("too much global constant data (0x10004 bytes" in result.log) == (status != "ok")


def test_only_constants_are_counted() -> None:
    assert constant_bytes(PTX) == 65204


@pytest.mark.parametrize(
    "named, verdict, reason",
    [
        ("name='plus', cpp_sources='', verbose=True, extra_ldflags=[],", "correct", ""),
        ("name='plus', cpp_sources='', extra_cuda_flags=['-O3'],", "runtime_error", "extra_cuda_flags"),
        ("name='plus',", "runtime_error", "cpp_sources"),
        ("name='plus-one', cpp_sources='',", "compile_error", "identifier"),
        ("name='1plus', cpp_sources='',", "compile_error", "identifier"),
    ],
)
def test_arguments_of_load_inline_that_torch_refuses(pool: Pool, named: str, verdict: str, reason: str) -> None:
    with Evaluator(EvalOptions(seed=3), pool=pool) as evaluator:
        candidate = candidate_from_text(CANDIDATE.replace("NAMED", named), "test")
        result = evaluator.evaluate(Task(task_id="options", source=TASK), candidate)
    assert result.verdict == verdict and reason in result.reason, f"{result.verdict}: {result.reason}\n{result.log}"
