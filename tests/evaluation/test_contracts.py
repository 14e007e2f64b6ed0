"""The contract of a task's inputs: layouts, 8-bit floats, changes in place, constructor's arguments, special values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Evaluation, Task
from kernelwright.tasks import candidate_from_text

TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F
N = 700
class Model(nn.Module):
    {init}
    def forward(self, {arguments}):
        {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return {given}
"""
CANDIDATE = '''
import torch
from torch.utils.cpp_extension import load_inline
SOURCE = r"""
#include <torch/extension.h>
{kernel}
"""
extension = load_inline(name="k", cpp_sources="{declared};", cuda_sources=SOURCE, functions=["f"])
class ModelNew(torch.nn.Module):
    {init}
    def forward(self, {arguments}):
        {body}
'''
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
TWICE = f"__global__ void k(const float* x, float* y, int n) {{ {INDEX} y[i] = 2 * x[i]; }}"
ONE = "torch::Tensor f(torch::Tensor x)"


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(seed=3), pool=pool) as shared:
        yield shared


def task(inputs: str, body: str, arguments: str = "x", init: str = "pass", given: str = "[]") -> str:
    return TASK.format(inputs=inputs, body=body, arguments=arguments, init=init, given=given)


def candidate(kernel: str, declared: str, body: str, arguments: str = "x", init: str = "pass") -> str:
    return CANDIDATE.format(kernel=kernel, declared=declared, body=body, arguments=arguments, init=init)


def judged(evaluator: Evaluator, reference: str, text: str) -> Evaluation:
    return evaluator.evaluate(Task(task_id="t", source=reference), candidate_from_text(text, "c"))


def doubled(made: str, body: str = "return extension.f(x)", source: str = "x") -> str:
    host = f"{{ auto s = {source}; auto y = {made}; int n = s.numel(); "
    host += "k<<<(n + 255) / 256, 256>>>(s.data_ptr<float>(), y.data_ptr<float>(), n); return y; }"
    return candidate(TWICE + ONE + host, ONE, body)


PERMUTED = task("torch.rand(2, N // 4, 3).permute(0, 2, 1)", "return x * 2")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (doubled("torch::empty_like(x)"), "correct"),
        (doubled("torch::empty_like(x)", source="x.contiguous()"), "wrong"),
        (doubled("torch::empty(x.sizes(), x.options())", source="x.contiguous()"), "correct"),
        (doubled("torch::empty_like(x)", "assert x.stride(1) == 1\n        return extension.f(x)"), "correct"),
    ],
)
def test_strides_arrive_as_the_task_makes_them(evaluator: Evaluator, text: str, verdict: str) -> None:
    assert judged(evaluator, PERMUTED, text).verdict == verdict


def test_views_of_one_tensor_share_its_memory(evaluator: Evaluator) -> None:
    reference = task("*torch.randn(5, 2 * N).chunk(2, dim=1)", "return a * 2", "a, b")
    body = "assert b.data_ptr() == a.data_ptr() + 4 * a.shape[1]\n        return extension.f(a.contiguous())"
    text = doubled("torch::empty_like(x)").replace("return extension.f(x)", body).replace("(self, x)", "(self, a, b)")
    assert judged(evaluator, reference, text).verdict == "correct"


LAZY = "torch.randn(N, dtype=torch.complex64).conj()"
NEGATED = (
    "__global__ void k(const float* x, float* y, int n) { " + INDEX + " y[i] = i % 2 ? -x[i / 2] : x[i / 2]; }"
    "torch::Tensor f(torch::Tensor x) { int n = 2 * x.numel(); auto y = torch::empty({n / 2, 2}, x.options());"
    "k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n); return y; }"
)


@pytest.mark.parametrize(
    ("inputs", "body", "text"),
    [
        (f"{LAZY}.imag", "return x * 2", doubled("torch::empty(x.sizes(), x.options())", source="x.contiguous()")),
        (
            LAZY,
            "return torch.view_as_real(x.resolve_conj()) * 2",
            doubled("torch::empty_like(x)", "return extension.f(torch.view_as_real(x.resolve_conj()))"),
        ),
        (
            "torch.randn(N)",
            "return torch.complex(x, x).conj()",
            candidate(NEGATED, ONE, "return torch.view_as_complex(extension.f(x))"),
        ),
    ],
    ids=["negated input", "conjugate input", "conjugate output"],
)
def test_values_that_torch_marks_are_judged(evaluator: Evaluator, inputs: str, body: str, text: str) -> None:
    found = judged(evaluator, task(inputs, body), text)
    assert found.verdict == "correct", found.reason


def rounded(value: str) -> str:
    kernel = f"#include <cuda_fp8.h>\n__global__ void k(const float* x, unsigned char* y, int n) {{ {INDEX} "
    kernel += f"y[i] = __nv_cvt_float_to_fp8({value}, __NV_SATFINITE, __NV_E4M3); }}\n{ONE} {{ int n = x.numel(); "
    kernel += "auto y = torch::empty(x.sizes(), x.options().dtype(torch::kFloat8_e4m3fn)); "
    kernel += "k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), (unsigned char*)y.data_ptr(), n); return y; }"
    return candidate(kernel, ONE, "return extension.f(x)")


@pytest.mark.parametrize(
    ("value", "verdict"),
    [("3 * x[i]", "correct"), ("__int_as_float(__float_as_int(3 * x[i]) & 0xfff00000)", "wrong")],
)
def test_eight_bit_floats_are_compared_by_their_rounding(evaluator: Evaluator, value: str, verdict: str) -> None:
    reference = task("torch.randn(N)", "return (x * 3).to(torch.float8_e4m3fn)")
    assert judged(evaluator, reference, rounded(value)).verdict == verdict


PLACED = "void f(torch::Tensor x, torch::Tensor y)"


def placed(value: str, more: str = "", body: str = "extension.f(x, y)") -> str:
    kernel = f"__global__ void k(float* x, float* y, int n) {{ {INDEX} x[i] = {value}; {more} }}\n{PLACED} {{ "
    kernel += "int n = x.numel(); k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n); }"
    return candidate(kernel, PLACED, body, "x, y")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (placed("2 * x[i] + y[i]"), "correct"),
        (placed("2 * x[i] - y[i]"), "wrong"),
        (placed("2 * x[i] + y[i]", "y[i] = 0;"), "rejected"),
        (placed("x[i]"), "wrong"),
    ],
)
def test_a_reference_that_works_in_place_is_judged_by_what_it_changes(
    evaluator: Evaluator, text: str, verdict: str
) -> None:
    reference = task("torch.randn(N), torch.randn(N)", "x.mul_(2).add_(y)", "x, y")
    assert judged(evaluator, reference, text).verdict == verdict


@pytest.mark.parametrize(
    ("more", "verdict"), [("", "correct"), ("x[i] = fmaxf(x[i], 0);", "correct"), ("x[i] = 7;", "wrong")]
)
def test_the_option_inplace_allows_a_change_and_asks_for_none(evaluator: Evaluator, more: str, verdict: str) -> None:
    reference = task("torch.randn(N)", "return F.relu(x, inplace=True) * 2")
    text = doubled("torch::empty_like(x)").replace("const float* x", "float* x")
    text = text.replace("y[i] = 2 * x[i];", "y[i] = 2 * fmaxf(x[i], 0); " + more)
    assert judged(evaluator, reference, text).verdict == verdict


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ("torch.eye(9).to_sparse_csr()", "sparse CSR"),
        ("torch.eye(9).to_sparse()", "sparse COO"),
        ("torch.nested.nested_tensor([torch.rand(2, 3), torch.rand(4, 3)], layout=torch.jagged)", "nested (jagged)"),
        ("torch.quantize_per_tensor(torch.rand(9), 0.1, 0, torch.qint8)", "quantized"),
    ],
)
def test_other_kinds_of_tensors_are_unsupported_by_name(evaluator: Evaluator, inputs: str, name: str) -> None:
    result = judged(evaluator, task(inputs, "return x"), doubled("torch::empty_like(x)"))
    assert result.verdict == "unsupported" and name in result.reason


SCALED = "def __init__(self, scale, shift=0.0):\n        super().__init__()\n        self.scale = scale + shift"


@pytest.mark.parametrize("given", ["[[], {'scale': 1.5, 'shift': 0.5}]", "[[1.5], {'shift': 0.5}]", "[1.5, 0.5]"])
def test_constructors_take_positional_and_named_arguments(evaluator: Evaluator, given: str) -> None:
    reference = task("torch.randn(N)", "return x * self.scale", init=SCALED, given=given)
    text = doubled("torch::empty_like(x)", "assert self.scale == 2\n        return extension.f(x)")
    assert judged(evaluator, reference, text.replace("    pass\n", f"    {SCALED}\n")).verdict == "correct"


def test_infinities_that_the_reference_defines_are_judged(evaluator: Evaluator) -> None:
    reference = task("torch.randn(N)", "return (x * 2).masked_fill(x > 0, float('-inf'))")
    right = doubled("torch::empty_like(x)").replace("2 * x[i]", "x[i] > 0 ? -INFINITY : 2 * x[i]")
    assert judged(evaluator, reference, right).verdict == "correct"
    assert judged(evaluator, reference, right.replace("-INFINITY", "-1e9f")).verdict == "wrong"
