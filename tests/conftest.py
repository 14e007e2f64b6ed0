"""Fixtures of all tests: the command line as users run it, and the skip of tests that need a GPU."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest
from costs import TESTS, cost
from running import Command, Commands

from kernelwright.evaluation.processes import warm
from kernelwright.evaluation.processes.pool import Pool

os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in the background inherits that Ctrl-C is ignored, and so would every command line that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["KERNELWRIGHT_BACKEND"] = "cpu"  # the meaning of `auto` in tests; GPU tests name the GPU
gc.disable()  # until all tests are collected: walks over what stays take as long as collecting them


@cache
def gpu_missing() -> str:
    """Returns the reason why tests marked `gpu` cannot run here; empty where they can."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA GPU: nvidia-smi is not installed"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return "" if listed.returncode == 0 and listed.stdout.strip() else "no NVIDIA GPU: nvidia-smi lists none"


FIRST = "evaluation/test_sandbox.py"
"""The file that forks its own process, which is safe only while nothing has started threads in it."""

WARM = frozenset("test_apart test_falling test_local test_memory test_optimize test_rl_small".split())
"""Files that start many judges and no command line. Without a warm parent each start imports torch, 2 s of work."""


def _begins(item: pytest.Item) -> tuple[bool, float]:
    """Orders files for `--dist loadfile`: if a long file begins last, the other cores wait for its end."""
    name = item.path.relative_to(TESTS).as_posix()
    return name != FIRST, -cost(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_begins)
    for item in items:
        if item.get_closest_marker("gpu") is not None and gpu_missing():
            item.add_marker(pytest.mark.skip(reason=gpu_missing()))
        if isinstance(item, pytest.Function):
            if {"kernelwright", "undecided"} & set(item.fixturenames) or item.path.stem in WARM:
                item.fixturenames.insert(0, "commands_are_warm")


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def settled_heap() -> None:
    """Exempts what is there from garbage collection: the tests of all files, and modules such as transformers.

    Trainers collect garbage at every step, and each time a process with all tests in it would walk over millions of
    objects.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Returns one zygote for all tests of a run: starting one imports torch, which takes seconds."""
    made = Pool("auto")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(warm.VARIABLE, raising=False)  # most tests use the setting of most users
        made.warm()
    yield made
    made.close()


@pytest.fixture(scope="session")
def warm_parent() -> Iterator[str]:
    """Returns the address of one warm parent for the command lines of a run; empty where there can be none."""
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
    """Lets command lines and new judges share the warm parent, from the first test of a module that asks for it.

    Tests that start command lines or train by execution ask for it, and so do the files named in `WARM`.
    """
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
