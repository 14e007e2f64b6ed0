"""Decontamination against suites of whole CUDA programs: by their kernels and by the names of their operators."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Command

from kernelwright.corpus.decontaminate import Rules
from kernelwright.corpus.guard import Away, suite_programs
from kernelwright.corpus.programs import ProgramIndex, SuiteProgram
from kernelwright.curation.writing import away_from
from kernelwright.errors import ConfigError

KERNEL = """
__global__ void clip(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];           // one value a thread
        y[i] = v < -1.0f ? -1.0f : (v > 1.0f ? 1.0f : v);
    }
}
"""
RENAMED = """
extern "C" __global__ void bounded(const float* __restrict__ source, float* __restrict__ target, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) {
        float value = source[place];
        target[place] = value < -3.5f ? -3.5f : (value > 3.5f ? 3.5f : value);
    }
}
"""
OTHER = """
__global__ void sums(const float* x, float* y, int rows, int cols) {
    __shared__ float part[256];
    float total = 0.f;
    for (int c = threadIdx.x; c < cols; c += 256) total += x[blockIdx.x * cols + c];
    part[threadIdx.x] = total;
    __syncthreads();
    for (int half = 128; half; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (!threadIdx.x) y[blockIdx.x] = part[0];
}
"""
MAIN = "int main() { return 0; }\n"
WRAPPED = 'import torch\nfrom torch.utils.cpp_extension import load_inline\nsource = """{}"""\n'
TASK = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return {}
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
"""
SUM, CLIP = TASK.format("x.sum(1)"), TASK.format("torch.nn.functional.hardtanh(x)")
TWO = TASK.format("torch.relu(x.cumsum(0))")
SUITE = [SuiteProgram("7", "Hard_Tanh", KERNEL + MAIN)]


@pytest.mark.parametrize("form", ["{}", WRAPPED])
@pytest.mark.parametrize(
    ("kernel", "reasons"),
    [(KERNEL, ("exact", "ast", "jaccard")), (RENAMED, ("ast",)), (OTHER, ()), (OTHER + RENAMED, ("ast",)), ("", ())],
)
def test_a_kernel_is_known_again_whatever_its_names_and_numbers(
    form: str, kernel: str, reasons: tuple[str, ...]
) -> None:
    near = ProgramIndex(SUITE).near(TWO, form.replace("{}", kernel))
    assert near.reasons == reasons and (near.ast > 0.9) == bool(reasons)


def test_what_a_kernel_may_be_launched_with_is_no_word_of_it() -> None:
    bound = RENAMED.replace("void bounded", "void __launch_bounds__(256, 2) bounded")
    scores = {ProgramIndex(SUITE).near(TWO, text).ast for text in (RENAMED, bound)}
    assert len(scores) == 1 and scores.pop() > 0.9


def test_a_helper_that_all_have_is_no_likeness() -> None:
    helper = "__device__ float twice(float a, float b, float c) { return 2.f * a + 3.f * b + 4.f * c - a * b * c; }\n"
    assert ProgramIndex([SuiteProgram("1", "X", helper + OTHER)]).near(TWO, helper + KERNEL).reasons == ()


@pytest.mark.parametrize(
    ("reference", "one_operator", "reasons"),
    [(CLIP, "remove", ("name",)), (CLIP, "keep", ()), (SUM, "remove", ()), (TWO, "remove", ())],
)
def test_a_task_of_one_operator_is_known_by_its_name(
    reference: str, one_operator: str, reasons: tuple[str, ...]
) -> None:
    near = ProgramIndex(SUITE, Rules(one_operator=one_operator)).near(reference, OTHER)  # type: ignore[arg-type]
    assert near.reasons == reasons and near.one_operator == (reference != TWO)


def test_tasks_and_programs_side_by_side(tmp_path: Path) -> None:
    from kernelwright.corpus.decontaminate import Text

    away = Away({"tasks": [Text("s", SUM)]}, {"programs": SUITE})
    assert away.sizes == {"tasks": 1, "programs": 1}
    for reference, code, nearest in (
        (SUM, OTHER, "tasks#s"),
        (TWO, RENAMED, "programs#7"),
        (CLIP, OTHER, "programs#7"),
    ):
        near, names = away.near(reference, code)
        assert near.reasons and names[near.nearest] == nearest
    near, _ = away.near(TWO, OTHER)
    assert not near.reasons
    with pytest.raises(ConfigError):
        Away({}, {"programs": []})


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    path = tmp_path / "held.jsonl"
    row = {"task_name": "Hard_Tanh", "bench.cu": KERNEL + MAIN, "gen.py": "pass", "compare.py": "print('T')"}
    path.write_text(json.dumps({"id": 7, **row}) + "\n" + json.dumps({"id": 8, **row, "bench.cu": ""}) + "\n")
    return path


def test_rows_of_a_data_set_are_kept_away_by_what_they_teach(programs: Path) -> None:
    rows = [
        {"task_id": "a", "reference": TWO, "code": WRAPPED.format(OTHER)},
        {
            "task_id": "b",
            "reference": TWO + "# b",
            "code": WRAPPED.format(OTHER),
            "failed_code": WRAPPED.format(RENAMED),
        },
        {"task_id": "c", "reference": CLIP, "code": WRAPPED.format(OTHER)},
    ]
    for suite in (f"cudabench:{programs}", f"cudabench:{programs}:3", str(programs)):
        kept, removed = away_from(rows, [suite], "remove")
        assert [row["task_id"] for row in kept] == ["a"]
        assert [(r["task_id"], r["reasons"], r["nearest"]) for r in removed] == [
            ("b", ["ast"], f"{suite}#7"),
            ("c", ["name"], f"{suite}#7"),
        ]
    assert [p.task_id for p in suite_programs(str(programs))] == ["7"]


def test_the_command_line(programs: Path, tmp_path: Path, kernelwright: Command) -> None:
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "clean.jsonl"
    rows = [{"id": "copied", "reference": TWO, "answer": RENAMED}, {"id": "own", "reference": TWO, "answer": OTHER}]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = kernelwright("decontaminate", corpus, "--against", f"cudabench:{programs}", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["against"] == {f"cudabench:{programs}": 1} and found["by_rule"] == {"ast": 1}
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["own"]
    refused = kernelwright("corpus", "build", "--out", tmp_path / "new", "--against", programs)
    assert refused.returncode == 2 and "whole CUDA programs" in refused.stderr and "hint: keep away" in refused.stderr
