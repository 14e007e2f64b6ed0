"""Making shards in processes that die, raise and hang: finished shards are kept, other jobs continue, nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

pytest.importorskip("tokenizers")

from failing_source import Failing, slow

from kernelwright.errors import HarnessError, StoreError
from kernelwright.training.pretrain.shards import Shards, make_shards, read_skipped
from kernelwright.training.pretrain.tokenizer import save_tokenizer, train_tokenizer
from kernelwright.training.pretrain.workers import run_jobs


@pytest.fixture
def tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    save_tokenizer(train_tokenizer(["task", "answer"], 300), tmp_path, 64)
    return tmp_path


def test_shards_that_kill_raise_and_hang_are_lost_alone(tokenizer: Path) -> None:
    source = Failing(tokenizer / "mark", raises=7, dies=11, hangs=13, stumbles=17)
    folder, seen = tokenizer / "shards", []
    make_shards(folder, 60, source, tokenizer, 2, lambda *now: seen.append(now), patience=2.0)
    assert [now[0] for now in seen] == list(range(1, 61)) and seen[-1][1] == 57 * 3
    held = Shards.open(folder, 100)
    assert [n for n, pairs in enumerate(np.diff(held.first)) if not pairs] == [7, 11, 13]
    skipped = read_skipped(folder)
    assert skipped.pop("unreadable") == 57 and sum(skipped.values()) == 3
    reasons = " ".join(skipped)
    assert "this shard cannot be made" in reasons and "status -9" in reasons and "said nothing for 2 s" in reasons
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    make_shards(folder, 60, source, tokenizer, 2, lambda *_: None)
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}  # a lost shard stays lost
    assert not workers()


def test_too_many_lost_shards_end_it_at_once(tokenizer: Path) -> None:
    began = time.monotonic()
    with pytest.raises(HarnessError, match="1 of 4 shards.*cannot be made") as raised:
        make_shards(tokenizer / "shards", 4, Failing(tokenizer / "mark", raises=1), tokenizer, 2, lambda *_: None)
    assert raised.value.hint and time.monotonic() - began < 60
    assert not workers()


def test_what_the_user_must_mend_is_raised_as_it_is(tokenizer: Path) -> None:
    with pytest.raises(StoreError, match="no space") as raised:
        make_shards(tokenizer / "shards", 60, Failing(tokenizer / "mark", full=3), tokenizer, 2, lambda *_: None)
    assert raised.value.hint == "free some" and not workers()
    assert len(list((tokenizer / "shards").glob("*.pairs.npy"))) < 20


def test_a_worker_killed_from_outside_and_one_that_is_stopped(tokenizer: Path) -> None:
    jobs = run_jobs(slow, range(24), 2, 3.0)
    done = [next(jobs).number]
    first, second = workers()
    first.send_signal(signal.SIGKILL)
    second.send_signal(signal.SIGSTOP)
    ended = list(jobs)
    assert sorted(done + [e.number for e in ended]) == list(range(24))
    assert not any(e.lost for e in ended)


def test_closing_ends_processes(tokenizer: Path) -> None:
    jobs = run_jobs(slow, range(400), 2, 30.0)
    next(jobs)
    children = workers()
    assert len(children) == 2
    jobs.close()
    assert not any(map(alive, children))


PARENT = """
from failing_source import hanging
from kernelwright.training.pretrain.workers import run_jobs
list(run_jobs(hanging, range(2), 2, 600.0))
"""


def test_processes_that_hang_end_with_a_killed_parent(tokenizer: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PIDS": str(tokenizer / "pids")}
    (tokenizer / "pids").mkdir()
    parent = subprocess.Popen([sys.executable, "-c", PARENT], env=environment)
    deadline = time.monotonic() + 60
    while len(list((tokenizer / "pids").iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    children = [psutil.Process(int(path.name)) for path in (tokenizer / "pids").iterdir()]
    assert len(children) == 2
    parent.kill()
    parent.wait()
    assert not psutil.wait_procs(children, 10)[1]


def workers() -> list[psutil.Process]:
    """Returns this process's shard workers, without its other children."""
    children = psutil.Process().children(recursive=True)
    return [c for c in children if alive(c) and "kernelwright.training.pretrain.workers" in c.cmdline()]


def alive(process: psutil.Process) -> bool:
    """Tells whether a process is alive and not a zombie."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
