"""Messages of an interrupted command: they tell how to resume where there is something to resume, and no more."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.cli.ending import _keeps, _unforeseen
from kernelwright.cli.options import no_folder
from kernelwright.errors import ConfigError


@pytest.mark.parametrize(
    ("command", "keeps"),
    [
        ("eval task.py candidate.py", False),
        ("eval task.py candidate.py --run r", True),
        ("eval --jsonl rows.jsonl --run=r", True),
        ("worker r", True),
        ("machine run program.cu", False),
        ("profile task.py candidate.py", False),
        ("tasks generate --count 5", False),
        ("tasks generate --out tasks.jsonl", True),
        ("corpus build --out c", True),
        ("train sft cuset", True),
        ("train sft cuset --explain 3", False),
        ("", False),
    ],
)
def test_what_can_be_gone_on_with(command: str, keeps: bool) -> None:
    assert _keeps(command.split()) is keeps


def test_a_command_that_kept_nothing_does_not_say_so() -> None:
    command = [sys.executable, "-m", "kernelwright", "tasks", "generate", "--count", "1000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and said == "error: interrupted\n", said


def test_what_one_may_not_use_is_no_bug_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert _unforeseen(PermissionError(errno.EACCES, "Permission denied", "/closed/run.sqlite")) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: '/closed/run.sqlite' cannot be used: Permission denied\nhint: "), said
    assert "bug" not in said and _unforeseen(FileNotFoundError(errno.ENOENT, "No such file", "/none")) == 3
    assert "bug" in capsys.readouterr().err


def test_a_folder_in_the_place_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="--out"):
        no_folder("--out", tmp_path)
    no_folder("--out", tmp_path / "none")
    no_folder("--out", None)

    def closed(*_args: object, **_named: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "x")

    monkeypatch.setattr(os, "stat", closed)
    no_folder("--out", tmp_path / "closed" / "page.html")  # the write then reports the error
