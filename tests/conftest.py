"""What all tests share: the command line as users run it, and the skip of tests that need a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from running import Command

from kernelwright.evaluation.pool import Pool

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["KERNELWRIGHT_BACKEND"] = "cpu"  # what tests mean by `auto`; those of a GPU name it


@cache
def gpu_missing() -> str:
    """Why tests marked `gpu` cannot run here; empty where they can."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA GPU: nvidia-smi is not installed"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return "" if listed.returncode == 0 and listed.stdout.strip() else "no NVIDIA GPU: nvidia-smi lists none"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") is not None and gpu_missing():
            item.add_marker(pytest.mark.skip(reason=gpu_missing()))


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """One parent of judging processes for a run: starting one imports torch, which takes seconds."""
    made = Pool("auto")
    yield made
    made.close()


@pytest.fixture(scope="session")
def kernelwright() -> Command:
    """Runs the command line in a process of its own: `kernelwright("eval", task, candidate)`."""

    def run(*words: str | Path, timeout: float = 120, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kernelwright.cli", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=cwd)

    return run
