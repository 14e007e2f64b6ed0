"""Builds predicted from a candidate's text equal the runner's requests; uncertain ones are not predicted."""

from __future__ import annotations

import tracemalloc

import pytest
from relu_task import RELU

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.text.first_build import first_build
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

CPP = "torch::Tensor f(torch::Tensor x);"
HEAD = "import torch\nimport torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\n"
CALL = 'e = load_inline(name="n", cpp_sources=cpp, cuda_sources=[cuda], functions=["f"], verbose=True)\n'


def test_a_load_inline_with_constant_arguments() -> None:
    source = (
        HEAD
        + f'cuda = "__global__ void k() {{}}" + "\\n"\ncpp = "{CPP}"\n'
        + CALL
        + "class ModelNew(nn.Module): pass\n"
    )
    request = first_build(source)
    assert request is not None
    assert (request.kind, request.name, request.functions) == ("extension", "n", ("f",))
    assert request.cuda_source == "__global__ void k() {}\n" and request.cpp_source == CPP


def test_a_module_after_definitions() -> None:
    head = "import torch.nn as nn\nfrom kernelwright.cuda import Module as M\n"
    source = head + 'class A(nn.Module):\n    def f(self): exit()\nk = M(r"__global__ void k() {}")\n'
    request = first_build(source)
    assert request is not None and request.cuda_source == "__global__ void k() {}"


@pytest.mark.parametrize(
    "before",
    [
        "import cupy\n",
        "import kernelwright.machine\n",
        "print(1)\n",
        "def load_inline(**k): return 1\n",
        "load_inline = None\n",
        "from x import *\n",
        "if torch.cuda.is_available(): pass\n",
        "@decorated\nclass A: pass\n",
        "class A(base()): pass\n",
        "class A(nn.Module):\n    x = f()\n",
        "def f(x=g()): pass\n",
        "cuda = f'{1}'\n",
        "cpp = open('x').read()\n",
        "try:\n    pass\nexcept Exception:\n    pass\n",
    ],
)
def test_what_could_change_the_build_is_left_to_the_runner(before: str) -> None:
    assert first_build(HEAD + "cuda = 'c'\ncpp = 'c'\n" + before + CALL) is None


@pytest.mark.parametrize("text", ["", "x = (", "\0", "(" * 5000, "a = load_inline('n', *b)", "a.b.c()"])
def test_other_texts_are_nothing(text: str) -> None:
    assert first_build(text) is None


@pytest.mark.parametrize(
    "arguments",
    [
        "name=b'n', cpp_sources=cpp, cuda_sources=cuda",
        "name='n', cpp_sources=cpp, cuda_sources=3",
        "name='n', cpp_sources=cpp, cuda_sources=[[cuda]]",
        "name='n', cpp_sources=cpp, cuda_sources=cuda, functions=3",
        "name='n', cpp_sources=cpp, cuda_sources=cuda, extra_cflags=-1",
        "'n', cpp, cuda, name='n'",
    ],
)
def test_arguments_of_other_types_are_left_to_the_runner(arguments: str) -> None:
    assert first_build(HEAD + f"cuda = 'c'\ncpp = 'c'\ne = load_inline({arguments})\n") is None


def grown(kind: str) -> str:
    """Returns a module of a few kilobytes whose constants would fill any memory."""
    first = "a = 'x'\n"
    if kind == "doubled":
        return first + "a = a + a\n" * 40 + "e = load_inline('n', a, a)\n"
    if kind == "kept":
        return first + "a = a + a\n" * 19 + "".join(f"b{i} = a + 'y'\n" for i in range(4000))
    if kind == "nested lists":
        return first + "a = [a, a]\n" * 60 + "e = load_inline('n', '', '', functions=a)\n"
    return first + "a = a + a\n" * 18 + f"e = load_inline('n', '', [{'a, ' * 5000}])\n"


@pytest.mark.parametrize("kind", ["doubled", "kept", "nested lists", "repeated"])
def test_a_text_that_would_fill_the_memory_is_not_made(kind: str) -> None:
    source = HEAD + grown(kind)
    tracemalloc.start()
    assert first_build(source) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


BROKEN = """import torch
import torch.nn as nn
from kernelwright.cuda import Module
{between}
k = Module('''
__global__ void relu(const float* x, float* y, int n) {{
    y[0] = missing_name;
}}''')
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


def test_the_verdict_is_the_runners() -> None:
    def judged(evaluator: Evaluator, between: str) -> Evaluation:
        file = SourceFile(path="candidate.py", content=BROKEN.format(between=between))
        return evaluator.evaluate(Task(task_id="relu", source=RELU), Candidate(sources=(file,), language="cuda"))

    assert first_build(BROKEN.format(between="")) is not None
    assert first_build(BROKEN.format(between="print()")) is None
    with Evaluator(EvalOptions(backend="cpu", trials=1)) as evaluator:
        early, late = judged(evaluator, ""), judged(evaluator, "print()")
    assert early.verdict == late.verdict == "compile_error"
    assert early.reason == late.reason and "missing_name" in early.reason
    assert early.findings == late.findings and early.findings[0].line == 7
    assert early.sandbox == late.sandbox
