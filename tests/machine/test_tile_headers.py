"""The tile library's headers: put into device text, named in messages and findings, hashed with what includes them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from machine_launch import launch, program
from running import Command

from kernelwright import device
from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.text import source_lines, static_rules
from kernelwright.machine import MachineFault
from kernelwright.machine.nvrtc import compile_ptx
from kernelwright.records import Task
from kernelwright.solutions.forms import export
from kernelwright.tasks import candidate_from_text, load_task

KERNEL = """#include <kernelwright/convert.cuh>
extern "C" __global__ void f(const __half* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) kw::put(y[i SHIFT], 2.0f * kw::to_float(x[i]));
}
"""
RIGHT, PAST = KERNEL.replace(" SHIFT", ""), KERNEL.replace("SHIFT", "+ 1")
TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x.float() * 2
def get_inputs():
    return [torch.randn(300).half()]
def get_init_inputs():
    return []
"""
MODULE = f'''
import torch
from kernelwright.cuda import Module

kernels = Module("""{RIGHT}""")

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device)
        kernels.f[(x.numel() + 255) // 256, 256](x, y, x.numel())
        return y
'''
INLINE = f'''
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
{RIGHT}
torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty_like(x, x.options().dtype(torch::kFloat));
    f<<<(x.numel() + 255) / 256, 256>>>((const __half*)x.data_ptr(), y.data_ptr<float>(), (int)x.numel());
    return y;
}}
"""
extension = load_inline(
    name="extension", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=source, functions=["run"]
)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)
'''


@pytest.mark.parametrize("header", device.names())
def test_a_header_compiles_by_itself_and_twice(header: str) -> None:
    text = f"#include <{header}>\n#include <{header}>\n__global__ void f() {{}}\n"
    done = compile_ptx(text)
    assert done.ok, done.log


def test_a_text_keeps_its_line_numbers() -> None:
    text = f"// first\n{RIGHT}\nint wrong = ;\n"
    line = text.split("\n").index("int wrong = ;") + 1
    assert f"cuda.cu({line}): error" in compile_ptx(text).log


@pytest.mark.parametrize("text", ["// #include <kernelwright/none.cuh>\n", "/*\n#include <kernelwright/none.cuh>\n*/"])
def test_an_include_in_a_comment_stays(text: str) -> None:
    assert device.inlined(text) == text


def test_a_header_in_a_conditional_counts_where_it_is_compiled() -> None:
    include = "#include <kernelwright/convert.cuh>\n"
    for condition in (0, 1):
        text = f"#if {condition}\n{include}#endif\n{RIGHT}"
        done = compile_ptx(text)
        assert done.ok, done.log


def test_an_unknown_header_gives_one_error_with_the_known_ones() -> None:
    done = compile_ptx("\n" + RIGHT.replace("convert", "convrt"))
    assert not done.ok and done.log.startswith("cuda.cu:2: error: there is no header <kernelwright/convrt.cuh>")
    assert set(device.names()) <= set(re.findall(r"kernelwright/\w+\.cuh", done.log))
    assert "\n" not in done.log


def test_a_fault_names_the_header_and_the_caller() -> None:
    x, y = np.zeros(256, np.float16), np.zeros(256, np.float32)
    with pytest.raises(MachineFault) as raised:
        launch(program(PAST), "f", 1, 256, [x, y, np.int32(256)])
    fault = raised.value.fault
    header, _, line = fault.header.partition(":")
    assert fault.line == 4 and "kw::put" in PAST.split("\n")[fault.line - 1]
    assert "put(float& place" in device.header_text(header).split("\n")[int(line) - 1]


def test_an_error_in_a_template_of_a_header_has_the_callers_line() -> None:
    own = "\n__global__ void f(float* y) {\n    kw::twice(y[0]);\n}\n"
    header = "namespace kw { template <class T> __device__ void twice(T& a) { a.twice(); } }\n"
    done = compile_ptx(f'#line 1 "kernelwright/sample.cuh"\n{header}#line 1 "cuda.cu"\n{own}')
    assert done.log.startswith("kernelwright/sample.cuh(1): error")
    assert source_lines.of_error(f"text{own}", {"cuda_source": own}, done.log) == 3


def task_of(folder: Path, text: str = TASK) -> Task:
    (folder / "task.py").write_text(text)
    return load_task(folder / "task.py")


def test_rules_on_the_text_read_the_headers(tmp_path: Path) -> None:
    task = task_of(tmp_path, TASK.replace(".half()", "").replace(".float()", ""))
    found = static_rules.static_findings(
        candidate_from_text(MODULE.replace("const __half*", "const float*"), "test"), task
    )
    hidden = [f for f in found if f.rule == "lower-precision" and "kernelwright/convert.cuh" in f.evidence]
    assert [MODULE.split("\n")[(f.line or 0) - 1].strip() for f in hidden] == [
        'kernels = Module("""#include <kernelwright/convert.cuh>'
    ]


def test_a_verdicts_key_holds_the_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    task, options = task_of(tmp_path), EvalOptions(backend="cpu")
    plain = candidate_from_text(MODULE.replace("#include <kernelwright/convert.cuh>", ""), "test")
    before = [options.key(task, candidate) for candidate in (candidate_from_text(MODULE, "test"), plain)]
    monkeypatch.setattr(device, "header_text", lambda header: "// another text\n")
    after = [options.key(task, candidate) for candidate in (candidate_from_text(MODULE, "test"), plain)]
    assert before[0] != after[0] and before[1] == after[1]


@pytest.mark.parametrize("form", ["module", "inline", "exported module", "exported inline"])
def test_a_candidate_with_a_header_is_correct(form: str, kernelwright: Command, tmp_path: Path) -> None:
    text = INLINE if "inline" in form else MODULE
    if form.startswith("exported"):
        text = export(text)
        assert "kernelwright" not in text
    task_of(tmp_path)
    (tmp_path / "candidate.py").write_text(text)
    done = kernelwright("eval", str(tmp_path / "task.py"), str(tmp_path / "candidate.py"))
    assert done.stdout.startswith("correct"), done.stdout + done.stderr


def test_all_headers_can_be_included_in_one_text() -> None:
    includes = "\n".join(f"#include <{name}>" for name in device.names())
    result = compile_ptx(device.inlined(f'{includes}\nextern "C" __global__ void f(float* y) {{ y[0] = 1.0f; }}'))
    assert result.ok, result.log
