"""Promises of all executors: order, bounds, cancelling, a retry for lost jobs, and no hang."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, wait

import pytest
from judging import candidate, task, verdict

from kernelwright.errors import HarnessError, TaskError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor import Full, Job, as_completed, in_order, load_executor
from kernelwright.executor.lanes import Lanes, Lost
from kernelwright.records import Evaluation

SECONDS = 20.0


class Gated(Lanes):
    """Judges when it is released: each job waits for `gate`; `seen` has the tasks in the order of their start."""

    def __init__(self, lanes: int = 1, seats: int = 1, max_pending: int | None = None) -> None:
        super().__init__(lanes, seats, max_pending)
        self.gate = threading.Event()
        self.began = threading.Semaphore(0)
        self.seen: list[tuple[str, int]] = []
        self.loses: set[int] = set()
        self.most = 0
        self._now = 0
        self._count = threading.Lock()

    def judge(self, job: Job, seat: int) -> Evaluation:
        with self._count:
            self._now += 1
            self.most = max(self.most, self._now)
            self.seen.append((job.task.task_id, seat))
        self.began.release()
        assert self.gate.wait(SECONDS)
        with self._count:
            self._now -= 1
        if seat in self.loses:
            raise Lost("its machine was switched off")
        if job.task.task_id == "plus-13":
            raise TaskError("the reference of plus-13 fails")
        return verdict(job.task, job.candidate)


def test_higher_priorities_first_and_the_oldest_of_equals() -> None:
    with Gated(max_pending=10) as executor:
        first = executor.submit(task(0), candidate())
        assert executor.began.acquire(timeout=SECONDS)
        for number, priority in enumerate([0, 2, 1, 2, 0, -1], start=1):
            executor.submit(task(number), candidate(), priority=priority)
        executor.gate.set()
        assert first.result(SECONDS).verdict == "wrong"
    assert [name for name, _ in executor.seen] == [f"plus-{n}" for n in (0, 2, 4, 3, 1, 5, 6)]


class Begun(Gated):
    """An executor whose lanes are all taken by the first jobs until `free` is set."""

    def __init__(self, lanes: int) -> None:
        super().__init__(lanes, max_pending=20)
        self.free = threading.Event()

    def judge(self, job: Job, seat: int) -> Evaluation:
        if job.priority < 0:
            assert self.free.wait(SECONDS)
            return verdict(job.task, job.candidate)
        return super().judge(job, seat)


def test_raised_jobs_leave_lanes_to_the_others() -> None:
    """Three of five lanes serve raised jobs, the other two serve the jobs behind them; no lane is idle for it."""
    with Begun(5) as executor:
        for number in range(5):
            executor.submit(task(number), candidate(), priority=-1)
        for number in range(5, 11):
            executor.submit(task(number), candidate(), priority=1)
        for number in range(11, 13):
            executor.submit(task(number), candidate())
        executor.free.set()
        for _ in range(5):
            assert executor.began.acquire(timeout=SECONDS)
        assert {name for name, _ in executor.seen} == {f"plus-{n}" for n in (5, 6, 7, 11, 12)}
        executor.gate.set()
    assert len(executor.seen) == 8


def test_submit_blocks_while_there_are_too_many() -> None:
    with Gated(lanes=2, max_pending=3) as executor:
        jobs = [executor.submit(task(n), candidate()) for n in range(3)]
        with pytest.raises(Full, match="3 jobs are not done"):
            executor.submit(task(3), candidate(), block=False)
        blocked = threading.Thread(target=lambda: jobs.append(executor.submit(task(4), candidate())))
        blocked.start()
        blocked.join(0.2)
        assert blocked.is_alive() and len(jobs) == 3
        executor.gate.set()
        blocked.join(SECONDS)
        assert len(jobs) == 4
    assert executor.most == 2
    assert all(job.result(0) for job in jobs)


def test_a_cancelled_job_makes_room_and_is_not_judged() -> None:
    with Gated(max_pending=2) as executor:
        running = executor.submit(task(0), candidate())
        assert executor.began.acquire(timeout=SECONDS)
        waiting = executor.submit(task(1), candidate())
        assert waiting.cancel() and waiting.cancel() and not running.cancel()
        after = executor.submit(task(2), candidate(), block=False)
        assert waiting in wait([waiting], timeout=SECONDS).done
        with pytest.raises(CancelledError):
            waiting.result(0)
        executor.gate.set()
        assert after.result(SECONDS).task_id == "plus-2"
    assert [name for name, _ in executor.seen] == ["plus-0", "plus-2"]


def test_a_failing_task_and_a_failing_store_come_through_the_job() -> None:
    def full_disk(_job: Job, _evaluation: Evaluation) -> None:
        raise OSError("no space left")

    with Gated() as executor:
        executor.gate.set()
        bad, unkept = executor.submit(task(13), candidate()), executor.submit(task(1), candidate(), keep=full_disk)
        with pytest.raises(TaskError, match="plus-13"):
            bad.result(SECONDS)
        with pytest.raises(OSError, match="no space"):
            unkept.result(SECONDS)
        assert {job.task.task_id for job in as_completed([bad, unkept], SECONDS)} == {"plus-13", "plus-1"}


def test_what_a_seat_loses_is_judged_at_another_one() -> None:
    with Gated(lanes=2, seats=2) as executor:
        executor.loses = {0}
        results = [executor.submit(task(n), candidate()) for n in range(6)]
        assert all(executor.began.acquire(timeout=SECONDS) for _ in range(2))  # or one seat may have taken them all
        executor.gate.set()
        assert [job.result(SECONDS).verdict for job in results] == ["wrong"] * 6
    twice = [name for name, seat in executor.seen if seat == 0]
    assert twice and all((name, 1) in executor.seen for name in twice)


def test_what_is_lost_twice_is_our_fault() -> None:
    with Gated() as executor:
        executor.loses = {0}
        executor.gate.set()
        result = executor.submit(task(1), candidate()).result(SECONDS)
    assert result.verdict == "harness_error"
    assert "its machine was switched off, 2 times" in result.reason
    assert [name for name, _ in executor.seen] == ["plus-1"] * 2


def test_leaving_in_haste_keeps_what_is_being_judged_and_cancels_the_rest() -> None:
    kept: list[str] = []
    jobs: list[Job] = []
    with pytest.raises(KeyboardInterrupt), Gated(max_pending=9) as executor:
        for number in range(4):
            keep = lambda job, _: kept.append(job.task.task_id)  # noqa: E731
            jobs.append(executor.submit(task(number), candidate(), keep=keep))
        assert executor.began.acquire(timeout=SECONDS)
        threading.Timer(0.2, executor.gate.set).start()
        raise KeyboardInterrupt
    assert kept == ["plus-0"] and jobs[0].result(0)
    assert [job.cancelled() for job in jobs] == [False, True, True, True]
    assert wait(jobs, timeout=1).not_done == set()
    with pytest.raises(HarnessError, match="closed"):
        executor.submit(task(9), candidate())


def test_results_in_the_order_of_the_input_and_not_far_ahead() -> None:
    taken = []

    def pairs():  # type: ignore[no-untyped-def]
        for number in range(30):
            taken.append(number)
            yield task(number), candidate()

    with Gated(lanes=2) as executor:
        executor.gate.set()
        results = in_order(executor, pairs(), EvalOptions())
        first = next(results)
        assert isinstance(first, Evaluation) and first.task_id == "plus-0"
        assert len(taken) <= 6
        rest = list(results)
    assert isinstance(rest[12], TaskError)
    assert [r.task_id for r in rest if isinstance(r, Evaluation)] == [f"plus-{n}" for n in range(1, 30) if n != 13]


def test_many_threads_submit_and_cancel_and_nothing_is_left() -> None:
    jobs: list[Job] = []

    def submit(start: int) -> None:
        for number in range(start, start + 40):
            jobs.append(executor.submit(task(number), candidate(), priority=number % 3))
            if number % 5 == 0:
                jobs[-1].cancel()

    with Gated(lanes=4, max_pending=7) as executor:
        executor.gate.set()
        threads = [threading.Thread(target=submit, args=(1000 * n,)) for n in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
    assert len(jobs) == 160 and all(job.done() for job in jobs)
    judged = [name for name, _ in executor.seen]
    assert len(judged) == len(set(judged)) == sum(not job.cancelled() for job in jobs)
    assert executor.most <= 4


def test_ray_that_is_missing_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelwright.errors import ConfigError, UsageError

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="needs Ray") as caught:
        load_executor("ray", 1)
    assert "kernelwright[ray]" in (caught.value.hint or "")
    with pytest.raises(ConfigError, match="--executor 'dask'"):
        load_executor("dask", 1)


def test_the_interface_loads_neither_torch_nor_ray() -> None:
    code = "import sys, kernelwright.executor; print([m for m in ('torch', 'ray') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_closing_waits_no_longer_than_the_work() -> None:
    executor = Gated()
    executor.gate.set()
    executor.submit(task(0), candidate()).result(SECONDS)
    began = time.monotonic()
    executor.close()
    executor.close()
    assert time.monotonic() - began < 2
