"""A model that is on no disk while the Hub does not answer: each command that loads it asks once and reports it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("transformers")

NAME = "nobody/nothing"


@pytest.fixture
def silent() -> Iterator[tuple[str, list[int]]]:
    """Serves an address that closes each connection at once, and counts the connections."""
    listening = socket.create_server(("127.0.0.1", 0))
    came: list[int] = []

    def answer() -> None:
        while True:
            try:
                connection, place = listening.accept()
            except OSError:
                return
            came.append(place[1])
            connection.close()

    threading.Thread(target=answer, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}", came
    listening.close()


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "starter", "--limit", "1", "--samples", "1", "--policy", f"hf:{NAME}", "--run", "run"],
        ["train", "sft", "starter_sft", "--set", f"model.path={NAME}", "--set", "data.path=rows.jsonl", "--out", "out"],
        ["decontaminate", "starter", "--against", "starter", "--embed", NAME],
    ],
)
def test_one_question_then_an_error(words: list[str], silent: tuple[str, list[int]], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "x = 1", "completion": "y = 2"}\n')
    address, came = silent
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home")}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 2 and NAME in done.stderr and "hint: " in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and len(came) == 1
