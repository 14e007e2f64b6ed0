"""The executor on Ray: real Ray processes with two GPUs that the CPU stands in for (`HostDevice`)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judging import ADDING, REFERENCE, broken_task, candidate, python, sleeping, task

from kernelwright.errors import TaskError, UsageError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor.ray_actors import RayActors

ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "kernelwright[ray]"')

ON_HOST = EvalOptions(backend="gpu", trials=1, timing_seconds=0.05, policy="libraries")
ON_CPU = EvalOptions(backend="cpu", trials=1)
SECONDS = 120.0


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ["RAY_AUTH_MODE"] = "disabled"  # or Ray writes a token into the user's home
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Workers find the tests' modules by their name only where the path says so; records travel by value.
    ray.init(
        address="local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    yield
    ray.shutdown()


def _processes() -> list[int]:
    """Returns the processes of the judging actors."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"ray::Judge" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_two_declared_gpus_are_two_actors_with_one_gpu_each() -> None:
    with RayActors(2, backend="gpu", device="cpu") as executor:
        assert (executor.gpus, executor.slots, executor.capacity) == (2, 2, 2)
        assert executor.settle(EvalOptions()).backend == "gpu"
        jobs = [executor.submit(task(n % 2), python(n % 2), ON_HOST) for n in range(6)]
        results = [job.result(SECONDS) for job in jobs]
        visible = ray.get([_environment(executor, slot) for slot in (0, 1)], timeout=SECONDS)
    assert {r.verdict for r in results} == {"correct"}, [r.reason for r in results]
    assert all(r.timing is not None for r in results)
    assert sorted(visible) == ["0", "1"]


def _environment(executor: RayActors, slot: int) -> Any:
    """Returns CUDA_VISIBLE_DEVICES as an actor has it."""
    actor = executor._slots[slot].actor()
    return actor.__ray_call__.remote(lambda _self: os.environ.get("CUDA_VISIBLE_DEVICES"))


def test_several_jobs_share_an_actor() -> None:
    with RayActors(4, backend="gpu", device="cpu") as executor:
        assert (executor.slots, executor.capacity) == (2, 4)
        began = time.monotonic()
        jobs = [executor.submit(task(n % 2), python(n % 2), ON_HOST) for n in range(8)]
        assert {job.result(SECONDS).verdict for job in jobs} == {"correct"}
        assert time.monotonic() - began < SECONDS
        assert len(_processes()) == 2


def test_failing_tasks_come_through_with_their_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_BACKEND", "cpu")
    with RayActors(2) as executor:
        assert executor.gpus == 0 and executor.settle(EvalOptions()).backend == "cpu"
        right = executor.submit(task(1), candidate(1), ON_CPU)
        broken = executor.submit(broken_task(), candidate(1), ON_CPU)
        refused = executor.submit(task(1), candidate(1), ON_HOST)
        with pytest.raises(TaskError, match="no reference") as caught:
            broken.result(SECONDS)
        assert caught.value.hint
        assert right.result(SECONDS).verdict == "correct"
        with pytest.raises(UsageError, match="the Ray cluster has no GPU"):
            refused.result(SECONDS)


def test_a_killed_actors_job_is_judged_by_another_one() -> None:
    with RayActors(2, backend="gpu", device="cpu") as executor:
        jobs = [executor.submit(task(0), sleeping(2.0, n), ON_CPU) for n in range(2)]
        ready = executor.submit(task(0), candidate(0), ON_CPU)
        _until(lambda: len(_processes()) == 2 and all(job.running() for job in jobs))
        time.sleep(0.5)
        os.kill(_processes()[0], signal.SIGKILL)
        results = [job.result(SECONDS) for job in (*jobs, ready)]
        assert sum(job.attempts for job in jobs) >= 3
        assert executor.submit(task(1), candidate(1), ON_CPU).result(SECONDS).verdict == "correct"
    assert "harness_error" not in {r.verdict for r in results}


def test_actors_that_die_each_time_are_our_fault() -> None:
    with RayActors(2, backend="gpu", device="cpu") as executor:
        job = executor.submit(task(0), sleeping(20.0), ON_CPU)
        deadline = time.monotonic() + SECONDS
        while not job.done() and time.monotonic() < deadline:
            for pid in _processes() if job.running() else []:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.5)
        result = job.result(1)
    assert result.verdict == "harness_error" and job.attempts == 2
    assert re.search(r"(went away|no Ray actor came up).*, 2 times", result.reason)


def test_leaving_in_haste_leaves_no_actor() -> None:
    with pytest.raises(KeyboardInterrupt), RayActors(2, backend="gpu", device="cpu") as executor:
        jobs = [executor.submit(task(0), sleeping(0.5, n), ON_CPU) for n in range(6)]
        jobs[0].result(SECONDS)
        raise KeyboardInterrupt
    assert all(job.done() for job in jobs) and any(job.cancelled() for job in jobs)
    _until(lambda: not _processes())


def _until(condition: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def test_a_cluster_that_does_not_answer_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"reference": REFERENCE.format(number=0), "candidate": "x"}))
    command = ["eval", "--jsonl", str(tmp_path / "rows.jsonl"), "--run", str(tmp_path / "run"), "--executor", "ray"]
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright.cli", *command],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "RAY_ADDRESS": "127.0.0.1:1"},
    )
    assert done.returncode == 2 and done.stderr.startswith("error: Ray cannot begin or be reached"), done.stderr
    assert "hint:" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", [["--queue-only"], ["--executor", "ray"]])
def test_the_command_line(tmp_path: Path, words: list[str]) -> None:
    """It runs in its own process, which starts and ends its own cluster."""
    rows = [
        {"id": f"row-{n}", "reference": REFERENCE.format(number=n), "candidate": ADDING.format(number=n)}
        for n in range(4)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = str(tmp_path / "run")
    commands = [["eval", "--jsonl", str(tmp_path / "rows.jsonl"), "--run", run, "--json", *words]]
    if words == ["--queue-only"]:
        commands.append(["worker", run, "--executor", "ray", "--jobs", "2", "--json"])
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "kernelwright.cli", *command],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, "RAY_ADDRESS": "local"},
        )
        assert done.returncode == 0, done.stderr
    assert Counter(json.loads(line)["verdict"] for line in done.stdout.splitlines()) == {"correct": 4}
