"""The command line as a contract: verbs, fields, exit statuses, resuming, interruption."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from running import Command

CANDIDATES = Path(str(resources.files("kernelwright") / "data" / "candidates"))
EXPECTED = tomllib.loads((CANDIDATES / "expected.toml").read_text())

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x + {number}

rows = 4

def get_inputs():
    return [torch.rand(rows, 33)]

def get_init_inputs():
    return []
"""

# Host C++ needs no GPU compiler, and no other test caches its build.
CANDIDATE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i] + {number};
    return y;
}}
"""
module = load_inline(name="plus", cpp_sources=source, functions=["forward"])

class ModelNew(nn.Module):
    def forward(self, x):
        return module.forward(x.contiguous())
'''


def rows_file(path: Path, count: int, wrong: tuple[int, ...] = ()) -> Path:
    rows = [
        {
            "id": f"row-{i}",
            "reference": REFERENCE.format(number=i),
            "candidate": CANDIDATE.format(number=i + (1 if i in wrong else 0)),
        }
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_help_is_quick_and_lists_the_verbs() -> None:
    """The bound is relative to the fastest possible typer command, so other load on the machine does not matter."""
    commands = ([str(Path(sys.executable).parent / "kernelwright"), "--help"], [sys.executable, "-c", "import typer"])
    seconds: list[list[float]] = [[], []]
    said = ""
    for _ in range(3):
        for kept, command in zip(seconds, commands, strict=True):
            started = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            kept.append(time.perf_counter() - started)
            said = done.stdout or said
    assert min(seconds[0]) < 5 * min(seconds[1])
    listed = re.findall(r"^  (\w+)  ", said.split("Commands:")[1], re.MULTILINE)
    assert listed[:6] == ["eval", "worker", "optimize", "profile", "report", "doctor"]
    more = "tasks machine solutions bench compare export corpus decontaminate curate train serve warm"
    assert sorted(listed[6:]) == sorted(more.split())


def test_help_loads_no_heavy_library() -> None:
    heavy = ("torch", "numpy", "pydantic", "fastapi")
    code = f"import sys, kernelwright.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version(kernelwright: Command) -> None:
    assert re.fullmatch(r"kernelwright \d+\.\d+\.\d+\n", kernelwright("--version").stdout)


def test_eval_json_has_the_fields_of_the_contract(tmp_path: Path, kernelwright: Command) -> None:
    (tmp_path / "task.py").write_text(REFERENCE.format(number=1))
    (tmp_path / "right.py").write_text(CANDIDATE.format(number=1))
    (tmp_path / "wrong.py").write_text(CANDIDATE.format(number=2))
    right = kernelwright("eval", "task.py", "right.py", "--json", cwd=tmp_path)
    wrong = kernelwright("eval", "task.py", "wrong.py", "--json", cwd=tmp_path)
    assert (right.returncode, wrong.returncode) == (0, 1), right.stderr + wrong.stderr
    facts = json.loads(right.stdout)
    fields = "task_id candidate_id verdict reason backend sandbox workloads timing findings seconds"
    assert set(fields.split()) <= set(facts)
    assert facts["verdict"] == "correct" and facts["backend"] == "cpu" and facts["timing"] is None
    assert set(facts["seconds"]) == {"build", "check", "time"}
    assert len(facts["workloads"]) == 5
    for workload in facts["workloads"]:
        assert {"shape", "dtype", "max_abs_error", "max_rel_error", "passed"} <= set(workload)
    facts = json.loads(wrong.stdout)
    assert facts["verdict"] == "wrong" and facts["reason"]
    assert facts["workloads"][-1]["passed"] is False
    assert facts["workloads"][-1]["max_abs_error"] == pytest.approx(1.0, rel=0.1)


def test_libraries_are_allowed_by_a_flag(tmp_path: Path, kernelwright: Command) -> None:
    candidate = CANDIDATES / "masked_scan" / "library.py"
    by_default = json.loads(kernelwright("eval", "masked_scan", candidate, "--json").stdout)
    assert by_default["verdict"] == "rejected"
    assert [f["rule"] for f in by_default["findings"]] == ["no-own-kernel"]
    allowed = kernelwright("eval", "masked_scan", candidate, "--json", "--rule", "libraries_allowed")
    assert (allowed.returncode, json.loads(allowed.stdout)["verdict"]) == (0, "correct")


def test_batch_resumes_for_free(tmp_path: Path, kernelwright: Command) -> None:
    file = rows_file(tmp_path / "rows.jsonl", 4, wrong=(2,))
    words = ("eval", "--jsonl", file, "--run", tmp_path / "run", "--json")
    first = kernelwright(*words, "--limit", "3")
    assert first.returncode == 0, first.stderr
    assert [json.loads(line)["verdict"] for line in first.stdout.splitlines()] == ["correct", "correct", "wrong"]
    second = kernelwright(*words)
    assert "resumed: 3 of 4 were already judged" in second.stderr
    assert second.stdout.splitlines()[:3] == first.stdout.splitlines()
    fresh = kernelwright(*words, "--fresh")
    assert "resumed" not in fresh.stderr
    assert [json.loads(line)["item_id"] for line in fresh.stdout.splitlines()] == [f"row-{i}" for i in range(4)]


def wait_for_lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def start_batch(file: Path, run: Path) -> subprocess.Popen[str]:
    words = ["eval", "--jsonl", str(file), "--run", str(run), "--json", "--jobs", "1"]
    return subprocess.Popen(
        [sys.executable, "-m", "kernelwright.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_batch_keeps_what_was_judged(tmp_path: Path, kernelwright: Command, how: signal.Signals) -> None:
    file = rows_file(tmp_path / "rows.jsonl", 8)
    process = start_batch(file, tmp_path / "run")
    seen = wait_for_lines(process, 2)
    process.send_signal(how)
    _, stderr = process.communicate(timeout=30)
    if how is signal.SIGINT:
        assert process.returncode == 130
        assert "Traceback" not in stderr
        assert "kept" in stderr and "--run" in stderr
    done = kernelwright("eval", "--jsonl", file, "--run", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [s["item_id"] for s in shown] == [f"row-{i}" for i in range(8)]
    assert shown[:2] == [json.loads(line) for line in seen]
    resumed = re.search(r"resumed: (\d+) of 8", done.stderr)
    assert resumed is not None and 2 <= int(resumed[1]) < 8


CORRECT = CANDIDATES / "row_softmax" / "module.py"


@pytest.mark.parametrize(
    "words",
    ["--help", "tasks list", "tasks list --json", f"eval row_softmax {CORRECT}", f"eval row_softmax {CORRECT} --json"],
)
def test_a_pipe_that_nobody_reads_is_no_verdict(words: str) -> None:
    """The status is neither 0 nor 1, which are verdicts of `eval`, but that of a program that SIGPIPE ended."""
    command = f"{sys.executable} -m kernelwright.cli {words} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.parametrize("words", ["eval no_such_task no.py", "eval --no-such-flag"])
def test_an_error_that_nobody_reads_ends_quietly(words: str) -> None:
    command = f"{sys.executable} -m kernelwright.cli {words} 2>&1 | true; echo ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout == "141\n"


def test_output_that_was_closed_before_is_no_error() -> None:
    command = f"{sys.executable} -m kernelwright.cli tasks list >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_that_cannot_be_written_is_told() -> None:
    command = f"{sys.executable} -m kernelwright tasks list --json >/dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "error: the output cannot be written: No space left on device"
    assert len(done.stderr.splitlines()) == 2


def test_an_unforeseen_error_is_one_line_and_a_file(tmp_path: Path) -> None:
    code = (
        "import kernelwright.doctor as d, kernelwright.cli as c, sys\n"
        "d.examine = lambda: 1 // 0\nsys.argv[1:] = ['doctor']\nc.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: unexpected ZeroDivisionError")
    (kept,) = tmp_path.glob("kernelwright-error-*.txt")
    assert kept.name in done.stderr and "Traceback" in kept.read_text()


def test_doctor_says_what_is_there(kernelwright: Command) -> None:
    done = kernelwright("doctor", "--json")
    checks = {c["name"]: c for c in json.loads(done.stdout)}
    for name in (
        "python",
        "torch",
        "g++",
        "nvrtc",
        "CUDA machine",
        "sandbox: process",
        "GPU",
        "starter model",
        "cache folder",
    ):
        assert name in checks
    assert done.returncode == (0 if all(c["ok"] for c in checks.values() if c["needed"]) else 1)
    assert all(c["hint"] for c in checks.values() if c["needed"] and not c["ok"])


def test_tasks_list_and_show(kernelwright: Command) -> None:
    listed = [json.loads(line)["task_id"] for line in kernelwright("tasks", "list", "--json").stdout.splitlines()]
    assert listed == sorted(EXPECTED)
    facts = json.loads(kernelwright("tasks", "show", "row_softmax", "--json").stdout)
    sizes = [w["constants"] for w in facts["workloads"]]
    assert len(sizes) >= 2 and all(set(s) <= {"rows", "cols"} for s in sizes)
    assert {"own", "uniform"} <= set(facts["distributions"])
    text = kernelwright("tasks", "show", "row_softmax").stdout
    assert "class Model" in text and "FLOPs" in text


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Returns the verdicts on the bundled candidates, by the example that the quickstart runs."""
    run = tmp_path_factory.mktemp("bundled") / "run"
    example = Path(__file__).parents[1] / "examples" / "judge_bundled.py"
    subprocess.run([sys.executable, str(example), str(run)], capture_output=True, text=True, timeout=300)
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright.cli", "report", str(run), "--json"], capture_output=True, text=True
    )
    return {row["item_id"]: row for row in json.loads(done.stdout)["rows"]}


@pytest.mark.parametrize("name", [f"{task}/{file}" for task, files in EXPECTED.items() for file in files])
def test_bundled_candidate(bundled: dict[str, dict[str, str]], name: str) -> None:
    task, file = name.split("/")
    wanted = EXPECTED[task][file]
    assert bundled[name]["verdict"] == wanted["verdict"], bundled[name]["reason"]
    assert wanted.get("reason", "") in bundled[name]["reason"]


def test_every_bundled_candidate_has_an_expectation() -> None:
    files = {f"{p.parent.name}/{p.name}" for p in CANDIDATES.glob("*/*") if p.suffix in (".py", ".cu", ".cpp")}
    assert files == {f"{task}/{file}" for task, listed in EXPECTED.items() for file in listed}
    verdicts = {wanted["verdict"] for listed in EXPECTED.values() for wanted in listed.values()}
    assert verdicts >= {"correct", "wrong", "compile_error", "runtime_error", "rejected"}
