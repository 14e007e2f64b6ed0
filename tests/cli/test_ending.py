"""What an interrupted command says: that it goes on, where there is something to go on from, and nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from kernelwright.cli.ending import _keeps


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
