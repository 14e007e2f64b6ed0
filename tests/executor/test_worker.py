"""`kernelwright worker` as users run it: several at once, killed, interrupted; and `eval --queue-only`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from judging import ADDING, REFERENCE, SLEEPING, broken_task, candidate, task
from running import Command

from kernelwright.evaluation import EvalOptions
from kernelwright.executor.local import Local
from kernelwright.runs import worker
from kernelwright.runs.jobqueue import Queue
from kernelwright.runs.store import Store

SECONDS = 90


def _rows(path: Path, candidates: list[str]) -> Path:
    rows = [
        {"id": f"row-{n}", "reference": REFERENCE.format(number=n % 2), "candidate": text}
        for n, text in enumerate(candidates)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _start(run: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kernelwright.cli", "worker", str(run), "--json", "--jobs", "1", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _counts(run: Path) -> dict[str, int]:
    with Store.open(run, shared=True) as store:
        return dict(store.queue_counts())


def _until_leased(run: Path, owner_of: int) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with Store.open(run, shared=True) as store, store.transaction() as db:
            owners = [o for (o,) in db.execute("SELECT owner FROM queue WHERE state = 'leased'")]
        if any(f":{owner_of}:" in owner for owner in owners):
            return
        time.sleep(0.05)
    pytest.fail("the worker leased nothing")


def _judged(run: Path) -> list[tuple[str, str]]:
    with Store.open(run, writable=False) as store:
        assert len(list(store.evaluations())) == len({e.candidate_id + e.task_hash for e in store.evaluations()})
        return [(i.item_id, i.evaluation.verdict if i.evaluation else i.status) for i in store.items()]


def test_queue_work_and_resume(tmp_path: Path, kernelwright: Command) -> None:
    texts = [ADDING.format(number=n % 2) for n in range(3)] + [ADDING.format(number=7), ""]
    file, run = _rows(tmp_path / "rows.jsonl", texts), tmp_path / "run"
    words = ("eval", "--jsonl", file, "--run", run, "--queue-only", "--json")
    queued = kernelwright(*words)
    assert queued.returncode == 0, queued.stderr
    expected = {"rows": 5, "queued": 4, "resumed": 0, "no_candidate": 1, "bad_tasks": 0}
    assert json.loads(queued.stdout) == expected
    assert _counts(run) == {"queued": 4}
    done = kernelwright("worker", run, "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(name for line in lines for name in line["item_ids"]) == [f"row-{n}" for n in range(4)]
    assert "finished 4 jobs" in done.stderr
    assert _judged(run) == [
        ("row-0", "correct"), ("row-1", "correct"), ("row-2", "correct"), ("row-3", "wrong"), ("row-4", "no_candidate"),
    ]  # fmt: skip
    assert json.loads(kernelwright(*words).stdout) == {**expected, "queued": 0, "resumed": 4}
    again = kernelwright("eval", "--jsonl", file, "--run", run)
    assert "resumed: 4 of 4 were already judged" in again.stdout
    assert kernelwright("worker", tmp_path / "nothing").returncode == 2


def test_the_urgent_comes_first(tmp_path: Path, kernelwright: Command) -> None:
    run = tmp_path / "run"
    for name, priority in (("low", "0"), ("high", "7"), ("middle", "3")):
        file = _rows(tmp_path / f"{name}.jsonl", [ADDING.format(number=0) + f"# {name}\n"])
        file.write_text(file.read_text().replace("row-0", name))
        words = ("eval", "--jsonl", file, "--run", run, "--queue-only", "--priority", priority)
        assert kernelwright(*words).stdout.startswith("queued: 1 of 1 rows")
    assert "in the queue: 3 queued" in kernelwright("report", run).stdout
    done = kernelwright("worker", run, "--json", "--jobs", "1")
    assert [json.loads(line)["item_ids"] for line in done.stdout.splitlines()] == [["high"], ["middle"], ["low"]]
    assert json.loads(kernelwright("report", run, "--json").stdout)["queue"] == {"done": 3}
    alone = kernelwright("eval", "rms_norm", "candidate.py", "--run", run, "--queue-only")
    assert alone.returncode == 2 and "--queue-only needs --jsonl" in alone.stderr


def test_a_killed_workers_jobs_are_taken_over(tmp_path: Path, kernelwright: Command) -> None:
    run = tmp_path / "run"
    texts = [SLEEPING.format(seconds=1.0), *(ADDING.format(number=n % 2) + f"# {n}\n" for n in range(1, 6))]
    kernelwright("eval", "--jsonl", _rows(tmp_path / "rows.jsonl", texts), "--run", run, "--queue-only")
    first = _start(run, "--lease-seconds", "2")
    _until_leased(run, first.pid)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=SECONDS)
    others = [_start(run, "--lease-seconds", "2") for _ in range(2)]
    ends = [process.communicate(timeout=SECONDS) for process in others]
    assert [process.returncode for process in others] == [0, 0], ends
    shown = [json.loads(line)["item_ids"] for out, _ in ends for line in out.splitlines()]
    assert len(shown) == 6, "each job once, by one of the two"
    assert [name for name, _ in _judged(run)] == [f"row-{n}" for n in range(6)]
    assert _counts(run) == {"done": 6}


def test_an_interrupted_worker_keeps_what_it_finished_and_gives_the_rest_back(
    tmp_path: Path, kernelwright: Command
) -> None:
    run = tmp_path / "run"
    texts = [SLEEPING.format(seconds=0.2) + f"# {n}\n" for n in range(20)]
    kernelwright("eval", "--jsonl", _rows(tmp_path / "rows.jsonl", texts), "--run", run, "--queue-only")
    process = _start(run)
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(2)]
    process.send_signal(signal.SIGINT)
    rest, stderr = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in stderr
    counts = _counts(run)
    assert counts.get("leased", 0) == 0 and sum(counts.values()) == 20
    assert len(seen) + len(rest.splitlines()) <= counts["done"] < 20
    with Store.open(run, writable=False) as store:
        assert len(list(store.evaluations())) == counts["done"]


def test_a_worker_that_waits_sees_what_comes(tmp_path: Path, kernelwright: Command) -> None:
    run = tmp_path / "run"
    Store.create(run).close()
    process = _start(run, "--wait", "60")
    texts = [ADDING.format(number=0)]
    assert kernelwright("eval", "--jsonl", _rows(tmp_path / "rows.jsonl", texts), "--run", run, "--queue-only")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["verdict"] == "correct"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130


def test_broken_tasks_and_jobs_that_kill_workers_end(tmp_path: Path) -> None:
    options = EvalOptions(backend="cpu", trials=1).model_dump(mode="json")
    clock = [time.time() - 1000]
    with Store.create(tmp_path / "run") as store, Local(1) as executor:
        dying = Queue(store, "dying", now=lambda: clock[0])
        dying.add(task(1), candidate(1), options, "deadly", (0, "row-0"))
        for _ in range(worker.MOST_ATTEMPTS):
            assert len(dying.lease(1)) == 1
            clock[0] += 10
        dying.add(broken_task(), candidate(1), options, "broken", (1, "row-1"))
        notes: list[str] = []
        assert worker.serve(store, executor, on_job=lambda job, _, note: notes.append(note)) == 2
        assert [(i.item_id, i.status) for i in store.items()] == [("row-0", "judged"), ("row-1", "bad_task")]
        (gone,) = store.evaluations()
        assert gone.verdict == "harness_error" and "3 workers died" in gone.reason
        assert any("no reference" in note for note in notes)
        assert store.queue_counts() == {"failed": 2}


def test_what_was_taken_over_meanwhile_is_not_stored_twice(tmp_path: Path) -> None:
    """A worker that stood still (its machine slept) finds its job done by another one."""
    options = EvalOptions(backend="cpu", trials=1).model_dump(mode="json")
    with Store.create(tmp_path / "run") as store:
        Queue(store).add(task(1), candidate(1), options, "key", (0, "row-0"))

        class Slow(Local):
            def judge(self, job, slot):  # type: ignore[no-untyped-def]
                evaluation = super().judge(job, slot)
                other = Queue(store, "other", now=lambda: time.time() + 1000)
                (leased,) = other.lease(60)
                assert other.finish(leased.key, evaluation)
                return evaluation

        with Slow(1) as executor:
            assert worker.serve(store, executor, lease_seconds=60) == 0
        assert len(list(store.evaluations())) == 1 and store.queue_counts() == {"done": 1}
