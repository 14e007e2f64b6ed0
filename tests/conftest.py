"""What all tests share: the command line as users run it, and the skip of tests that need a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest
from running import Command, Commands

from kernelwright.evaluation.processes import warm
from kernelwright.evaluation.processes.pool import Pool

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["KERNELWRIGHT_BACKEND"] = "cpu"  # what tests mean by `auto`; those of a GPU name it


@cache
def gpu_missing() -> str:
    """Why tests marked `gpu` cannot run here; empty where they can."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA GPU: nvidia-smi is not installed"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return "" if listed.returncode == 0 and listed.stdout.strip() else "no NVIDIA GPU: nvidia-smi lists none"


LONG = (
    "test_sandbox test_honest test_rl test_ladder test_corpus_build test_exploits test_suitebench test_worker "
    "test_program test_examples test_cudabench test_pretrain test_sft test_torch_build test_cli test_bad_input "
    "test_rl_small test_interrupts test_dpo"
).split()
"""Files that take the longest, begun first: one that is begun last has the other cores wait for its end. The first of
all forks its own process, which is safe only while nothing has started threads in it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))
    for item in items:
        if item.get_closest_marker("gpu") is not None and gpu_missing():
            item.add_marker(pytest.mark.skip(reason=gpu_missing()))
        if isinstance(item, pytest.Function) and {"kernelwright", "undecided"} & set(item.fixturenames):
            item.fixturenames.insert(0, "commands_are_warm")


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """One parent of judging processes for a run: starting one imports torch, which takes seconds."""
    made = Pool("auto")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(warm.VARIABLE, raising=False)  # what most users have is what most tests use
        made.warm()
    yield made
    made.close()


@pytest.fixture(scope="session")
def warm_parent() -> Iterator[str]:
    """The address of one warm parent for the command lines of a run; empty where there can be none."""
    if not warm.usable():
        yield ""
        return
    command = [sys.executable, "-m", "kernelwright.cli", "warm"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip().partition("=")[2]
    process.terminate()
    process.wait(20)


@pytest.fixture(scope="module")
def commands_are_warm(warm_parent: str) -> Iterator[None]:
    """From the first test of a module that asks for it on, command lines and judges started anew share the warm parent.

    Whoever starts command lines or trains by execution asks for it."""
    with pytest.MonkeyPatch.context() as patch:
        if warm_parent:
            patch.setenv(warm.VARIABLE, warm_parent)
        yield


@pytest.fixture(scope="session")
def kernelwright() -> Iterator[Command]:
    """Runs the command line in a process of its own: `kernelwright("eval", task, candidate)`."""
    commands = Commands()
    yield commands
    commands.close()
