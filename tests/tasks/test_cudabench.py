"""CUDABench's rows: reading them, and `tasks check` on them as users run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from running import Command

from kernelwright.errors import TaskError
from kernelwright.tasks.formats.cudabench import is_cudabench, read_programs

PROGRAM = r"""
#include <cuda_runtime.h>
#include <fstream>
#include <vector>
__global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}
int main() {
  std::vector<float> h(100);
  std::ifstream("data/in.bin", std::ios::binary).read((char*)h.data(), 400);
  float* d;
  cudaMalloc(&d, 400);
  cudaMemcpy(d, h.data(), 400, cudaMemcpyHostToDevice);
  twice<<<1, 128>>>(d, 100);
  cudaMemcpy(h.data(), d, 400, cudaMemcpyDeviceToHost);
  std::ofstream("data/out.bin", std::ios::binary).write((char*)h.data(), 400);
}
"""
GENERATOR = """
import os, numpy as np, torch
os.makedirs("data", exist_ok=True)
x = np.arange(100, dtype=np.float32)
x.tofile("data/in.bin")
(torch.from_numpy(x) * 2).numpy().tofile("data/ref.bin")
"""
COMPARER = """
import numpy as np
same = np.array_equal(np.fromfile("data/out.bin", np.float32), np.fromfile("data/ref.bin", np.float32))
print("T" if same else "F")
"""


def row(name: str, **changes: Any) -> dict[str, Any]:
    fields = {"id": name, "task_name": "Twice", "bench.cu": PROGRAM, "gen.py": GENERATOR, "compare.py": COMPARER}
    return {k: v for k, v in {**fields, **changes}.items() if v is not None}


def write(path: Path, *rows: dict[str, Any] | str) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def test_rows_are_read_with_their_problems(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", row("1"), "{broken", row("1"), row("2", **{"gen.py": None}), "[1]")
    assert is_cudabench(file)
    tasks = read_programs(file)
    assert [t.task_id for t in tasks] == ["1", "line-2", "1#2", "2", "line-5"]
    assert [bool(t.problem) for t in tasks] == [False, True, False, True, True]
    assert "gen.py" in tasks[3].problem and "not JSON" in tasks[1].problem
    assert not is_cudabench(write(tmp_path / "other.jsonl", {"reference": "x"}))
    with pytest.raises(TaskError):
        read_programs(write(tmp_path / "none.jsonl", {"bench.cu": 3}))


def test_check_says_what_became_of_each_row(tmp_path: Path, kernelwright: Command) -> None:
    file = write(
        tmp_path / "rows.jsonl",
        row("right"),
        row("wrong", **{"bench.cu": PROGRAM.replace("*= 2", "*= 3")}),
        row("outside", **{"bench.cu": PROGRAM.replace("i < n", "i < n + 20")}),
        row("silent", **{"bench.cu": PROGRAM.replace("data/out.bin", "data/other.bin")}),
        row("status", **{"bench.cu": PROGRAM.replace('  std::ofstream("', '  return 4; std::ofstream("')}),
        row("broken", **{"bench.cu": PROGRAM.replace("float* d;", "float* e;")}),
        row("texture", **{"bench.cu": "#include <cufft.h>\n" + PROGRAM}),
        row("raises", **{"gen.py": "raise ValueError('no numbers today')"}),
        row("absent", **{"gen.py": "import surely_not_installed"}),
        row("hangs", **{"gen.py": "import time\ntime.sleep(1000)"}),
        row("forks", **{"gen.py": "import os\nos.fork()"}),
        row("lacks", **{"compare.py": None}),
        "{",
    )
    done = kernelwright("tasks", "check", file, "--backend", "cpu", "--json", "--timeout", "6")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(f["task_id"], f["verdict"]) for f in found] == [
        ("right", "correct"),
        ("wrong", "wrong"),
        ("outside", "runtime_error"),
        ("silent", "wrong"),
        ("status", "runtime_error"),
        ("broken", "compile_error"),
        ("texture", "unsupported"),
        ("raises", "task_error"),
        ("absent", "unsupported"),
        ("hangs", "timeout"),
        ("forks", "task_error"),
        ("lacks", "task_error"),
        ("line-13", "task_error"),
    ], done.stderr
    by_id = {f["task_id"]: f for f in found}
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert by_id["right"]["instructions"] > 0 and by_id["right"]["seconds"] > 0
    assert by_id["broken"]["reason"].startswith("bench.cu:") and "'d' was not declared" in by_id["broken"]["reason"]
    assert "out-of-bounds" in by_id["outside"]["reason"] and by_id["outside"]["findings"][0]["line"] == 7
    assert "no numbers today" in by_id["raises"]["reason"] and "surely_not_installed" in by_id["absent"]["reason"]
    assert "cufft.h" in by_id["texture"]["reason"] and "compare.py" in by_id["lacks"]["reason"]


def test_check_shows_a_table_and_writes_a_page(tmp_path: Path, kernelwright: Command) -> None:
    file = write(tmp_path / "rows.jsonl", row("a"), row("b"))
    done = kernelwright("tasks", "check", f"{file}#b", "--out", tmp_path / "page.md")
    assert done.returncode == 0 and "1 programs: 1 correct" in done.stdout, done.stderr
    assert "| b | Twice | correct |" in (tmp_path / "page.md").read_text()
    for words in ((f"{file}#z",), (file, "--backend", "gpu"), (tmp_path / "none.jsonl",)):
        done = kernelwright("tasks", "check", *words)
        assert done.returncode == 2 and done.stderr.startswith("error: ") and "hint: " in done.stderr


def test_what_was_printed_before_ctrl_c_stays(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", row("first"), row("second", **{"gen.py": "import time\ntime.sleep(100)"}))
    words = [sys.executable, "-m", "kernelwright.cli", "tasks", "check", str(file), "--json", "--jobs", "1"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy())
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert first["verdict"] == "correct" and process.returncode == 130 and "interrupted" in errors


def test_machine_run(tmp_path: Path, kernelwright: Command) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.bin").write_bytes(bytes(400))
    good = tmp_path / "good.cu"
    good.write_text(PROGRAM)
    done = kernelwright("machine", "run", good, "--file", tmp_path / "data", "--keep", tmp_path / "kept")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert (tmp_path / "kept" / "data" / "out.bin").read_bytes() == bytes(400)
    bad = tmp_path / "bad.cu"
    bad.write_text(PROGRAM.replace("i < n", "true"))
    done = kernelwright("machine", "run", bad, "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 1 and facts["exit"] == 0 and facts["findings"][0]["line"] == 7
    bad.write_text("int main( {")
    done = kernelwright("machine", "run", bad)
    assert done.returncode == 1 and "bad.cu:1:" in done.stderr and "cuda.cu" not in done.stderr
    for words in ((tmp_path / "none.cu",), (bad, "--order", "up"), (bad, "--file", tmp_path / "none")):
        done = kernelwright("machine", "run", *words)
        assert done.returncode in (1, 2) and "Traceback" not in done.stderr
