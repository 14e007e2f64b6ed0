"""Source files of `load` and the headers beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from relu_task import DOUBLED

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.candidate import source_files
from kernelwright.evaluation.candidate.source_files import SourceFiles
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


def test_an_extension_of_files_with_headers() -> None:
    with Evaluator(EvalOptions(backend="cpu", trials=2)) as evaluator:
        result = evaluator.evaluate(Task(task_id="relu", source=DOUBLED), candidate_from_text(CANDIDATE, "test"))
    assert result.verdict == "correct", result.reason


def test_headers_stand_where_they_are_wanted_and_once(tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (tmp_path / "a.h").write_text('#pragma once\n#include "b.h"\nint a;\n')
    (tmp_path / "b.h").write_text("int b;\n")
    (more / "c.h").write_text('# include  "a.h" // why\n#include "../b.h"\nint c;')
    (tmp_path / "x.cu").write_text(
        '#include <torch/extension.h>\n#include "a.h"\n#include <c.h>\n#include <b.h>\nint x;\n'
    )
    files = SourceFiles(str(more))
    words = files.text(str(tmp_path / "x.cu")).split()
    assert words == [
        "#include",
        "<torch/extension.h>",
        "int",
        "b;",
        "int",
        "a;",
        "#",
        "include",
        '"a.h"',
        "//",
        "why",
    ] + [*("int", "c;", "#include", "<b.h>", "int", "x;")]


def test_headers_that_include_each_other_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.h").write_text('#include "b.h"\nint a;\n')
    (tmp_path / "b.h").write_text('#include "a.h"\nint b;\n')
    assert SourceFiles().text(str(tmp_path / "b.h")).split() == ["int", "b;", "int", "a;", "int", "b;"]
    monkeypatch.setattr(source_files, "MAX_CHARACTERS", 20)
    with pytest.raises(ValueError, match="4 MB"):
        SourceFiles().text(str(tmp_path / "a.h"))
