"""Reading tasks and candidates: every accepted form, and one clear line for every fault."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelwright.errors import CandidateError, TaskError, UsageError
from kernelwright.records import Workload
from kernelwright.tasks import (
    bundled_tasks,
    check_reference,
    detect_language,
    load_candidate,
    load_suite,
    load_task,
    read_rows,
)
from kernelwright.tasks.formats import hub
from kernelwright.tasks.language import suffix_of

REFERENCE = '''import torch

rows = 4
cols = 8


class Model(torch.nn.Module):
    """Sum of each row.

    More about it.
    """

    def forward(self, x):
        return x.sum(dim=1)


def get_inputs():
    return [torch.randn(rows, cols)]
'''


def _jsonl(path: Path, *rows: Any) -> Path:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def _native(folder: Path, toml: str, reference: str = REFERENCE) -> Path:
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text(toml)
    (folder / "reference.py").write_text(reference)
    return folder


def _error(call: Callable[[], object], kind: type[UsageError] = TaskError) -> tuple[str, str]:
    """Returns the one-line message and the hint of the error that `call` must raise."""
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value), caught.value.hint or ""


def test_a_file_is_a_task_without_being_executed(tmp_path: Path) -> None:
    path = tmp_path / "7_RowSum.py"
    path.write_text(REFERENCE + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    task = load_task(path, "libraries")
    assert (task.task_id, task.policy, task.description) == ("7_RowSum", "libraries", "Sum of each row.")
    assert task.provenance.origin == "7_RowSum.py"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"x = '\xff'", "is not UTF-8 text (byte 5)"),
        (b"def get_inputs(:\n", "is not Python: invalid syntax (line 1)"),
        (b"x = 1\n\x00y = 2\n", "null byte"),
        (b"x = " + b"(" * 5000 + b")" * 5000, "parse"),
        (b"class Model: pass\n", "defines no get_inputs"),
        (b"def get_inputs(): return []\n", "defines no Model"),
        (b"x = 1\n", "defines no Model and no get_inputs"),
        (b"def f():\n  class Model: pass\n  def get_inputs(): pass\n", "defines no Model and no get_inputs"),
    ],
)
def test_a_file_that_is_no_task_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "task.py"
    path.write_bytes(content)
    text, hint = _error(lambda: load_task(path))
    assert str(path) in text and hint
    assert message in text or (message == "parse" and "not Python" in text)


def test_names_count_wherever_the_module_binds_them() -> None:
    for source in (
        "from torch.nn import ReLU as Model\nget_inputs = lambda: []",
        "try:\n  from a import Model\nexcept ImportError:\n  class Model: pass\nif 1:\n  def get_inputs(): return []",
        "try:\n  pass\nexcept Exception:\n  Model, get_inputs = object, list",
        "Model: type = object\nwith open('x') as f:\n  def get_inputs(): return []",
    ):
        check_reference(source, "it")


@pytest.mark.parametrize("name", ["missing.py", "n" * 300 + ".py", "n" * 300, "rowsoftmax", "a\0b.py", ""])
def test_a_task_that_is_not_there(name: str) -> None:
    _error(lambda: load_task(name))


def test_other_things_in_place_of_a_task(tmp_path: Path) -> None:
    (tmp_path / "dir.py").mkdir()
    assert "has no task.toml" in _error(lambda: load_task(tmp_path / "dir.py"))[0]
    os.mkfifo(tmp_path / "pipe.py")
    assert "is not a regular file" in _error(lambda: load_task(tmp_path / "pipe.py"))[0]


def test_a_file_of_one_row_is_its_task_and_one_of_more_is_not(tmp_path: Path) -> None:
    row = {"task_id": "mine", "reference": REFERENCE}
    rows = _jsonl(tmp_path / "rows.jsonl", row)
    assert load_task(rows) == load_task(f"{rows}#mine")
    _jsonl(rows, row, {**row, "task_id": "other"})
    message, hint = _error(lambda: load_task(rows))
    assert "holds 2 tasks" in message and "rows.jsonl#mine" in hint
    assert "no rows" in _error(lambda: load_task(_jsonl(rows)))[0]


def test_bundled_tasks_load_by_name_and_as_a_suite() -> None:
    names = bundled_tasks()
    assert len(names) >= 5
    assert [task.task_id for task in load_suite("starter")] == [load_task(name).task_id for name in names]
    assert len(load_suite("starter", limit=2)) == 2
    assert f"did you mean {names[0]!r}" in _error(lambda: load_task(names[0][:-1]))[1]


def test_a_native_folder(tmp_path: Path) -> None:
    toml = """
name = "row-sum"
description = "Adds up rows."
policy = "libraries"
tolerance = 1e-4
licence = "Apache-2.0"

[[workloads]]
name = "odd"
constants = { rows = 7, cols = 1021 }

[[workloads]]
name = "large"
constants = { rows = 4096 }
purpose = "timing"
"""
    task = load_task(_native(tmp_path / "t", toml))
    assert (task.task_id, task.description, task.policy) == ("row-sum", "Adds up rows.", "libraries")
    assert (task.tolerance, task.provenance.licence) == (1e-4, "Apache-2.0")
    assert task.workloads == (
        Workload(name="odd", constants={"rows": 7, "cols": 1021}),
        Workload(name="large", constants={"rows": 4096}, purpose="timing"),
    )
    assert load_task(tmp_path / "t", "from_scratch").policy == "from_scratch"


@pytest.mark.parametrize(
    ("toml", "message", "hint"),
    [
        ("", "is empty", ""),
        ("name = ", "is not TOML", ""),
        ("description = 'x'", "has no name", 'name = "row-softmax"'),
        ("name = 3", "has no name", ""),
        ("name = 'x'\ntolerence = 1e-3", "unknown key 'tolerence'", "did you mean 'tolerance'?"),
        ("name = 'x'\ncolour = 'red'", "unknown key 'colour'", "known keys: name"),
        ("name = 'x'\npolicy = 'free'", "policy = 'free'", ""),
        ("name = 'x'\ntolerance = 0", "tolerance = 0 is not between", ""),
        ("name = 'x'\ntolerance = 'low'", "tolerance = 'low' is not between", ""),
        ("name = 'x'\nworkloads = 3", "workloads is not a list", "[[workloads]]"),
        ("name = 'x'\nworkloads = [3]", "workload 0 is not a table", ""),
        ("name = 'x'\n[[workloads]]\nconstant = {}", "unknown key 'constant'", "did you mean 'constants'?"),
        ("name = 'x'\n[[workloads]]\nconstants = 3", "constants = 3", ""),
        ("name = 'x'\n[[workloads]]\npurpose = 'fun'", "purpose = 'fun'", ""),
        ("name = 'x'\n[[workloads]]\nconstants = { row = 3 }", "sets 'row', which", "did you mean 'rows'?"),
        ("name = 'x'\n[[workloads]]\nname = 'a'\n[[workloads]]\nname = 'a'", "two workloads named 'a'", ""),
    ],
)
def test_a_native_folder_that_is_wrong(tmp_path: Path, toml: str, message: str, hint: str) -> None:
    folder = _native(tmp_path / "t", toml)
    text, advice = _error(lambda: load_task(folder))
    assert message in text and hint in advice
    assert str(folder) in text


def test_a_native_folder_without_its_reference(tmp_path: Path) -> None:
    folder = _native(tmp_path / "t", "name = 'x'")
    (folder / "reference.py").unlink()
    assert "reference.py' cannot be read" in _error(lambda: load_task(folder))[0]


def test_a_folder_of_tasks_in_natural_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("10_b.py", "2_a.py", "1_c.py", "_helper.py"):
        (tmp_path / name).write_text(REFERENCE)
    (tmp_path / "3_broken.py").write_text("x = 1\n")
    (tmp_path / "notes.txt").write_text("x")
    _native(tmp_path / "4_native", "name = 'fourth'")
    assert [t.task_id for t in load_suite(tmp_path)] == ["1_c", "2_a", "fourth", "10_b"]
    assert "3_broken.py" in caplog.text
    assert [t.task_id for t in load_suite(tmp_path, limit=2)] == ["1_c", "2_a"]
    (tmp_path / "empty").mkdir()
    assert "holds no tasks" in _error(lambda: load_suite(tmp_path / "empty"))[0]
    (tmp_path / "empty" / "a.py").write_text("x = 1\n")
    assert "defines no Model" in _error(lambda: load_suite(tmp_path / "empty"))[0]


def test_rows_with_and_without_candidates(tmp_path: Path) -> None:
    path = _jsonl(
        tmp_path / "rows.jsonl",
        {"problem_id": 7, "reference": REFERENCE, "answer": "class ModelNew: pass"},
        {"problem_id": 8, "reference": REFERENCE, "answer": None},
        {"problem_id": 9, "reference": REFERENCE},
        b"",
        {"problem_id": 10, "reference": REFERENCE, "answer": "  "},
        {"problem_id": 11, "reference": REFERENCE, "answer": "None"},
        {"problem_id": 7, "reference": REFERENCE, "answer": "x = '\ud83d'"},
    )
    rows = read_rows(path, candidate_field="answer")
    assert [row.item_id for row in rows] == ["7", "8", "9", "10", "11", "7#2"]
    assert [row.index for row in rows] == list(range(6))
    texts = [row.candidate.text if row.candidate else None for row in rows]
    assert texts == ["class ModelNew: pass", None, None, None, "None", "x = '?'"]
    assert all(row.task and not row.problem for row in rows)
    assert rows[0].candidate and rows[0].candidate.provenance.origin == "rows.jsonl#7"
    assert [row.item_id for row in read_rows(path, candidate_field="answer", limit=2)] == ["7", "8"]
    assert load_task(f"{path}#7#2").task_id == "7#2"


def test_broken_lines_are_reported_and_not_fatal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = _jsonl(
        tmp_path / "rows.jsonl",
        {"id": "a", "reference": REFERENCE},
        b'{"id": "b", "reference": ',
        b'{"id": "c", "reference": "\xff"}',
        b"[1, 2]",
        {"id": "e", "reference": "x = 1"},
        {"id": "f", "reference": 3},
        b"[" * 100_000,
        {"id": "h", "reference": REFERENCE, "candidate": ["x"]},
        {"id": "i", "reference": REFERENCE},
    )
    rows = read_rows(path, candidate_field="candidate")
    problems = {row.item_id: row.problem for row in rows if row.problem}
    expected = {
        "line-2": "line 2 is not JSON",
        "line-3": "line 3 is not UTF-8",
        "line-4": "line 4 is not a JSON object",
        "e": "defines no Model",
        "f": "no text in the field 'reference'",
        "line-7": "line 7 is not JSON",
        "h": "holds a list in the field 'candidate'",
    }
    assert problems.keys() == expected.keys()
    assert all(expected[name] in str(problems[name]) for name in expected)
    assert all(row.task is None for row in rows if row.problem)
    assert [task.task_id for task in load_suite(path)] == ["a", "h", "i"]
    assert "line 3 is not UTF-8" in caplog.text
    assert "defines no Model" in _error(lambda: load_task(f"{path}#e"))[0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no rows"),
        ([b"{", b"nonsense"], "no row of"),
        ([{"id": 1, "code": REFERENCE}], "has the field 'reference'"),
        ([{"id": 1, "reference": "x = 1"}], "is a task"),
    ],
)
def test_a_file_without_any_task(tmp_path: Path, rows: list[Any], message: str) -> None:
    path = _jsonl(tmp_path / "rows.jsonl", *rows)
    text, hint = _error(lambda: read_rows(path))
    assert message in text and hint
    assert message in _error(lambda: load_suite(path))[0]


def test_wrong_field_names_list_the_fields_there_are(tmp_path: Path) -> None:
    path = _jsonl(tmp_path / "rows.jsonl", {"nr": 1, "code": REFERENCE, "answer": "x"})
    for fields in (
        {"reference_field": "reference"},
        {"reference_field": "code", "candidate_field": "candidate"},
        {"reference_field": "code", "id_field": "id"},
    ):
        text, hint = _error(lambda fields=fields: read_rows(path, **fields))
        assert "has the field" in text and "there are: answer, code, nr" in hint
    assert [row.item_id for row in read_rows(path, reference_field="code", id_field="nr")] == ["1"]
    assert [row.item_id for row in read_rows(path, reference_field="code")] == ["0"]
    assert load_task(f"{path}#1", reference_field="code", id_field="nr").task_id == "1"


def test_a_row_that_is_not_there(tmp_path: Path) -> None:
    path = _jsonl(tmp_path / "rows.jsonl", {"id": "softmax", "reference": REFERENCE})
    assert "near matches: softmax" in _error(lambda: load_task(f"{path}#sofmax"))[1]
    assert "the first is 'softmax'" in _error(lambda: load_task(f"{path}#zzz"))[1]
    assert "cannot be read" in _error(lambda: load_task(f"{path.with_name('none.jsonl')}#1"))[0]
    assert "is a folder" in _error(lambda: read_rows(tmp_path))[0]
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "is not a regular file" in _error(lambda: read_rows(tmp_path / "pipe.jsonl"))[0]
    assert "there is no suite 'startr'" in _error(lambda: load_suite("startr"))[0]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=30) | st.text(max_size=30).map(lambda t: json.dumps({"reference": t}).encode())))
def test_any_bytes_end_in_rows_or_one_error(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "any.jsonl"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(TaskError):
        read_rows(path)
    path.write_bytes(b"\n".join([*lines, json.dumps({"reference": REFERENCE}).encode()]))
    assert [row.task is not None for row in read_rows(path)][-1]


LOAD_INLINE = "from torch.utils.cpp_extension import load_inline\n"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (LOAD_INLINE + "m = load_inline('n', '', '''__global__ void k() {}''')", "cuda"),
        (LOAD_INLINE + "m = load_inline(name='n', cpp_sources=a, cuda_sources=b)", "cuda"),
        ("from kernelwright.cuda import Module\nm = Module(text)", "cuda"),
        ("from kernelwright import cuda\nm = cuda.Module(text)", "cuda"),
        ("import torch\nk = torch.cuda._compile_kernel(text, 'k')", "cuda"),
        (LOAD_INLINE + "m = load_inline('n', '''torch::Tensor f();''', functions=['f'])", "cpp"),
        ("from torch.utils import cpp_extension\nm = cpp_extension.load('n', ['a.cpp'])", "cpp"),
        ("import triton\n@triton.jit\ndef k(): pass", "triton"),
        ("import triton\n@triton.autotune([])\n@triton.jit\ndef k(): pass", "triton"),
        ("from triton import jit\n@jit\ndef k(): pass", "triton"),
        ("s = '#include <hip/hip_runtime.h>\\n__global__ void k() {}'", "hip"),
        ("from torch.cuda.jiterator import _create_jit_fn\nf = _create_jit_fn('template')", "cuda"),
        ("s = '#ifdef USE_ROCM\\n#include <hip/hip_runtime.h>\\n#endif\\n__global__ void k() {}'", "cuda"),
        ('"""A __global__ kernel would be faster."""\nimport torch\n# load_inline, cuda_sources\n', "torch"),
        ("import torch\n@torch.jit.script\ndef f(x): return x", "torch"),
        ("None", "torch"),
        ("", "torch"),
        ("this is no Python: __global__ void k()", "cuda"),
        ("def (:\nload_inline(cuda_sources=x)", "cuda"),
    ],
)
def test_languages_of_python_candidates(text: str, language: str) -> None:
    assert detect_language(text) == language


def test_candidates_from_files(tmp_path: Path) -> None:
    for suffix, language in ((".py", "torch"), (".cu", "cuda"), (".cpp", "cpp"), (".hip", "hip")):
        path = tmp_path / f"mine{suffix}"
        path.write_text("x = 1\n")
        candidate = load_candidate(path)
        assert candidate.language == language
        assert candidate.sources[0].path == f"candidate{suffix}"
        assert candidate.provenance.origin == path.name
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbfx = 1\n")
    assert load_candidate(tmp_path / "bom.py").text == "x = 1\n"


def test_candidates_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("\n")
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    (tmp_path / "dir.py").mkdir()
    (tmp_path / "kernel.txt").write_text("x")
    for name, message in (
        ("none.py", "cannot be read"),
        ("empty.py", "is empty"),
        ("latin.py", "is not UTF-8 text (byte 5)"),
        ("dir.py", "has no candidate.py"),
        ("kernel.txt", "ends in '.txt'"),
    ):
        text, hint = _error(lambda name=name: load_candidate(tmp_path / name), CandidateError)
        assert message in text and name in text and hint


def test_hub_names_that_are_wrong() -> None:
    assert "kernelbench:1 to kernelbench:4" in _error(lambda: load_suite("kernelbench:9"))[1]
    for spec in ("hub:", "hub:name", "hub:/name", "hub:owner/"):
        assert "names no data set" in _error(lambda spec=spec: load_suite(spec))[0]


@pytest.mark.skipif(importlib.util.find_spec("datasets") is not None, reason="`datasets` is installed")
def test_the_hub_without_its_library_says_what_to_install() -> None:
    text, hint = _error(lambda: load_suite("kernelbench:1"))
    assert "`datasets` is not installed" in text and "kernelwright[hub]" in hint


def test_a_hub_that_swallows_packets_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr(hub, "PROBE_SECONDS", 0.3)
        started = time.monotonic()
        assert hub._answers() is False
        assert time.monotonic() - started < 5


@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="needs `datasets`")
def test_a_data_set_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library loads a local folder of that name in place of the Hub's, so this needs no network."""
    (tmp_path / "owner" / "name").mkdir(parents=True)
    rows = [{"code": REFERENCE if i != 1 else "x = 1", "name": f"task {i}", "problem_id": i} for i in range(4)]
    _jsonl(tmp_path / "owner" / "name" / "train.jsonl", *rows)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    assert [t.task_id for t in load_suite("hub:owner/name", id_field="problem_id")] == ["0", "2", "3"]
    assert [t.task_id for t in load_suite("hub:owner/name:train", limit=1)] == ["task 0"]
    assert "cannot be had" in _error(lambda: load_suite("hub:owner/name:test"))[0]


def test_the_examples_of_the_documentation_load(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    blocks = {kind: text for kind, text in reversed(re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL))}
    task = load_task(_native(tmp_path / "t", blocks["toml"], blocks["python"]))
    assert (task.task_id, task.workloads[0].constants) == ("row-softmax", {"batch_size": 7, "dim": 1021})


@pytest.mark.parametrize(
    "text, suffix",
    [
        ("#include <torch/extension.h>\n__global__ void k() {}\n", ".cu"),
        ("// a comment\n #  include <cuda.h>\nvoid f() { k<<<1, 2>>>(); }", ".cu"),
        ("#include <torch/extension.h>\ntorch::Tensor forward(torch::Tensor x) { return x; }", ".cpp"),
        ('import torch\nsource = """\n#include <cuda.h>\n__global__ void k() {}\n"""\n', ".py"),
        ('source = r"""\n#include <cuda.h>\n__global__ void k() {}\n', ".py"),
        ("class ModelNew(nn.Module):\n#include nothing\n    pass", ".py"),
        ("__global__ void k() {}", ".py"),
        ("", ".py"),
    ],
)
def test_what_a_text_without_a_name_is(text: str, suffix: str) -> None:
    assert suffix_of(text) == suffix


def test_a_row_may_hold_a_file_without_python(tmp_path: Path) -> None:
    row = {"reference": REFERENCE, "answer": "#include <torch/extension.h>\n__global__ void k() {}\n"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (found,) = read_rows(tmp_path / "rows.jsonl", candidate_field="answer")
    assert found.candidate is not None and found.candidate.sources[0].path == "candidate.cu"
    assert found.candidate.language == "cuda"
