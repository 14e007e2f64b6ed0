"""Torch extensions of several files are judged; `benchmarks/torch_extensions.py` judges the whole set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sets.extensions import EXTENSIONS
from sets.extensions.judging import candidate, task

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.candidate import source_files
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, SourceFile

BY_NAME = {extension.name: extension for extension in EXTENSIONS}
CHOSEN = (
    "apex_layer_norm",
    "apex_multi_tensor",
    "graph_jacobi",
    "leetcuda_hardshrink",
    "muladd_package",
    "vision_pool",
)


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2, seed=1), pool=pool) as shared:
        yield shared


def test_the_set_is_whole() -> None:
    assert len(EXTENSIONS) >= 20
    for extension in EXTENSIONS:
        assert candidate(extension, planted=True) != candidate(extension)


@pytest.mark.parametrize("name", CHOSEN)
def test_an_extension_is_correct(evaluator: Evaluator, name: str) -> None:
    result = evaluator.evaluate(task(BY_NAME[name]), candidate(BY_NAME[name]))
    assert result.verdict == "correct", result.reason


@pytest.mark.parametrize("name", ["apex_multi_tensor", "graph_jacobi"])
def test_a_planted_bug_is_found(evaluator: Evaluator, name: str) -> None:
    result = evaluator.evaluate(task(BY_NAME[name]), candidate(BY_NAME[name], planted=True))
    assert result.verdict in ("wrong", "runtime_error"), result.reason


def test_a_setup_that_cannot_run_is_named(evaluator: Evaluator) -> None:
    given = candidate(BY_NAME["muladd_package"])
    broken = SourceFile(path="setup.py", content="import subprocess\nsubprocess.check_output(['no-such-nvcc', '-V'])\n")
    sources = tuple(broken if source.path == "setup.py" else source for source in given.sources)
    result = evaluator.evaluate(task(BY_NAME["muladd_package"]), given.changed(sources=sources))
    assert result.verdict in ("unsupported", "rejected") and "setup.py" in result.reason, result.reason


@pytest.mark.parametrize("path", ["../outside.cu", "/tmp/outside.cu", "a/../../outside.cu", "candidate.py", "."])
def test_a_file_stays_in_the_candidates_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="may not be at"):
        source_files.write([(path, "int x;\n")], str(tmp_path / "folder"))
    assert not list(tmp_path.rglob("*.cu"))


def test_a_plain_file_includes_a_header_beside_it(evaluator: Evaluator) -> None:
    text = (
        '#include <torch/extension.h>\n#include "more/add.cuh"\n'
        "__global__ void k(const float* a, const float* b, float* y, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = fused(a[i], b[i]);\n}\n"
        "torch::Tensor forward(torch::Tensor a, torch::Tensor b) {\n  auto y = torch::empty_like(a);\n"
        "  int n = a.numel();\n"
        "  k<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n);\n"
        "  return y;\n}\n"
    )
    header = "__device__ inline float fused(float a, float b) { return (a * b + 1.5f) * b; }\n"
    sources = (SourceFile(path="candidate.cu", content=text), SourceFile(path="more/add.cuh", content=header))
    result = evaluator.evaluate(task(BY_NAME["muladd_package"]), Candidate(sources=sources, language="cuda"))
    assert result.verdict == "correct", result.reason


def test_two_files_have_functions_and_macros_of_one_name(evaluator: Evaluator) -> None:
    def file(add: str, step: str) -> str:
        return (
            f"#include <torch/extension.h>\n#ifndef ADD\n#define ADD {add}\n#endif\n"
            "constexpr int BLOCK = 128;\nstruct Step { float by; };\n"
            "static __device__ float apply(float x, Step s) { return x * s.by + ADD; }\n"
            "__global__ static void kernel(const float* a, const float* b, float* y, int n) {\n"
            "  int i = blockIdx.x * BLOCK + threadIdx.x;\n"
            "  if (i < n) y[i] = apply(a[i], Step{b[i]});\n}\n"
            "static int blocks(int n) { return (n + BLOCK - 1) / BLOCK; }\n"
            f"torch::Tensor {step}(torch::Tensor a, torch::Tensor b) {{\n  auto y = torch::empty_like(a);\n"
            "  int n = a.numel();\n"
            "  kernel<<<blocks(n), BLOCK>>>(a.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n);\n"
            "  return y;\n}\n"
        )

    main = (
        "#include <torch/extension.h>\ntorch::Tensor first(torch::Tensor a, torch::Tensor b);\n"
        "torch::Tensor second(torch::Tensor a, torch::Tensor b);\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("first", &first); m.def("second", &second); }\n'
    )
    python = (
        "import os\nimport torch\nfrom torch.utils.cpp_extension import load\nHERE = os.path.dirname(__file__)\n"
        "ext = load('two_files', [os.path.join(HERE, f) for f in ('main.cpp', 'one.cu', 'two.cu')])\n"
        "class ModelNew(torch.nn.Module):\n    def forward(self, a, b):\n"
        "        return ext.second(ext.first(a, b), b)\n"
    )
    sources = (
        SourceFile(path="candidate.py", content=python),
        SourceFile(path="main.cpp", content=main),
        SourceFile(path="one.cu", content=file("1.5f", "first")),
        SourceFile(path="two.cu", content=file("0.0f", "second")),
    )
    result = evaluator.evaluate(task(BY_NAME["muladd_package"]), Candidate(sources=sources, language="cuda"))
    assert result.verdict == "correct", result.reason
