"""A policy that only repeats its answers is stopped, and told of; one that finds something new is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_optimize import BAD, GOOD, TASK, fenced

from kernelwright.policies import load_policy
from kernelwright.records import Candidate, SourceFile, Task
from kernelwright.search.circles import Circles, advice, in_words
from kernelwright.search.optimize import OptimizeResult, optimize

OTHER = BAD.replace("1.5f", "2.5f")
THIRD = BAD.replace("1.5f", "3.5f")


def found(folder: Path, *answers: str, turns: int = 8) -> OptimizeResult:
    file = folder / "script.jsonl"
    file.write_text("\n".join(json.dumps({"answer": a}) for a in answers))
    return optimize(TASK, load_policy(f"scripted:{file}"), turns=turns)


def commented(code: str, words: str) -> str:
    """Returns the same program with other comments and blanks, in Python and in CUDA."""
    code = code.replace("    int i", f"    // {words}\n    int   i  /* {words} */")
    return f"# {words}\n" + code.replace("class ModelNew", f"\n\n# {words}\nclass ModelNew")


@pytest.mark.parametrize(
    ("answers", "turns"),
    [
        ([BAD, BAD, BAD, GOOD], 3),
        ([BAD, OTHER, BAD, OTHER, GOOD], 4),
        ([BAD, OTHER, THIRD, BAD, OTHER, GOOD], 5),
        ([BAD, OTHER, OTHER, BAD, GOOD], 4),
        ([BAD, commented(BAD, "now right"), commented(BAD, "really"), GOOD], 3),
    ],
    ids=["one", "two in turn", "three in turn", "known ones in any order", "other comments"],
)
def test_circles_are_stopped(tmp_path: Path, answers: list[str], turns: int) -> None:
    result = found(tmp_path, *map(fenced, answers))
    assert result.trajectories[0].stop_reason == "circles" and len(result.trajectories[0].turns) == turns
    assert result.hint is not None and "--policy template" in result.hint
    assert result.public()["stop_reason"] == "circles" and result.public()["hint"] == result.hint


def test_answers_without_code_go_in_circles_too(tmp_path: Path) -> None:
    result = found(tmp_path, "I cannot do that.", "I cannot  do\nthat.", "I cannot do that. ", fenced(GOOD))
    assert result.trajectories[0].stop_reason == "circles" and len(result.trajectories[0].turns) == 3


def test_a_repeated_answer_before_a_new_one_is_no_circle(tmp_path: Path) -> None:
    result = found(tmp_path, *map(fenced, [BAD, BAD, OTHER, BAD, THIRD, GOOD]))
    assert result.trajectories[0].stop_reason == "found" and len(result.trajectories[0].turns) == 6
    assert result.hint is None


def test_it_is_said_in_a_plain_line(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK.source)
    script = tmp_path / "script.jsonl"
    script.write_text("\n".join(json.dumps({"answer": fenced(code)}) for code in (BAD, OTHER, BAD, OTHER)))
    words = ["optimize", tmp_path / "task.py", "--policy", f"scripted:{script}", "--run", tmp_path / "run"]
    command = [sys.executable, "-m", "kernelwright", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert "stopped early: scripted:script.jsonl goes in circles, its last 2 answers repeat earlier ones" in lines
    assert any(line.startswith("hint: --policy template has kernels for this task") for line in lines)


def test_the_template_is_no_hint_for_itself_nor_where_it_fails() -> None:
    assert "--policy template has" in advice(TASK, "starter:folder")
    assert "--policy template" not in advice(TASK, "template") and "tune" in advice(TASK, "template")
    odd = Task(task_id="odd", source=TASK.source.replace("x * 2 + 1", "torch.linalg.qr(x)[0]"))
    assert "--policy template has" not in advice(odd, "starter") and "openai:" in advice(odd, "starter")


def candidate(text: str, path: str = "model_new.py") -> Candidate:
    return Candidate(sources=(SourceFile(path=path, content=text),), language="cuda")


@given(st.text(max_size=60), st.booleans())
def test_any_text_has_its_words(text: str, python: bool) -> None:
    assert in_words(text, python) == in_words(text, python)
    circles = Circles()
    assert [circles.turn("", candidate(text)) for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("first", "second", "python"),
    [
        ("n = a // 2", "n = a // 4", True),
        ("if a:\n    b()\nc()", "if a:\n    b()\n    c()", True),
        ("x = '''int a = 1;'''", "x = '''int a = 2;'''", True),
        ("#define N 4\nint a;", "#define N 8\nint a;", False),
        ("int a = b / 2; // half", "int a = b / 4; // half", False),
    ],
)
def test_what_changes_the_program_changes_its_words(first: str, second: str, python: bool) -> None:
    assert in_words(first, python) != in_words(second, python)
