"""Processes that fail to start: each is ended and waited for, and the caller gets an error instead of a wait."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelwright.errors import HarnessError, WorkerDied
from kernelwright.evaluation.processes import pool as pools
from kernelwright.evaluation.processes.pool import ChildLimits, Pool

HANGING = """
import os, time
def serve(channel, level):
    with open(os.environ["HOME"] + "/../hanging", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
"""


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool("none") as made:  # so that the hanging child may leave its process id
        yield made


def test_a_child_that_hangs_at_its_start_is_ended(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hanging_role.py").write_text(HANGING)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = pools.zygote_command
    hang = "from kernelwright.evaluation.processes import roles; roles.MODULES['sampler'] = 'hanging_role'"
    monkeypatch.setattr(pools, "zygote_command", lambda call: command(f"{hang}; {call}"))
    with pytest.raises(WorkerDied, match="a sampler did not come up"):
        pool.spawn("sampler", ChildLimits(), start_seconds=3.0)
    pid = int((pool.home / "hanging").read_text())
    assert not Path(f"/proc/{pid}").exists(), "it was killed and waited for"
    assert not list(pool.home.glob("sampler-*"))


def test_a_zygote_that_hangs_at_its_start_is_ended(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    launch = Pool._launch

    def noted(self: Pool, *arguments: Any) -> subprocess.Popen[bytes]:
        started.append(launch(self, *arguments))
        return started[-1]

    monkeypatch.setattr(Pool, "_launch", noted)
    monkeypatch.setattr(pools, "zygote_command", lambda _call: [sys.executable, "-c", "import time; time.sleep(600)"])
    monkeypatch.setattr(pools, "START_SECONDS", 1.0)
    for _ in range(2):
        with pytest.raises(HarnessError, match="the worker process did not start"):
            pool.warm()
    assert len(started) == 2 and all(process.returncode is not None for process in started)
    assert all(not Path(f"/proc/{process.pid}").exists() for process in started)
