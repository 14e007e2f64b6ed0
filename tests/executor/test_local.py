"""The executor of one machine with real evaluators; the CPU stands in for two GPUs (`HostDevice`)."""

from __future__ import annotations

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
from kernelwright.evaluation.options import chosen_gpus
from kernelwright.executor import as_completed, load_executor
from kernelwright.executor.local import Local

OPTIONS = EvalOptions(backend="cpu", trials=2)
# Host functions are no kernels, which is all the same to an executor.
ON_HOST = EvalOptions(trials=1, timing_seconds=0.05, policy="libraries")
SECONDS = 60.0


def test_right_wrong_and_broken() -> None:
    with load_executor("local", 2) as executor:
        right = executor.submit(task(1), candidate(1), OPTIONS)
        wrong = executor.submit(task(1), candidate(2), OPTIONS)
        broken = executor.submit(broken_task(), candidate(1), OPTIONS)
        finished = list(as_completed([right, wrong, broken], SECONDS))
    assert len(finished) == 3
    assert (right.result(0).verdict, wrong.result(0).verdict) == ("correct", "wrong")
    with pytest.raises(TaskError, match="no reference"):
        broken.result(0)


def test_jobs_of_one_executor_may_have_different_options() -> None:
    with Local(2) as executor:
        few = executor.submit(task(1), candidate(1), OPTIONS)
        many = executor.submit(task(1), candidate(1), EvalOptions(backend="cpu", trials=4, sandbox="none"))
        assert [len(job.result(SECONDS).workloads) for job in (few, many)] == [2, 4]
        assert "landlock" not in many.result(0).sandbox
        settled = executor.settle(EvalOptions())
    assert settled.backend == "cpu" and settled.key(task(1), candidate(1)) == EvalOptions().key(task(1), candidate(1))


def test_two_gpus_work_at_once_each_with_a_lease_of_its_own() -> None:
    with Local(4, gpus=("3", "5"), device="cpu") as executor:
        jobs = [executor.submit(task(n % 3), python(n % 3), ON_HOST) for n in range(8)]
        results = [job.result(SECONDS) for job in jobs]
        made = list(executor.evaluators._made.values())
        assert len(made) == 2 and len({id(e.pool) for e in made}) == 1, "one warm parent for both"
        assert len({id(e._gpu.lease) for e in made if e._gpu}) == 2
    assert {r.verdict for r in results} == {"correct"}, [r.reason for r in results]
    assert all(r.timing is not None for r in results)
    used = Counter(r.environment.gpu_index for r in results)
    assert set(used) == {"3", "5"}


def test_a_gpu_that_is_not_there_is_said_once_it_is_asked_for() -> None:
    with Local(1, gpus=()) as executor:
        job = executor.submit(task(1), candidate(1), EvalOptions(backend="gpu"))
        with pytest.raises(UsageError, match="there is no NVIDIA GPU"):
            job.result(SECONDS)


def test_leaving_in_haste_leaves_no_process_behind() -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    kept: list[str] = []
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Local(2) as executor:
        jobs = [
            executor.submit(task(0), sleeping(0.3, n), OPTIONS, keep=lambda job, e: kept.append(e.verdict))
            for n in range(6)
        ]
        jobs[0].result(SECONDS)
        raise KeyboardInterrupt
    assert time.monotonic() - began < 30
    judged = [job for job in jobs if not job.cancelled()]
    assert len(kept) == len(judged) < 6 and all(job.done() for job in jobs)
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before


@pytest.mark.parametrize(
    ("setting", "cards", "chosen"),
    [
        (None, 3, ("0", "1", "2")),
        ("2, 0", 3, ("2", "0")),
        ("", 3, ()),
        ("-1", 3, ()),
        ("0,-1,1", 3, ("0",)),
        ("0,7,1", 3, ("0",)),
        ("GPU-8932f937,MIG-1", 2, ("GPU-8932f937", "MIG-1")),
        (None, 0, ()),
    ],
)
def test_gpus_that_the_environment_leaves(setting: str | None, cards: int, chosen: tuple[str, ...]) -> None:
    assert chosen_gpus(setting, cards) == chosen


def test_a_child_sees_the_gpu_that_it_was_given_and_no_other() -> None:
    code = (
        "import os, torch\nfrom kernelwright.evaluation.device import devices\n"
        "def init(): raise SystemExit(os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "torch.cuda.init = init\ndevices.make('cuda', 'GPU-5')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "GPU-5"


def test_processes_take_turns_on_a_gpu(tmp_path: Path) -> None:
    """Three processes request the GPU all the time: never two hold it at once, and none waits for long."""
    code = """
import sys, time
from pathlib import Path
from kernelwright.evaluation.processes.gpu_seats import Lease
lease, log = Lease(Path(sys.argv[1]) / "gpu-0"), Path(sys.argv[1]) / "log"
end = time.monotonic() + 1.5
while time.monotonic() < end:
    with lease.exclusive(), open(log, "a", buffering=1) as file:
        file.write(f"{sys.argv[2]} begins\\n")
        time.sleep(0.01)
        file.write(f"{sys.argv[2]} ends\\n")
"""
    names = ["a", "b", "c"]
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in names]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    lines = (tmp_path / "log").read_text().splitlines()
    pairs = list(zip(lines[::2], lines[1::2], strict=True))
    assert all(begins == ends.replace("ends", "begins") for begins, ends in pairs)
    turns = Counter(line.split()[0] for line in lines[::2])
    assert set(turns) == set(names)
    first, last = lines.index("a begins"), len(lines) - lines[::-1].index("a ends")
    together = [line.split()[0] for line in lines[first:last:2]]
    assert max(len(together) / max(1, together.count(name)) for name in names) < 8, turns


def test_locks_of_gpus_lie_in_one_place_for_all_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with caches of their own take turns on a GPU; a folder that is not ours is not used."""
    from kernelwright.evaluation.processes import gpu_seats

    monkeypatch.setattr(gpu_seats, "LOCKS", tmp_path / "locks")
    folder = gpu_seats.lock_folder(tmp_path / "one")
    assert folder == gpu_seats.lock_folder(tmp_path / "other") and folder.stat().st_mode & 0o077 == 0
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert gpu_seats.lock_folder(tmp_path / "one") == tmp_path / "one" / "leases"
    monkeypatch.setattr(gpu_seats, "LOCKS", tmp_path / "missing" / "locks")
    assert gpu_seats.lock_folder(tmp_path / "one") == tmp_path / "one" / "leases"


def test_a_lease_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom kernelwright.evaluation.processes.gpu_seats import Lease\n"
        "with Lease(Path(sys.argv[1]) / 'gpu-0').exclusive():\n    print('held', flush=True)\n    time.sleep(60)"
    )
    from kernelwright.evaluation.processes.gpu_seats import Lease

    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    process.kill()
    process.wait(10)
    process.stdout.close()
    began = time.monotonic()
    with Lease(tmp_path / "gpu-0").exclusive():
        assert time.monotonic() - began < 5
