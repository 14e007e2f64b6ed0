"""Detection of processes left hanging by another process's GPU fault; the CPU and stopped children simulate both."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.errors import TaskError, WorkerDied
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes import gpu_faults
from kernelwright.evaluation.processes.gpu_faults import Disturbed, Faults
from kernelwright.evaluation.processes.gpu_seats import Gpu, Trusted
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, SourceFile, Task

TASK = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
"""
SLOW = """
import time
import torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep(60)
        return x
"""


@pytest.fixture
def gpu(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    monkeypatch.setattr(gpu_faults, "STUCK_SECONDS", 0.5)
    made = Gpu(pool, "0", "cpu", makers=1)
    yield made
    made.close()


def stop(trusted: Trusted) -> None:
    """Stops a process, which then looks like one that hangs."""
    trusted.ask("t", {"kind": "facts"})
    assert trusted.child is not None
    os.kill(json.loads(trusted.child.status.recv(4096))["pid"], signal.SIGSTOP)


def test_who_waits_for_ever_after_a_fault_is_started_again(gpu: Gpu) -> None:
    with gpu.seat("a", exclusive=False) as seat:
        stop(seat.referee)
        gpu.faults.note()
        with pytest.raises(Disturbed, match="no answer after another process"):
            seat.referee.ask("t", {"kind": "facts"})
        assert seat.referee.ask("t", {"kind": "facts"}).header["device"]["name"] == "host"


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_slow_reference_is_told_from_that(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, exclusive: bool) -> None:
    """There was no fault since the question, or no other process that could have had one."""
    gpu.faults.note()
    if not exclusive:
        past = time.time() - 60
        os.utime(gpu.faults._path, (past, past))
    with gpu.seat("a", exclusive) as seat:
        stop(seat.referee)
        monkeypatch.setattr(seat.referee, "seconds", 3.0)
        with pytest.raises(TaskError, match="did not finish within 3 s"):
            seat.referee.ask("t", {"kind": "facts"})


def test_a_child_that_does_not_come_up_is_opened_again(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_faults, "OPEN_SECONDS", (0.0, 60.0))
    child = gpu_faults.opened(pool, "gpu_runner", {"name": "cpu", "index": "0"}, programs=False)
    assert child.launch_ms == 0.0 and child.fate().signal == signal.SIGKILL
    child.end()


def test_what_nobody_wants_any_more_is_not_opened_again(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_faults, "OPEN_SECONDS", (0.0, 0.0, 60.0))
    tried: list[bool] = []

    def stopped() -> bool:
        tried.append(True)
        return len(tried) == 2

    with pytest.raises(WorkerDied):
        gpu_faults.opened(pool, "gpu_runner", {"name": "cpu", "index": "0"}, False, stopped)
    assert len(tried) == 2


def test_processes_tell_each_other_of_faults(tmp_path: Path) -> None:
    ours, theirs = Faults(tmp_path / "new" / "gpu-0.fault"), Faults(tmp_path / "new" / "gpu-0.fault")
    assert not ours.since(time.time())
    theirs.note()
    assert ours.since(time.time()) and not ours.since(time.time() + 5)
    unwritable = Faults(Path("/proc/nowhere/gpu-0.fault"))
    unwritable.note()
    assert not unwritable.since(time.time())


@pytest.mark.parametrize("fault", [False, True])
def test_who_ran_out_of_time_beside_a_fault_is_asked_again(pool: Pool, fault: bool) -> None:
    options = EvalOptions(backend="cpu", trials=1, timeout=1.5, timing_seconds=0.0)
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=SLOW),), language="cuda")
    with Evaluator(options, device="cpu", pool=pool) as evaluator:
        task = Task(task_id="t", source=TASK, policy="libraries")
        evaluator.check_task(task)
        evaluator._worker()
        if fault:
            assert evaluator._gpu is not None
            evaluator._gpu.faults.note()
            os.utime(evaluator._gpu.faults._path, (time.time() + 60,) * 2)
        found = evaluator.evaluate(task, candidate)
    assert found.verdict == "timeout"
    assert ("repeated-fault" in [f.rule for f in found.findings]) == fault


def test_a_judgement_whose_referee_waits_for_ever_is_made_again(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_faults, "STUCK_SECONDS", 0.5)
    options = EvalOptions(backend="cpu", trials=1, timeout=20, timing_seconds=0.0)
    code = SLOW.replace("time.sleep(60)\n        return x", "return x.relu()")
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=code),), language="cuda")
    with Evaluator(options, device="cpu", pool=pool) as evaluator:
        task = Task(task_id="t", source=TASK, policy="libraries")
        evaluator._worker()
        assert evaluator._gpu is not None
        with evaluator._gpu.seat(task.content_hash, exclusive=False) as seat:
            stop(seat.referee)
        evaluator._gpu.faults.note()
        os.utime(evaluator._gpu.faults._path, (time.time() + 2,) * 2)
        found = evaluator.evaluate(task, candidate)
    assert found.verdict == "correct", (found.verdict, found.reason)
