"""Programs written as answers to a row: its comparison judges them, and the expected output is out of reach."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from running import Command

from kernelwright.evaluation.judge.program_answers import check_program, judge_answer
from kernelwright.evaluation.judge.programs import ProgramLimits, ProgramVerdict, named_after
from kernelwright.evaluation.processes.builder_client import BuilderClient
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.runs.store import Store
from kernelwright.tasks.formats.cudabench import DataFile, ProgramTask, shared_files

KERNEL = """
#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>
#include <filesystem>
#include <unistd.h>
#include <sys/stat.h>
__global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}
"""
MAIN = """
int main() {
  std::vector<float> h(100);
  std::ifstream("data/in.bin", std::ios::binary).read((char*)h.data(), 400);
  float* d;
  cudaMalloc(&d, 400);
  cudaMemcpy(d, h.data(), 400, cudaMemcpyHostToDevice);
  twice<<<1, 128>>>(d, 100);
  cudaMemcpy(h.data(), d, 400, cudaMemcpyDeviceToHost);
  WRITE
}
"""
WRITE = 'std::ofstream("data/out.bin", std::ios::binary).write((char*)h.data(), 400);'
GENERATOR = """
import os, numpy as np
os.makedirs("data", exist_ok=True)
x = np.random.default_rng().standard_normal(100).astype(np.float32)
x.tofile("data/in.bin")
(x * 3).tofile("data/ref.bin")
(x * 3).tofile("also_here.bin")
"""
COMPARER = """
import numpy as np
same = np.array_equal(np.fromfile("data/out.bin", np.float32), np.fromfile("data/ref.bin", np.float32))
print("T" if same else "F")
"""
# The row expects three times the input; the kernel only doubles it, so a correct output must be a copy.
RIGHT = KERNEL + MAIN.replace("WRITE", "for (auto& v : h) v *= 1.5f; " + WRITE)
ROW = ProgramTask(
    "row",
    "thrice",
    RIGHT,
    GENERATOR,
    COMPARER,
    inputs=(DataFile("in", "float32", "(100,)"),),
    outputs=(DataFile("out", "float32", "(100,)"),),
)
SEARCH = """
  namespace fs = std::filesystem;
  std::vector<std::string> roots = {"data", ".", "..", "../..", "/tmp"};
  std::error_code e;
  for (auto& p : fs::directory_iterator("/proc", e)) {
    roots.push_back(p.path().string() + "/cwd");
    roots.push_back(p.path().string() + "/fd");
  }
  for (auto& root : roots)
    for (auto it = fs::recursive_directory_iterator(root, fs::directory_options::skip_permission_denied, e);
         !e && it != fs::recursive_directory_iterator(); it.increment(e)) {
      std::vector<float> found(100);
      std::ifstream file(it->path(), std::ios::binary);
      if (it->path().filename() != "in.bin" && file.read((char*)found.data(), 400) && file.peek() == EOF &&
          found[0] / h[0] > 1.49f && found[0] / h[0] < 1.51f) h = found;
    }
  WRITE
"""


def cheat(code: str) -> str:
    return KERNEL + MAIN.replace("WRITE", code.replace("WRITE", WRITE))


CHEATS = {
    "reads it": cheat('std::ifstream("data/ref.bin", std::ios::binary).read((char*)h.data(), 400); WRITE'),
    "searches for it": cheat(SEARCH),
    "links to it": cheat('symlink("ref.bin", "data/out.bin");'),
    "links to it with a path": cheat(
        'for (int i = 0; i < 64; ++i) { char p[99]; snprintf(p, 99, "../../program-%d/data/ref.bin", i);'
        ' remove("data/out.bin"); symlink(p, "data/out.bin"); if (std::ifstream("data/out.bin")) break; }'
    ),
    "links to it by hard link": cheat('link("data/ref.bin", "data/out.bin");'),
    "puts a folder's link in place": cheat('rename("data", "old"); symlink("..", "data"); mkdir("old/x", 0700);'),
    "writes its own expectation": cheat(
        WRITE + ' std::ofstream("data/ref.bin", std::ios::binary).write((char*)h.data(), 400);'
    ),
    "writes a pipe": cheat('mkfifo("data/out.bin", 0600);'),
}


def judged(pool: Pool, source: str, row: ProgramTask = ROW) -> ProgramVerdict:
    builder = BuilderClient(pool)
    try:
        return judge_answer(row, source, pool, builder, ProgramLimits(seconds=60))
    finally:
        builder.close()


def test_a_right_program_is_correct(pool: Pool) -> None:
    found = judged(pool, RIGHT)
    assert found.verdict == "correct" and found.launches == 1 and set(found.parts) == {"build", "gen", "run", "compare"}


@pytest.mark.parametrize("name", CHEATS)
def test_the_expected_output_is_out_of_reach(pool: Pool, name: str) -> None:
    found = judged(pool, CHEATS[name])
    assert found.verdict in ("wrong", "runtime_error"), f"{found.verdict}: {found.reason}"


def test_without_the_guard_the_search_would_find_it(pool: Pool) -> None:
    """The same program finds a file in its own folder, so the search itself works."""
    row = ProgramTask(
        "open", "", RIGHT, GENERATOR, COMPARER, inputs=(*ROW.inputs, DataFile("ref", "", "")), outputs=ROW.outputs
    )
    assert judged(pool, CHEATS["searches for it"], row).verdict == "correct"


@pytest.mark.parametrize("name", ["searches for it", "reads it"])
def test_a_rows_own_program_cannot_read_it_either(pool: Pool, name: str) -> None:
    row = ProgramTask("own", "", CHEATS[name], GENERATOR, COMPARER, outputs=ROW.outputs)
    builder = BuilderClient(pool)
    try:
        found = check_program(row, pool, builder, ProgramLimits(seconds=60))
        right = check_program(dataclasses.replace(row, program=RIGHT), pool, builder, ProgramLimits(seconds=60))
    finally:
        builder.close()
    assert found.verdict in ("wrong", "runtime_error"), f"{found.verdict}: {found.reason}"
    assert ("ref.bin, which the program was not shown" in found.reason) == ("ref.bin" in row.program)
    assert right.verdict == "correct" and set(right.parts) == {"build", "gen", "run", "compare"}


def test_an_error_of_a_compiler_names_the_users_file() -> None:
    log = 'cuda.cu(3): error: x\ncuda.cu:4:2: error: y\nin "cuda.cu".\nmy/cuda.cu:1: cuda.cuh: z'
    assert (
        named_after(log, "my.cu") == 'my.cu(3): error: x\nmy.cu:4:2: error: y\nin "my.cu".\nmy/cuda.cu:1: cuda.cuh: z'
    )


def test_a_program_without_a_kernel_is_rejected(pool: Pool) -> None:
    host = RIGHT.replace("twice<<<1, 128>>>(d, 100);", "for (auto& v : h) v *= 2;").replace("cudaMemcpy(", "(void)(")
    found = judged(pool, host.replace("(void)(d, h.data(), 400, cudaMemcpyHostToDevice)", "(void)d"))
    assert found.verdict == "rejected" and found.reason.startswith("no-own-kernel"), found.reason


@pytest.mark.parametrize(
    ("generator", "comparer", "verdict"),
    [
        ("raise ValueError('no')", COMPARER, "task_error"),
        ("import surely_not_installed", COMPARER, "task_error"),
        (GENERATOR, "import surely_not_installed", "task_error"),
        (GENERATOR, COMPARER.replace("np.array_equal", "np.no_such"), "wrong"),
    ],
)
def test_scripts_that_fail_are_no_answers_fault(pool: Pool, generator: str, comparer: str, verdict: str) -> None:
    row = ProgramTask("r", "", RIGHT, generator, comparer, inputs=ROW.inputs, outputs=ROW.outputs)
    assert judged(pool, RIGHT, row).verdict == verdict


def test_which_files_a_program_may_read() -> None:
    assert shared_files(ROW, ["in.bin", "ref.bin"]) == (["in.bin"], ["out.bin"])
    bare = ProgramTask("b", "", RIGHT, GENERATOR, COMPARER)
    assert shared_files(bare, ["in.bin", "ref.bin"]) == (["in.bin"], ["out.bin"])
    misnamed = ProgramTask("m", "", RIGHT, GENERATOR, COMPARER, inputs=(DataFile("other", "", ""),))
    assert shared_files(misnamed, ["in.bin", "ref.bin"])[0] == ["in.bin"]


def test_bench_asks_for_programs_and_judges_them(tmp_path: Path, kernelwright: Command) -> None:
    row = {
        "id": "thrice",
        "task_name": "Thrice",
        "bench.cu": RIGHT,
        "gen.py": GENERATOR,
        "compare.py": COMPARER,
        "inputs": [{"name": "in", "dtype": "float32", "shape": "(100,)"}],
        "outputs": [{"name": "out", "dtype": "float32", "shape": "(100,)"}],
        "level1_prompt": "Write a kernel that multiplies by three, with care.",
        "level3_prompt": "Multiply by three.",
    }
    file, answers = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    file.write_text(
        json.dumps(row) + "\n" + json.dumps({**row, "id": "next", "gen.py": "raise ValueError('x')"}) + "\n"
    )
    texts = [f"```cuda\n{RIGHT}\n```", f"```cpp\n{CHEATS['reads it']}\n```", "no program"]
    lines = [{"seed": i, "turn": 0, "answer": text} for i, text in enumerate(texts)]
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ("--policy", f"scripted:{answers}", "--samples", 3, "--run", tmp_path / "run", "--jobs", 2, "--json")
    done = kernelwright("bench", f"cudabench:{file}:3", *words, timeout=300)
    found = json.loads(done.stdout)
    with Store.open(tmp_path / "run", writable=False) as store:
        reasons = [(one.verdict, one.reason) for one in store.evaluations()]
    assert found["verdicts"] == {"correct": 1, "wrong": 1, "no_candidate": 1}, reasons
    assert found["correct"]["1"]["value"] == pytest.approx(1 / 3) and found["correct"]["3"]["value"] == 1.0
    assert found["compiled"]["1"]["value"] == pytest.approx(2 / 3) and found["counts"]["bad_tasks"] == 1
    turns = json.loads(kernelwright("report", tmp_path / "run", "--json").stdout)["rollouts"]
    assert len(turns) >= 3
    missing = kernelwright("bench", f"cudabench:{file}:2", "--policy", "template", "--run", tmp_path / "other")
    assert missing.returncode == 2 and "prompt of level 2" in missing.stderr
    with open(file, "a") as rows:
        rows.write(json.dumps({**row, "id": "mute", "level3_prompt": None}) + "\n")
    other = kernelwright("bench", f"cudabench:{file}:3", *words[:3], 1, "--run", tmp_path / "third", timeout=300)
    assert "left out: 1 of 3 rows have no prompt of level 3 (mute)" in other.stderr
