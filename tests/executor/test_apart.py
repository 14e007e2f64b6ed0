"""Out-of-process judging: the same verdicts, a retry for the job of a killed process, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from judging import broken_task, candidate, python, sleeping, task

from kernelwright.errors import TaskError, UsageError
from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.processes import warm
from kernelwright.executor import load_executor
from kernelwright.executor.apart import NICE, Apart

OPTIONS = EvalOptions(backend="cpu", trials=1)
ON_HOST = EvalOptions(trials=1, timing_seconds=0.05, policy="libraries")
SECONDS = 60.0


def _judging(of: psutil.Process | None = None) -> list[psutil.Process]:
    """Returns the processes that judge."""
    children = (of or psutil.Process()).children()
    return [p for p in children if "kernelwright.executor.apart" in p.cmdline()]


def test_the_verdicts_are_those_of_local() -> None:
    with load_executor("local", 2) as here, load_executor("apart", 2) as apart:
        found = []
        for executor in (here, apart):
            jobs = [executor.submit(task(1), candidate(n), OPTIONS.changed(seed=7)) for n in (1, 2)]
            found.append([job.result(SECONDS).changed(seconds={}, environment={}) for job in jobs])
        with pytest.raises(TaskError, match="no reference"):
            apart.submit(broken_task(), candidate(1), OPTIONS).result(SECONDS)
    assert [e.verdict for e in found[0]] == ["correct", "wrong"]
    assert [(e.reason, e.workloads, e.findings) for e in found[0]] == [
        (e.reason, e.workloads, e.findings) for e in found[1]
    ]


def test_each_gpu_has_a_process_of_its_own() -> None:
    with Apart(4, gpus=("3", "5"), device="cpu") as executor:
        jobs = [executor.submit(task(n % 3), python(n % 3), ON_HOST) for n in range(8)]
        results = [job.result(SECONDS) for job in jobs]
        assert len(_judging()) == 2
    assert {r.verdict for r in results} == {"correct"}, [r.reason for r in results]
    assert set(Counter(r.environment.gpu_index for r in results)) == {"3", "5"}


def test_what_needs_no_gpu_has_a_process_that_gives_way() -> None:
    with Apart(2, gpus=("0",)) as executor:
        assert executor.submit(task(1), candidate(1), OPTIONS).result(SECONDS).verdict == "correct"
        (process,) = _judging()
        assert process.nice() == psutil.Process().nice() + NICE
    with Apart(1, gpus=()) as executor:
        executor.submit(task(1), candidate(1), OPTIONS).result(SECONDS)
        assert _judging()[0].nice() == psutil.Process().nice()  # there is no GPU process to give way to


def test_a_gpu_that_is_not_there_is_said() -> None:
    with Apart(1, gpus=()) as executor, pytest.raises(UsageError, match="there is no NVIDIA GPU"):
        executor.submit(task(1), candidate(1), EvalOptions(backend="gpu")).result(SECONDS)


def test_what_a_killed_process_had_is_judged_once_more() -> None:
    with Apart(2) as executor:
        assert executor.submit(task(1), candidate(1), OPTIONS).result(SECONDS).verdict == "correct"
        (process,) = _judging()
        jobs = [executor.submit(task(1), sleeping(1.0, n), OPTIONS) for n in (1, 2)]
        time.sleep(0.5)
        process.kill()
        assert {job.result(SECONDS).verdict for job in jobs} == {"wrong"}
        assert [job.attempts for job in jobs] == [2, 2]
        (other,) = _judging()
        assert other.pid != process.pid


def test_a_process_that_is_killed_each_time_is_our_fault() -> None:
    with Apart(1) as executor:
        job = executor.submit(task(1), sleeping(5.0, 1), OPTIONS)
        ended: set[int] = set()
        while not job.done():
            for process in _judging():
                ended.add(process.pid)
                process.kill()
            time.sleep(0.05)
    found = job.result(0)
    assert found.verdict == "harness_error" and "went away" in found.reason and len(ended) == 2


def test_leaving_in_haste_leaves_no_process_behind() -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    kept: list[str] = []
    with pytest.raises(KeyboardInterrupt), Apart(2) as executor:
        jobs = [
            executor.submit(task(0), sleeping(0.3, n), OPTIONS, keep=lambda job, e: kept.append(e.verdict))
            for n in range(6)
        ]
        jobs[0].result(SECONDS)
        raise KeyboardInterrupt
    judged = [job for job in jobs if not job.cancelled()]
    assert len(kept) == len(judged) < 6 and all(job.done() for job in jobs)
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before


CALLER = """
import sys
sys.path[:0] = [{folder!r}]
from judging import candidate, sleeping, task
from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.processes import warm
from kernelwright.executor.apart import Apart
executor = Apart(1)
executor.submit(task(1), candidate(1), EvalOptions(backend="cpu", trials=1)).result(60)
executor.submit(task(1), sleeping(20.0, 1), EvalOptions(backend="cpu", trials=1))
print("judging", flush=True)
sys.stdin.read()
"""


def test_nothing_goes_on_when_the_caller_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(warm.VARIABLE, raising=False)  # a warm parent's zygote is no child of the caller
    text = CALLER.format(folder=str(Path(__file__).parent))
    words = [sys.executable, "-c", text]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None and caller.stdout.readline() == "judging\n"
        (process,) = _judging(psutil.Process(caller.pid))
        children = [process, *process.children(recursive=True)]
        os.kill(caller.pid, signal.SIGKILL)
        gone, left = psutil.wait_procs(children, timeout=30)
    assert len(children) > 1 and not left, left
