"""The queue of a run: its promises hold for any order of events, and for killed processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from judging import candidate, task, verdict

from kernelwright.errors import StoreError
from kernelwright.records import Gate
from kernelwright.runs.jobqueue import Leased, Queue
from kernelwright.runs.store import Store

OPTIONS = {"trials": 3}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "run") as made:
        yield made


def _add(queue: Queue, number: int, priority: int = 0, position: int | None = None, fresh: bool = False) -> str:
    item = (number if position is None else position, f"row-{number if position is None else position}")
    return queue.add(task(number), candidate(number), OPTIONS, f"key-{number}", item, priority, fresh)


def _result(leased: Leased, name: str = "wrong"):  # type: ignore[no-untyped-def]
    return verdict(leased.task, leased.candidate, f"for {leased.key}", name)


def test_a_job_comes_out_as_it_went_in(store: Store) -> None:
    gate = Gate(protocol=1, of="x", state="hardened", distributions=("peaked",))
    queue = Queue(store, "w")
    gated = task(1).model_copy(update={"gate": gate})
    queue.add(gated, candidate(1), OPTIONS, "key", (4, "row-4"))
    (leased,) = queue.lease(60)
    assert (leased.task, leased.candidate, leased.options) == (gated, candidate(1), OPTIONS)
    assert (leased.key, leased.attempts, leased.items) == ("key", 1, ("row-4",))


def test_priorities_then_age(store: Store) -> None:
    queue = Queue(store, "w")
    for number, priority in enumerate([0, 5, 0, 5, 9]):
        _add(queue, number, priority)
    _add(queue, 2, priority=7)  # wanted again, more urgently
    assert [leased.key for leased in queue.lease(60, 9)] == [f"key-{n}" for n in (4, 2, 1, 3, 0)]


def test_rows_with_equal_candidates_are_one_job(store: Store) -> None:
    queue = Queue(store, "w")
    assert [_add(queue, 1, position=p) for p in (3, 0, 7)] == ["queued"] * 3
    (leased,) = queue.lease(60, 5)
    assert leased.items == ("row-0", "row-3", "row-7")
    assert queue.finish(leased.key, _result(leased))
    assert [(i.position, i.status, i.evaluation) for i in store.items()] == [
        (p, "judged", _result(leased)) for p in (0, 3, 7)
    ]
    assert _add(queue, 1, position=8) == "judged"
    assert len(store.items()) == 4 and len(list(store.evaluations())) == 1


def test_only_the_holder_finishes(store: Store) -> None:
    clock = [100.0]
    one, two = (Queue(store, name, now=lambda: clock[0]) for name in ("one", "two"))
    _add(one, 1)
    (mine,) = one.lease(10)
    assert two.lease(10) == []
    clock[0] += 9
    assert one.renew(10) == 1
    clock[0] += 9
    assert two.lease(10) == []
    clock[0] += 2
    (theirs,) = two.lease(10)
    assert theirs.attempts == 2
    assert one.renew(10) == 0
    assert not one.finish(mine.key, _result(mine)) and not one.fail(mine.key, "no")
    one.give_back()
    assert two.finish(theirs.key, _result(theirs))
    assert not two.finish(theirs.key, _result(theirs)), "it is finished"
    assert len(list(store.evaluations())) == 1 and store.queue_counts() == {"done": 1}


def test_a_lease_that_ran_out_and_that_nobody_took_still_counts(store: Store) -> None:
    clock = [0.0]
    queue = Queue(store, "w", now=lambda: clock[0])
    _add(queue, 1)
    (leased,) = queue.lease(10)
    clock[0] = 1000.0
    assert queue.finish(leased.key, _result(leased))


def test_failed_jobs_can_be_queued_again(store: Store) -> None:
    queue = Queue(store, "w")
    _add(queue, 1)
    _add(queue, 2)
    first, second = queue.lease(60, 2)
    queue.fail(first.key, "its reference fails")
    queue.finish(second.key, _result(second, "harness_error"))
    assert store.queue_counts() == {"failed": 2} and queue.lease(60) == []
    assert [(i.status, i.note) for i in store.items()] == [("bad_task", "its reference fails"), ("judged", "")]
    assert [_add(queue, n) for n in (1, 2)] == ["queued"] * 2
    assert [leased.attempts for leased in queue.lease(60, 2)] == [1, 1]


def test_what_was_judged_in_another_way_is_not_leased(store: Store) -> None:
    queue = Queue(store, "w")
    _add(queue, 1)
    _add(queue, 2)
    store.add_evaluation(verdict(task(1), candidate(1)), "key-1")
    assert [leased.key for leased in queue.lease(60, 2)] == ["key-2"]
    store.add_evaluation(verdict(task(2), candidate(2)), "key-2")
    assert queue.finish("key-2", verdict(task(2), candidate(2), "again"))
    assert len(list(store.evaluations())) == 2 and store.queue_counts() == {"done": 2}
    assert [i.status for i in store.items()] == ["judged", "judged"]


def test_fresh_judges_again(store: Store) -> None:
    queue = Queue(store, "w")
    _add(queue, 1)
    (leased,) = queue.lease(60)
    queue.finish(leased.key, _result(leased))
    assert _add(queue, 1, fresh=True) == "queued"
    (again,) = queue.lease(60)
    assert queue.finish(again.key, _result(again)) and len(list(store.evaluations())) == 2


def test_several_inputs_in_one_run_keep_their_rows_apart(store: Store) -> None:
    queue = Queue(store, "w")
    for name in ("first", "second", "first", "second"):
        for row in range(2):
            number = row if name == "first" else 10 + row
            queue.add(task(number), candidate(number), OPTIONS, f"key-{number}", (row, f"{name}-{row}"))
    for leased in queue.lease(60, 9):
        queue.finish(leased.key, _result(leased))
    rows = ["first-0", "first-1", "second-0", "second-1"]
    assert [(i.position, i.item_id) for i in store.items()] == list(enumerate(rows))
    assert queue.add(task(11), candidate(11), OPTIONS, "key-11", (1, "second-1")) == "judged"
    assert [i.item_id for i in store.items()] == rows


class AnyOrder(RuleBasedStateMachine):
    """Runs three workers and a clock in any order, and compares with a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store.create(Path(self.folder.name) / "run")
        self.now = 0.0
        self.workers = [Queue(self.store, f"worker-{n}", now=lambda: self.now) for n in range(3)]
        self.held: list[dict[str, tuple[Leased, float]]] = [{} for _ in self.workers]
        self.added: dict[str, tuple[int, int]] = {}
        self.over: dict[str, str] = {}

    def teardown(self) -> None:
        self.now += 1e6
        last = Queue(self.store, "last", now=lambda: self.now)
        while leased := last.lease(10, 4):
            for job in leased:
                assert job.key not in self.over
                assert last.finish(job.key, _result(job))
                self.over[job.key] = "done"
        assert set(self.over) == set(self.added), "a job was lost"
        count = Counter(e.reason for e in self.store.evaluations())
        assert all(n == 1 for n in count.values())
        assert len(count) == sum(state == "done" for state in self.over.values())
        self.store.close()
        self.folder.cleanup()

    def _takeable(self) -> list[str]:
        taken = {key for held in self.held for key, (_, until) in held.items() if until >= self.now}
        waiting = [key for key in self.added if key not in self.over and key not in taken]
        return sorted(waiting, key=lambda key: (-self.added[key][0], self.added[key][1]))

    @rule(number=st.integers(0, 9), priority=st.integers(-1, 2))
    def add(self, number: int, priority: int) -> None:
        key = f"key-{number}"
        known = self.over.get(key)
        said = _add(self.workers[0], number, priority)
        if known == "done":
            assert said == "judged"
            return
        assert said == "queued"
        self.over.pop(key, None)
        old, age = self.added.get(key, (priority, len(self.added)))
        self.added[key] = (max(old, priority), age)

    @rule(who=st.integers(0, 2), count=st.integers(0, 3), seconds=st.sampled_from([5, 20]))
    def lease(self, who: int, count: int, seconds: int) -> None:
        expected = self._takeable()[:count]
        leased = self.workers[who].lease(seconds, count)
        assert [job.key for job in leased] == expected
        for job in leased:
            for held in self.held:
                held.pop(job.key, None)
            self.held[who][job.key] = (job, self.now + seconds)

    @rule(seconds=st.sampled_from([1, 6, 30]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(who=st.integers(0, 2))
    def renew(self, who: int) -> None:
        assert self.workers[who].renew(10) == len(self.held[who])
        self.held[who] = {key: (job, self.now + 10) for key, (job, _) in self.held[who].items()}

    @precondition(lambda self: any(self.held))
    @rule(who=st.integers(0, 2), data=st.data(), fails=st.booleans())
    def finish(self, who: int, data: st.DataObject, fails: bool) -> None:
        key = data.draw(st.sampled_from(sorted({key for held in self.held for key in held})))
        job = next(held[key][0] for held in self.held if key in held)
        mine = key in self.held[who]
        queue = self.workers[who]
        said = queue.fail(key, "its reference fails") if fails else queue.finish(key, _result(job))
        assert said == mine
        if mine:
            del self.held[who][key]
            self.over[key] = "failed" if fails else "done"

    @rule(who=st.integers(0, 2))
    def give_back(self, who: int) -> None:
        self.workers[who].give_back()
        self.held[who].clear()

    @rule(who=st.integers(0, 2))
    def die(self, who: int) -> None:
        """Kills a worker: its leases stay, and a new worker with another name replaces it."""
        self.workers[who] = Queue(self.store, f"{self.workers[who].owner}+", now=lambda: self.now)
        orphans = self.held[who]
        self.held[who] = {}
        self.held.append(orphans)  # without an owner until their leases expire

    @invariant()
    def states_are_those_of_the_model(self) -> None:
        counts = self.store.queue_counts()
        held = sum(len(held) for held in self.held)
        assert counts.get("leased", 0) == held
        assert counts.get("queued", 0) == len(self.added) - len(self.over) - held
        assert counts.get("done", 0) + counts.get("failed", 0) == len(self.over)


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_any_order_of_events = AnyOrder.TestCase


def _work(folder: Path, lease: float) -> None:
    """Acts as a small worker process: runs until no job is left, or until it is killed."""
    with Store.open(folder, shared=True) as store:
        queue = Queue(store, f"process-{os.getpid()}")
        while {"queued", "leased"} & set(store.queue_counts()):
            for leased in queue.lease(lease, 3):
                time.sleep(0.006)
                queue.finish(leased.key, _result(leased))


def test_killed_workers_lose_nothing_and_judge_nothing_twice(tmp_path: Path) -> None:
    """Three processes serve one run; for a while one after another is killed at a random moment and replaced."""
    rng = random.Random(3)
    folder, total = tmp_path / "run", 400
    with Store.create(folder) as store:
        queue = Queue(store)
        for number in range(total):
            _add(queue, number)
    alive: list[int] = []
    killed = 0
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            while len(alive) < 3:
                if (pid := os.fork()) == 0:
                    status = 1
                    with contextlib.suppress(BaseException):
                        _work(folder, lease=0.5)
                        status = 0
                    os._exit(status)
                alive.append(pid)
            if killed < 15:
                time.sleep(rng.random() * 0.1)
                victim = alive.pop(rng.randrange(3))
                os.kill(victim, signal.SIGKILL)
                killed += os.WIFSIGNALED(os.waitpid(victim, 0)[1])
            else:
                assert [os.waitstatus_to_exitcode(os.waitpid(alive.pop(), 0)[1]) for _ in range(3)] == [0, 0, 0]
                break
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert killed >= 5
    with contextlib.closing(sqlite3.connect(folder / "run.sqlite")) as db:
        assert db.execute("SELECT max(attempts) FROM queue").fetchone()[0] > 1, "no kill took a job from anybody"
    with Store.open(folder) as store:
        assert store.queue_counts() == {"done": total}
        counted = Counter(e.reason for e in store.evaluations())
        assert counted == {f"for key-{n}": 1 for n in range(total)}
        assert [i.item_id for i in store.items() if i.evaluation] == [f"row-{n}" for n in range(total)]
    left = [p.name for p in (folder / "blobs").glob("new-*")] if (folder / "blobs").exists() else []
    assert left == []


def test_sharing_the_run_excludes_a_single_writer_and_the_other_way_round(tmp_path: Path) -> None:
    Store.create(tmp_path / "run").close()
    with Store.open(tmp_path / "run", shared=True), Store.open(tmp_path / "run", shared=True) as second:
        _add(Queue(second), 1)
        with pytest.raises(StoreError, match="another process is writing"):
            Store.open(tmp_path / "run")
    with Store.open(tmp_path / "run"), pytest.raises(StoreError, match="another process is writing"):
        Store.open(tmp_path / "run", shared=True)


def _as_version_1(folder: Path) -> None:
    """Rewrites a run as the version before the queue wrote it."""
    with contextlib.closing(sqlite3.connect(folder / "run.sqlite")) as db:
        db.execute("DROP INDEX items_by_name")
        db.execute("DROP TABLE queue")
        db.execute("DROP TABLE queue_items")
        db.execute("PRAGMA user_version = 1")
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def test_a_run_of_version_1_is_read_as_it_is_and_brought_up_when_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Store.create(folder, {"verb": "eval"}) as store:
        store.add_evaluation(verdict(task(1), candidate(1)), "key-1")
    _as_version_1(folder)
    before = (folder / "run.sqlite").read_bytes()
    with Store.open(folder, writable=False) as store:
        assert len(list(store.evaluations())) == 1 and store.queue_counts() == {}
    assert (folder / "run.sqlite").read_bytes() == before
    with Store.open(folder, shared=True) as store:
        assert store.meta["verb"] == "eval" and store.find_evaluation("key-1") is not None
        queue = Queue(store, "w")
        assert [_add(queue, n) for n in (1, 2)] == ["judged", "queued"]
    assert (folder / "run.sqlite").read_bytes()[60:64] == b"\0\0\0\2", "an older version must see it in the file's head"
