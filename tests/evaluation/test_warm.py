"""The warm parent: pools that know its address get a zygote from it, others their own, and both behave alike."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from relu_task import RELU
from running import Command

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes import warm
from kernelwright.evaluation.processes.pool import ChildLimits, Pool
from kernelwright.records import Evaluation, Task
from kernelwright.tasks import candidate_from_text

pytestmark = pytest.mark.skipif(not warm.usable(), reason="no warm parent without seccomp, or with bubblewrap")

CALLS_OUT = """
import os, socket, torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(PLACE)
        raise RuntimeError("it was reached")
"""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def named(warm_parent: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(warm.VARIABLE, warm_parent)
    return warm_parent


@pytest.mark.usefixtures("named")
def test_a_pool_adopts_a_zygote_and_leaves_nothing_behind() -> None:
    pool = Pool()
    pool.warm()
    adopted, home = pool._process, pool.home
    assert isinstance(adopted, warm.Adopted) and parent_of(adopted.pid) != os.getpid()
    environment = Path(f"/proc/{adopted.pid}/cwd").resolve()
    assert environment == home.resolve()
    child = pool.spawn("oracle", ChildLimits(10, 512))
    assert "seccomp" in child.level
    assert str(child.fate()) == "was killed by signal 9"
    child.end()
    pool.close()
    assert adopted.poll() == 0 and not home.exists()


@pytest.mark.usefixtures("named")
def test_a_zygote_that_was_killed_is_replaced() -> None:
    with Pool() as pool:
        pool.warm()
        first = pool._process
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        while first.poll() is None:
            time.sleep(0.01)
        child = pool.spawn("oracle", ChildLimits(10, 512))
        assert isinstance(pool._process, warm.Adopted) and pool._process.pid != first.pid
        child.fate()
        child.end()


@pytest.mark.parametrize("place", ["", "/nowhere/socket", __file__])
def test_without_a_parent_a_pool_starts_its_own(place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(warm.VARIABLE, place)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert warm.adopt({"HOME": str(tmp_path)}, theirs, tmp_path / "log") is None


def test_a_parent_of_older_code_is_not_asked(named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(warm, "version", lambda: "another state of the code")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert warm.adopt({"HOME": str(tmp_path)}, theirs, tmp_path / "log") is None


def test_words_that_make_no_sense_do_not_end_it(named: str) -> None:
    for words in (b"", b"{", b"[]", b"{}", b'{"version": 1}', b"x" * 60000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.connect(named)
            asking.send(words)
            asking.settimeout(10)
            assert asking.recv(100) in (b"", b"{}")
    with Pool() as pool:
        pool.warm()
        assert isinstance(pool._process, warm.Adopted)


def test_a_candidate_cannot_reach_it(named: str) -> None:
    """A process that reaches it could start an unconfined process."""
    with Evaluator(EvalOptions(backend="cpu", trials=1)) as evaluator:
        result = evaluator.evaluate(
            Task(task_id="t", source=RELU), candidate_from_text(CALLS_OUT.replace("PLACE", repr(named)), "c")
        )
    assert isinstance(result, Evaluation) and result.verdict != "correct"
    assert "was reached" not in result.log + result.reason and "PermissionError" in result.log + result.reason


def test_the_command_line(tmp_path: Path, kernelwright: Command) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelwright.cli", "warm"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    name, _, place = process.stdout.readline().strip().removeprefix("export ").partition("=")
    assert name == warm.VARIABLE and Path(place).is_socket() and process.stdout.read() == ""
    (tmp_path / "task.py").write_text(RELU)
    (tmp_path / "c.py").write_text(
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, place)
        done = kernelwright("eval", tmp_path / "task.py", tmp_path / "c.py", "--json", "--backend", "cpu")
    assert json.loads(done.stdout)["verdict"] == "wrong", done.stderr
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130 and not Path(place).parent.exists()
    said = process.stderr.read() if process.stderr else ""
    assert "ended" in said and "continues" not in said and "Traceback" not in said


def test_interrupted_while_it_starts_it_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder was removed while torch was imported there, which printed a long error."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelwright.cli", "warm"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob("*/socket")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and said == "error: interrupted\n" and not list(tmp_path.iterdir()), said
