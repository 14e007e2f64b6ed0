"""Users' mistakes through the real command line: one clear line, the right exit status, nothing lost."""

from __future__ import annotations

import json
import math
import sqlite3
import subprocess
from pathlib import Path

import pytest
from running import Command

from kernelwright.cli.options import eval_options
from kernelwright.errors import ConfigError
from kernelwright.evaluation.options import gpu_count

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x + 1

rows = 4

def get_inputs():
    return [torch.rand(rows, 33)]

def get_init_inputs():
    return []
"""

CANDIDATE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i] + 1.0f;
    return y;
}
"""
module = load_inline(name="plus_one", cpp_sources=source, functions=["forward"])

class ModelNew(nn.Module):
    def forward(self, x):
        return module.forward(x.contiguous())
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a folder with a task, a candidate, and broken versions of both."""
    (tmp_path / "task.py").write_text(REFERENCE)
    (tmp_path / "candidate.py").write_text(CANDIDATE)
    (tmp_path / "no_inputs.py").write_text(REFERENCE.replace("def get_inputs", "def other_inputs"))
    (tmp_path / "no_model.py").write_text(REFERENCE.replace("class Model(", "class Other("))
    (tmp_path / "broken.py").write_text(REFERENCE + "\ndef (:\n")
    (tmp_path / "latin1.py").write_bytes(REFERENCE.encode() + "# é".encode("latin-1"))
    (tmp_path / "nul.py").write_bytes(REFERENCE.encode() + b"\0")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "blank.py").write_text("\n \n")
    (tmp_path / "notes.txt").write_text(CANDIDATE)
    (tmp_path / "empty_folder").mkdir()
    (tmp_path / "bad_toml").mkdir()
    (tmp_path / "bad_toml" / "task.toml").write_text('name = "x"\ntolerence = 1e-3\n')
    (tmp_path / "bad_toml" / "reference.py").write_text(REFERENCE)
    for name, settings in (("nested_toml", "[" * 50_000), ("huge_number", "9" * 6_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.toml").write_text(f"name = {settings}\n")
        (tmp_path / name / "reference.py").write_text(REFERENCE)
    (tmp_path / "costly.py").write_text(REFERENCE + "f'" + "{a}" * 300_000 + "'\n")
    (tmp_path / "nested.jsonl").write_text("[" * 100_000 + "\n")
    row = json.dumps({"id": "a", "reference": REFERENCE, "candidate": CANDIDATE}) + "\n"
    (tmp_path / "rows.jsonl").write_text(row)
    (tmp_path / "many.jsonl").write_text(row + row.replace('"a"', '"b"'))
    (tmp_path / "broken.jsonl").write_text('{"id": "a", "reference": \nnot json\n')
    (tmp_path / "empty.jsonl").write_text("")
    return tmp_path


def one_clear_line(done: subprocess.CompletedProcess[str], status: int, words: str) -> None:
    """Checks every error's promise: its status, one line that names the cause, no traceback, nothing on stdout."""
    shown = done.stdout + done.stderr
    assert "Traceback" not in shown, shown
    assert done.returncode == status, shown
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    assert words in lines[0], done.stderr
    assert done.stdout == ""


UNREADABLE = [
    # words of the command, text that the error line must hold
    ("eval missing.py candidate.py", "missing.py"),
    ("eval task.py missing.py", "missing.py"),
    ("eval no_such_task candidate.py", "no_such_task"),
    ("eval no_inputs.py candidate.py", "get_inputs"),
    ("eval no_model.py candidate.py", "Model"),
    ("eval broken.py candidate.py", "broken.py"),
    ("eval latin1.py candidate.py", "latin1.py"),
    ("eval nul.py candidate.py", "nul.py"),
    ("eval empty.py candidate.py", "empty.py"),
    ("eval blank.py candidate.py", "blank.py"),
    ("eval empty_folder candidate.py", "empty_folder"),
    ("eval bad_toml candidate.py", "tolerence"),
    ("eval nested_toml candidate.py", "too deeply nested"),
    ("eval huge_number candidate.py", "huge_number"),
    ("eval costly.py candidate.py", "processor time"),
    ("eval many.jsonl candidate.py", "many.jsonl"),
    ("eval rows.jsonl#zzz candidate.py", "zzz"),
    ("eval task.py latin1.py", "latin1.py"),
    ("eval task.py empty.py", "empty.py"),
    ("eval task.py empty_folder", "empty_folder"),
    ("eval task.py notes.txt", "notes.txt"),
    ("eval task.py", "CANDIDATE"),
    ("eval", "CANDIDATE"),
    ("eval task.py candidate.py --backend banana", "--backend"),
    ("eval task.py candidate.py --backend gpu", "gpu"),
    ("eval task.py candidate.py --rule anything", "--rule"),
    ("eval task.py candidate.py --policy from_scratch --libraries-allowed", "--libraries-allowed"),
    ("eval task.py candidate.py --sandbox banana", "--sandbox"),
    ("eval task.py candidate.py --trials 0", "--trials"),
    ("eval task.py candidate.py --trials many", "--trials"),
    ("eval task.py candidate.py --timeout -1", "--timeout"),
    ("eval task.py candidate.py --timeout inf", "--timeout"),
    ("eval task.py candidate.py --timeout 1e300", "--timeout"),
    ("eval task.py candidate.py --trials 101", "--trials"),
    ("eval task.py candidate.py --memory-mb 1", "--memory-mb"),
    ("eval task.py candidate.py --memory-mb 99999999999999999999", "--memory-mb"),
    ("eval task.py candidate.py --bananas", "--bananas"),
    ("eval task.py candidate.py --run candidate.py", "candidate.py"),
    ("eval task.py candidate.py --run candidate.py/run", "candidate.py/run"),
    ("eval task.py candidate.py --run /proc/1/run", "/proc/1/run"),
    ("eval --jsonl rows.jsonl", "--run"),
    ("eval --jsonl missing.jsonl --run r", "missing.jsonl"),
    ("eval --jsonl empty_folder --run r", "empty_folder"),
    ("eval --jsonl empty.jsonl --run r", "empty.jsonl"),
    ("eval --jsonl broken.jsonl --run r", "not JSON"),
    ("eval --jsonl rows.jsonl --run r --reference-field ref", "'ref'"),
    ("eval --jsonl rows.jsonl --run r --candidate-field cand", "'cand'"),
    ("eval --jsonl rows.jsonl --run r --id-field name", "'name'"),
    ("eval --jsonl rows.jsonl --run r --jobs -1", "--jobs"),
    ("eval task.py candidate.py --jsonl rows.jsonl --run r", "--jsonl"),
    ("optimize task.py --run r --policy banana", "banana"),
    ("optimize task.py --run r --policy scripted:missing.jsonl", "missing.jsonl"),
    ("optimize task.py --run r --policy scripted:nested.jsonl", "line 1"),
    ("optimize task.py --run r --policy openai:", "openai"),
    ("eval --jsonl nested.jsonl --run r", "too deeply nested"),
    ("optimize task.py --run r --turns 0", "--turns"),
    ("optimize missing.py --run r", "missing.py"),
    ("optimize task.py --run r --max-seconds -1", "--max-seconds"),
    ("optimize task.py --run r --max-seconds 0", "--max-seconds"),
    ("optimize task.py --run r --max-seconds nan", "--max-seconds"),
    ("optimize task.py --run r --max-seconds inf", "--max-seconds"),
    ("report missing", "missing"),
    ("report empty_folder", "empty_folder"),
    ("tasks show no_such_task", "no_such_task"),
    ("tasks list empty_folder", "empty_folder"),
    ("tasks banana", "banana"),
    ("banana", "banana"),
]


@pytest.mark.parametrize(("command", "words"), UNREADABLE, ids=[c for c, _ in UNREADABLE])
def test_bad_usage_is_one_line_and_status_2(folder: Path, kernelwright: Command, command: str, words: str) -> None:
    if "--backend gpu" in command and gpu_count():
        pytest.skip("there is a GPU here")
    before = sorted(p.name for p in folder.iterdir())
    one_clear_line(kernelwright(*command.split(), cwd=folder), 2, words)
    assert [name for name in before if not (folder / name).exists()] == []


@pytest.mark.parametrize(
    ("flag", "value", "hint"),
    [
        ("timeout", math.inf, "at most 86400 seconds"),
        ("timeout", 1e300, "at most 86400 seconds"),
        ("timeout", math.nan, "more than 0"),
        ("timeout", -1.0, "more than 0"),
        ("trials", 101, "at least 1 and at most 100"),
        ("memory_mb", 2**80, "at least 256"),
        ("timing_seconds", math.inf, "at most 86400"),
        ("gpu_memory_gb", math.inf, "at least 0"),
        ("kernelbench_tolerance", math.inf, "more than 0"),
    ],
)
def test_a_number_out_of_range_is_named_with_what_it_may_be(flag: str, value: float, hint: str) -> None:
    given = {"trials": 3, "timeout": 30.0, "memory_mb": 4096, flag: value}
    with pytest.raises(ConfigError, match="--" + flag.replace("_", "-")) as error:
        eval_options(backend="cpu", seed=None, sandbox="auto", **given)  # type: ignore[arg-type]
    assert hint in str(error.value.hint)


def test_a_reference_that_raises(folder: Path, kernelwright: Command) -> None:
    (folder / "raises.py").write_text(REFERENCE.replace("return x + 1", "raise ValueError('broken on purpose')"))
    one_clear_line(kernelwright("eval", "raises.py", "candidate.py", cwd=folder), 2, "broken on purpose")


def test_what_a_reference_says_reaches_the_terminal_as_text(folder: Path, kernelwright: Command) -> None:
    (folder / "raises.py").write_text(REFERENCE.replace("return x + 1", "raise ValueError('\\x1b[2J one\\ntwo')"))
    done = kernelwright("eval", "raises.py", "candidate.py", cwd=folder)
    one_clear_line(done, 2, "one")
    assert "\x1b" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_a_reference_that_exits(folder: Path, kernelwright: Command) -> None:
    (folder / "exits.py").write_text("import os\n" + REFERENCE.replace("return x + 1", "os._exit(0)"))
    one_clear_line(kernelwright("eval", "exits.py", "candidate.py", cwd=folder), 2, "exits")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CANDIDATE.replace("class ModelNew", "class Other"), "ModelNew"),
        (CANDIDATE + "\ndef (:\n", "SyntaxError"),
        ("this is not a program", "compile_error"),
    ],
    ids=["no ModelNew", "syntax error", "prose"],
)
def test_a_candidate_that_is_no_candidate_is_a_verdict(
    folder: Path, kernelwright: Command, text: str, words: str
) -> None:
    (folder / "bad.py").write_text(text)
    done = kernelwright("eval", "task.py", "bad.py", "--json", cwd=folder)
    assert done.returncode == 1, done.stderr
    facts = json.loads(done.stdout)
    assert facts["verdict"] == "compile_error"
    assert words in facts["reason"] or words == facts["verdict"]
    assert "Traceback" not in done.stderr


def test_bad_rows_leave_the_others_judged(folder: Path, kernelwright: Command) -> None:
    good = {"id": "good", "reference": REFERENCE, "candidate": CANDIDATE}
    lines = [
        json.dumps(good),
        '{"id": "cut off',
        "[1, 2]",
        json.dumps({"id": "no-candidate", "reference": REFERENCE, "candidate": None}),
        json.dumps({"id": "no-reference", "candidate": CANDIDATE}),
        json.dumps({"id": "raises", "reference": REFERENCE.replace("x + 1", "x + nothing"), "candidate": CANDIDATE}),
        json.dumps({**good, "id": "good too"}),
    ]
    (folder / "mixed.jsonl").write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    done = kernelwright("eval", "--jsonl", "mixed.jsonl", "--run", "r", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(s["item_id"], s["verdict"]) for s in shown] == [("good", "correct"), ("good too", "correct")]
    summary = json.loads(kernelwright("report", "r", "--json", cwd=folder).stdout)
    assert summary["verdicts"] == {"correct": 1} or summary["verdicts"] == {"correct": 2}
    assert (summary["no_candidate"], summary["bad_tasks"]) == (1, 5)
    assert any("nothing" in row["reason"] for row in summary["rows"])


def test_a_run_of_another_version_is_refused_and_left_as_it_is(folder: Path, kernelwright: Command) -> None:
    (folder / "old").mkdir()
    path = folder / "old" / "run.sqlite"
    done = kernelwright("eval", "task.py", "candidate.py", "--run", "made", cwd=folder)
    assert done.returncode == 0, done.stderr
    path.write_bytes((folder / "made" / "run.sqlite").read_bytes())
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    for command in ("eval task.py candidate.py --run old", "report old", "eval --jsonl rows.jsonl --run old"):
        one_clear_line(kernelwright(*command.split(), cwd=folder), 2, "version 99")
    assert path.read_bytes() == before


def test_a_file_that_is_no_run_is_refused(folder: Path, kernelwright: Command) -> None:
    (folder / "strange").mkdir()
    (folder / "strange" / "run.sqlite").write_text("not a database")
    one_clear_line(kernelwright("report", "strange", cwd=folder), 2, "strange")
    assert (folder / "strange" / "run.sqlite").read_text() == "not a database"


def test_a_page_that_cannot_be_written(folder: Path, kernelwright: Command) -> None:
    assert kernelwright("eval", "task.py", "candidate.py", "--run", "r", cwd=folder).returncode == 0
    done = kernelwright("report", "r", "--html", "candidate.py/page.html", cwd=folder)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "error: 'candidate.py/page.html' cannot be written" in done.stderr


def test_tasks_check_names_what_cannot_be_judged(folder: Path, kernelwright: Command) -> None:
    suite = folder / "suite"
    suite.mkdir()
    (suite / "1_good.py").write_text(REFERENCE)
    (suite / "2_raises.py").write_text(REFERENCE.replace("x + 1", "x + nothing"))
    done = kernelwright("tasks", "check", suite, "--json")
    assert done.returncode == 1, done.stderr
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [f["ok"] for f in facts] == [True, False]
    assert "nothing" in facts[1]["reason"]
    assert "Traceback" not in done.stdout + done.stderr
