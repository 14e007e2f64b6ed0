"""Source files of `load` and the headers beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from relu_task import DOUBLED

from kernelwright.backends.source_text.own_files import TooManyHeaders
from kernelwright.backends.source_text.tokens import file_at, line_at, tokenize
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.candidate import source_files
from kernelwright.evaluation.candidate.source_files import SourceFiles
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.tasks import candidate_from_text

CANDIDATE = r'''
import pathlib
import tempfile
import torch
from torch.utils.cpp_extension import load

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "include").mkdir()
(folder / "include" / "twice.cuh").write_text("""
#pragma once
__device__ __forceinline__ float twice(float v) { return 2.f * fmaxf(v, 0.f); }
""")
(folder / "launch.h").write_text("""
#ifndef LAUNCH_H
#define LAUNCH_H
void launch(const float* x, float* y, int n);
#endif
""")
(folder / "kernel.cu").write_text("""
#include "launch.h"
#include <twice.cuh>
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(x[i]);
}
void launch(const float* x, float* y, int n) { k<<<(n + 255) / 256, 256>>>(x, y, n); }
""")
(folder / "main.cpp").write_text("""
#include <torch/extension.h>
#include "launch.h"
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    launch(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
""")
ext = load("files", [folder / "main.cpp", folder / "kernel.cu"], extra_include_paths=[folder / "include"])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.run(x.contiguous())
'''


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2), pool=pool) as shared:
        yield shared


def test_an_extension_of_files_with_headers(evaluator: Evaluator) -> None:
    result = evaluator.evaluate(Task(task_id="relu", source=DOUBLED), candidate_from_text(CANDIDATE, "test"))
    assert result.verdict == "correct", result.reason


def lines(text: str) -> list[str]:
    """Returns what is left of a text's lines without directives."""
    return [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]


def test_headers_stand_where_they_are_wanted(tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (tmp_path / "a.h").write_text('#pragma once\n#include "b.h"\nint a;\n')
    (tmp_path / "b.h").write_text("#ifndef B_H\n#define B_H\nint b;\n#endif\n")
    (more / "c.h").write_text('# include  "a.h" // why\n#include "../b.h"\nint c;')
    (tmp_path / "x.cu").write_text(
        '#include <torch/extension.h>\n#include "a.h"\n#include <c.h>\n#include <b.h>\nint x;\n'
    )
    text = SourceFiles(str(more)).text(str(tmp_path / "x.cu"))
    assert lines(text) == ["int b;", "int a;", "int c;", "int x;"]
    assert all(f"#include {name}" in text for name in ("<torch/extension.h>", "<b.h>"))
    assert '# include  "a.h"' in text  # which its folder does not have


def test_a_header_without_a_guard_is_put_in_again_within_a_file(tmp_path: Path) -> None:
    (tmp_path / "ops.inc").write_text("OP(add)\nOP(mul)\n")
    (tmp_path / "x.cu").write_text('#include "ops.inc"\nint between;\n#include "ops.inc"\n')
    text = SourceFiles().text(str(tmp_path / "x.cu"))
    assert lines(text) == ["OP(add)", "OP(mul)", "int between;", "OP(add)", "OP(mul)"]


@pytest.mark.parametrize(("body", "times"), [("int first;\n", 1), ("NAME(first)\n", 2)], ids=["plain", "macro"])
def test_a_header_of_two_files_stands_once_unless_it_uses_their_macros(tmp_path: Path, body: str, times: int) -> None:
    (tmp_path / "a.h").write_text(body)
    for name in ("x.cu", "y.cu"):
        (tmp_path / name).write_text(f'#define NAME(n) {name[0]}##n\n#include "a.h"\n#undef NAME\n')
    files = SourceFiles()
    assert sum(len(lines(files.text(str(tmp_path / name)))) for name in ("x.cu", "y.cu")) == times


def test_lines_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("int a;\nint second;\n")
    (tmp_path / "x.cu").write_text('int x;\n#include "a.h"\n\nint last;\n')
    text = SourceFiles().text(str(tmp_path / "x.cu"))
    where = {t.text: (file_at(text, t.start), line_at(text, t.start)) for t in tokenize(text) if t.kind == "word"}
    assert where["second"] == ("a.h", 2) and where["last"] == ("cuda.cu", 4)


def test_headers_without_end_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.h").write_text('#include "b.h"\nint a;\n')
    (tmp_path / "b.h").write_text('#include "a.h"\nint b;\n')
    with pytest.raises(TooManyHeaders):
        SourceFiles().text(str(tmp_path / "b.h"))
    monkeypatch.setattr(source_files, "MAX_CHARACTERS", 20)
    with pytest.raises(ValueError, match="4 MB"):
        SourceFiles().text(str(tmp_path / "a.h"))


TABLE = """
import pathlib, tempfile
import torch
from torch.utils.cpp_extension import load

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "ops.inc").write_text('''
OP(half_of, v / 2)
OP(twice, v * 2)
OP(positive, v > 0 ? v : 0)
''')
(folder / "ops.cu").write_text(r'''
#include <torch/extension.h>
enum Which {
#define OP(name, value) which_##name,
#include "ops.inc"
#undef OP
};
#define OP(name, value) \\
  __global__ void name##_kernel(const float* x, float* y, int n) { \\
    int i = blockIdx.x * blockDim.x + threadIdx.x; float v = i < n ? x[i] : 0.f; if (i < n) y[i] = value; }
#include "ops.inc"
#undef OP
static void launch(Which which, const float* x, float* y, int n) {
  switch (which) {
#define OP(name, value) case which_##name: name##_kernel<<<(n + 255) / 256, 256>>>(x, y, n); break;
#include "ops.inc"
#undef OP
  }
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x), z = torch::empty_like(x);
  launch(which_positive, x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  launch(which_twice, y.data_ptr<float>(), z.data_ptr<float>(), x.numel());
  return z;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
''')
ext = load("ops", [str(folder / "ops.cu")])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.run(x.contiguous())
"""


def test_a_table_of_macros_is_included_several_times(evaluator: Evaluator) -> None:
    result = evaluator.evaluate(Task(task_id="relu", source=DOUBLED), candidate_from_text(TABLE, "test"))
    assert result.verdict == "correct", result.reason


@pytest.mark.parametrize("bad", ["y[i + n] = twice(x[i])", "y[i] = no_such_name"], ids=["fault", "error"])
def test_a_finding_names_the_line_in_the_candidate(evaluator: Evaluator, bad: str) -> None:
    text = CANDIDATE.replace("y[i] = twice(x[i])", bad)
    result = evaluator.evaluate(Task(task_id="relu", source=DOUBLED), candidate_from_text(text, "test"))
    found = [f.line for f in result.findings if f.severity == "fault" and f.line]
    assert found[:1] == [text[: text.index(bad)].count("\n") + 1], result.findings
