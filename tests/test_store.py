"""The run store: nothing is lost, nothing is computed twice, and folders that are no runs are left alone."""

from __future__ import annotations

import contextlib
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelwright.errors import StoreError
from kernelwright.records import (
    Candidate,
    Evaluation,
    Message,
    SourceFile,
    Task,
    Turn,
    Workload,
    WorkloadResult,
)
from kernelwright.runs.store import LARGE, Store

TASK = Task(task_id="t", source="class Model: ...\n" + "# long\n" * 1000)


def _candidate(number: int) -> Candidate:
    # Odd ones are long enough to go to a blob.
    text = f"# candidate {number}\n" * (1 if number % 2 == 0 else 1 + LARGE // 10)
    return Candidate(sources=(SourceFile(path="c.py", content=text),), language="torch")


def _evaluation(number: int, verdict: str = "wrong", log: str = "") -> Evaluation:
    return Evaluation(
        task_id="t",
        task_hash=TASK.content_hash,
        candidate_id=_candidate(number).content_hash,
        verdict=verdict,  # type: ignore[arg-type]
        reason=f"number {number}",
        log=log or f"line of {number}\n" * (number % 3) * 300,
    )


def _in_child(work: Callable[[int], None]) -> tuple[int, int]:
    """Forks a child that runs `work(write end of a pipe)`; returns its process id and the read end."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        status = 1
        with contextlib.suppress(BaseException):
            work(write)
            status = 0
        os._exit(status)
    os.close(write)
    return pid, read


def _judge_some(folder: Path, total: int, report: int, pause: float = 0.0) -> None:
    """Acts as a batch run: looks each result up, and adds it where it is missing. Reports each stored result."""
    with Store.open_or_create(folder, {"total": total}) as store:
        store.add_task(TASK)
        for number in range(total):
            if store.find_evaluation(f"key-{number}") is None:
                store.add_candidate(_candidate(number))
                store.add_evaluation(_evaluation(number), f"key-{number}")
                os.write(report, b"%d\n" % number)
            store.set_item(number, f"item-{number}", "judged", f"key-{number}")
            time.sleep(pause)


def _read_all(fd: int) -> bytes:
    with open(fd, "rb") as stream:
        return stream.read()


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    task = Task(
        task_id="t", source="x = 1\n" * 1000, workloads=(Workload(name="w", constants={"$blob": "no", "n": 3}),)
    )
    log = "é error\n" * 2000
    evaluation = Evaluation(
        task_id="t",
        task_hash=task.content_hash,
        candidate_id=_candidate(1).content_hash,
        verdict="wrong",
        reason="far off",
        log=log,
        workloads=(WorkloadResult(name="w", passed=False, max_abs_error=math.inf),),
        options={"$dict": {"$blob": 1}, "seed": None},
    )
    turn = Turn(index=0, messages=(Message(role="user", content="p" * 9000),), answer="a", evaluation=evaluation)
    with Store.create(tmp_path / "run", {"verb": "eval", "options": {"trials": 3}}) as store:
        assert store.add_task(task) == store.add_task(task) == task.content_hash
        store.add_candidate(_candidate(1))
        store.add_evaluation(evaluation, "key")
        store.set_item(0, "row-0", "judged", "key")
        store.set_item(1, "row-1", "no_candidate", note="no candidate")
        store.add_turn("rollout", turn)
    with Store.open(tmp_path / "run", writable=False) as store:
        assert store.meta["options"] == {"trials": 3}
        assert list(store.tasks()) == [task]
        assert store.candidate(_candidate(1).content_hash) == _candidate(1)
        assert store.find_evaluation("key") == evaluation
        assert list(store.evaluations()) == [evaluation]
        assert [(i.item_id, i.status, i.evaluation) for i in store.items()] == [
            ("row-0", "judged", evaluation),
            ("row-1", "no_candidate", None),
        ]
        assert store.turns() == {"rollout": [turn]}
        assert store.verdict_counts() == {"wrong": 1}
    kept = sqlite3.connect(tmp_path / "run" / "run.sqlite")
    (record,) = kept.execute("SELECT record FROM evaluations").fetchone()
    kept.close()
    assert len(record) < LARGE, "long texts belong into blobs"


def test_equal_texts_are_kept_once_and_records_are_paged(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run") as store:
        for number in range(600):
            store.add_evaluation(_evaluation(number, log="same log\n" * 400), f"key-{number}")
        assert [e.reason for e in store.evaluations()] == [f"number {n}" for n in range(600)]
    assert sum(p.is_file() for p in (tmp_path / "run" / "blobs").rglob("*")) == 1


def test_the_latest_evaluation_counts_and_our_faults_do_not(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run") as store:
        store.add_evaluation(_evaluation(0, "harness_error"), "key")
        assert store.find_evaluation("key") is None
        store.add_evaluation(_evaluation(1), "key")
        store.add_evaluation(_evaluation(2, "harness_error"), "key")
        found = store.find_evaluation("key")
        assert found is not None and found.reason == "number 1"
        assert len(list(store.evaluations())) == 3


def test_a_continued_run_says_so(tmp_path: Path) -> None:
    Store.open_or_create(tmp_path / "run", {"limit": 1}).close()
    with Store.open_or_create(tmp_path / "run", {"limit": 2}) as store:
        assert store.meta["limit"] == 1
        assert [(e.kind, e.data) for e in store.events()] == [("continued", {"limit": 2})]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5) | st.just("long" * LARGE),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "$blob", "$dict"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=st.dictionaries(st.sampled_from(["a", "$blob", "$dict"]), JSON, max_size=3), log=st.text(max_size=30))
def test_round_trip_of_any_options_and_log(tmp_path: Path, options: dict[str, object], log: str) -> None:
    evaluation = Evaluation.model_validate({**_evaluation(0).plain(), "options": options, "log": log * 200})
    with Store.open_or_create(tmp_path / "run") as store:
        store.add_evaluation(evaluation, evaluation.content_hash)
        assert store.find_evaluation(evaluation.content_hash) == evaluation


def test_killed_at_random_points_it_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    """SIGKILL comes at 30 random moments: each reported result is stored, whole and once; the run then continues."""
    rng = random.Random(7)
    folder, total = tmp_path / "run", 800
    reported: set[int] = set()
    ends: Counter[str] = Counter()
    for attempt in range(30):
        pid, pipe = _in_child(lambda report: _judge_some(folder, total, report))
        with open(pipe, "rb") as stream:
            # Every third one is killed soon after its start, the others after a few evaluations of their own.
            lines = [] if attempt % 3 == 0 else [stream.readline() for _ in range(rng.randint(1, 20))]
            time.sleep(rng.random() * (0.02 if attempt % 3 == 0 else 0.003))
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            lines += [line for line in stream.readlines() if line.endswith(b"\n")]
        ends["killed" if os.WIFSIGNALED(status) else "finished"] += 1
        reported |= {int(line) for line in lines}
        if not (folder / "run.sqlite").exists():
            assert not reported
            continue
        with Store.open(folder, writable=False) as store:
            kept = [int(e.reason.split()[1]) for e in store.evaluations()]
            assert reported <= set(kept) and len(set(kept)) == len(kept)
            assert len(set(kept) - reported) <= attempt + 1, "at most one a kill is kept without a report"
            for number in rng.sample(kept, min(3, len(kept))):
                assert store.find_evaluation(f"key-{number}") == _evaluation(number)
                assert store.candidate(_candidate(number).content_hash) == _candidate(number)
    assert ends["killed"] >= 25
    pid, pipe = _in_child(lambda report: _judge_some(folder, total, report))
    _read_all(pipe)
    assert os.waitpid(pid, 0)[1] == 0
    with Store.open(folder) as store:
        assert [i.evaluation.reason for i in store.items() if i.evaluation] == [f"number {n}" for n in range(total)]
        assert sum(store.verdict_counts().values()) == total, "an evaluation was paid for twice"
    left = [p.name for p in [*folder.iterdir(), *(folder / "blobs").iterdir()] if "new" in p.name]
    assert left == []


def test_a_second_process_reads_while_the_first_writes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Store.create(folder).close()
    pid, pipe = _in_child(lambda report: _judge_some(folder, 300, report, pause=0.003))
    code = (
        "import sys, time; from kernelwright.runs.store import Store\n"
        "seen = []\n"
        "end = time.monotonic() + 30\n"
        "while (not seen or seen[-1] < 300) and time.monotonic() < end:\n"
        "    with Store.open(sys.argv[1], writable=False) as store:\n"
        "        seen.append(len([e for e in store.evaluations()]))\n"
        "assert seen == sorted(seen)\n"
        "print(seen[-1], len(set(seen)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=60)
    _read_all(pipe)
    assert os.waitpid(pid, 0)[1] == 0
    assert done.returncode == 0, done.stderr
    last, distinct = (int(word) for word in done.stdout.split())
    assert last == 300 and distinct > 3, "the reader saw nothing of the run while it was written"


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run") as store:
        store.add_task(TASK)
        code = "import sys; from kernelwright.runs.store import Store; Store.open(sys.argv[1])"
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True)
        assert done.returncode != 0
        assert "StoreError: another process is writing to the run" in done.stderr
        with Store.open(tmp_path / "run", writable=False) as reader:
            assert list(reader.tasks()) == [TASK]
    Store.open(tmp_path / "run").close()


def test_a_reader_writes_nothing(tmp_path: Path) -> None:
    Store.create(tmp_path / "run").close()
    with Store.open(tmp_path / "run", writable=False) as store:
        for write in (lambda: store.add_task(TASK), lambda: store.put_blob("x"), lambda: store.add_event("e", 1)):
            with pytest.raises(StoreError):
                write()
    assert not (tmp_path / "run" / "blobs").exists()


@contextlib.contextmanager
def _killed_run(keep_shared_memory: bool) -> Iterator[Path]:
    """Returns a run whose writer was killed with a full log, in a folder without write permission."""
    top = Path(tempfile.mkdtemp(prefix="kw-store-"))
    folder = top / "run"

    def write(report: int) -> None:
        _judge_some(folder, 5, report)
        store = Store.open(folder)
        store.add_evaluation(_evaluation(5), "key-5")
        os.write(report, b"ready\n")
        time.sleep(60)

    try:
        pid, pipe = _in_child(write)
        with open(pipe, "rb") as stream:
            while stream.readline() not in (b"ready\n", b""):
                pass
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        assert (folder / "run.sqlite-wal").stat().st_size > 0
        if not keep_shared_memory:
            (folder / "run.sqlite-shm").unlink()
        for path in [top, *top.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield folder
    finally:
        for path in [top, *top.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        shutil.rmtree(top)


@pytest.mark.parametrize("keep_shared_memory", [True, False])
def test_a_dead_writers_run_is_readable_without_write_permission(keep_shared_memory: bool) -> None:
    def read(report: int) -> None:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        with Store.open(folder, writable=False) as store:
            os.write(report, " ".join(e.reason.split()[1] for e in store.evaluations()).encode())
        try:
            Store.open(folder)
        except StoreError as error:
            os.write(report, f"|{error}".encode())

    with _killed_run(keep_shared_memory) as folder:
        before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
        pid, pipe = _in_child(read)
        answer = _read_all(pipe).decode()
        assert os.waitpid(pid, 0)[1] == 0
        assert {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()} == before
    kept, _, refusal = answer.partition("|")
    assert kept == "0 1 2 3 4 5"
    assert "Permission denied" in refusal and str(folder) in refusal


def _other_version(folder: Path) -> None:
    Store.create(folder).close()
    with contextlib.closing(sqlite3.connect(folder / "run.sqlite")) as db:
        db.execute("PRAGMA user_version = 99")
        db.commit()


def _foreign_database(folder: Path) -> None:
    folder.mkdir()
    with contextlib.closing(sqlite3.connect(folder / "run.sqlite")) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
        db.commit()


def _text_file(folder: Path) -> None:
    folder.mkdir()
    (folder / "run.sqlite").write_text("this is a shopping list\n" * 20)


def _empty_file(folder: Path) -> None:
    folder.mkdir()
    (folder / "run.sqlite").write_bytes(b"")


def _truncated(folder: Path) -> None:
    _corrupt(folder, lambda data: data[:5000])


def _garbled(folder: Path) -> None:
    _corrupt(folder, lambda data: data[:100] + bytes(len(data) - 100))


def _corrupt(folder: Path, change: Callable[[bytes], bytes]) -> None:
    with Store.create(folder) as store:
        for number in range(20):
            store.add_evaluation(_evaluation(number), f"key-{number}")
    path = folder / "run.sqlite"
    path.write_bytes(change(path.read_bytes()))


def _plain_file(folder: Path) -> None:
    folder.write_text("not a folder")


def _no_run(folder: Path) -> None:
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_other_version, "is of version 99; this Kernelwright reads versions 1 to 2"),
        (_foreign_database, "is not a run of Kernelwright"),
        (_text_file, "is not a run of Kernelwright"),
        (_empty_file, "is not a run of Kernelwright"),
        (_truncated, "cannot be used: database disk image is malformed"),
        (_garbled, "cannot be used: database disk image is malformed"),
        (_plain_file, "is not a folder"),
        (_no_run, "holds no run"),
    ],
)
def test_what_is_no_run_of_ours_is_refused_and_left_alone(
    tmp_path: Path, make: Callable[[Path], None], message: str, writable: bool
) -> None:
    folder = tmp_path / "run"
    make(folder)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(StoreError, match=message) as caught:
        Store.open(folder, writable=writable)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert {p: p.read_bytes() for p in before} == before


def test_open_or_create_refuses_the_same_and_keeps_other_files(tmp_path: Path) -> None:
    _other_version(tmp_path / "old")
    _plain_file(tmp_path / "file")
    _no_run(tmp_path / "notes")
    with pytest.raises(StoreError, match="version 99"):
        Store.open_or_create(tmp_path / "old")
    with pytest.raises(StoreError, match="cannot be used"):
        Store.open_or_create(tmp_path / "file")
    with pytest.raises(StoreError, match="cannot be used"):
        Store.open_or_create(tmp_path / "file" / "below")
    with pytest.raises(StoreError, match="cannot be used"):
        Store.open_or_create(tmp_path / ("n" * 300))
    Store.open_or_create(tmp_path / "notes").close()
    assert (tmp_path / "notes" / "notes.txt").read_text() == "mine"
    with pytest.raises(StoreError, match="already holds a run"):
        Store.create(tmp_path / "notes")


def test_processes_that_begin_one_run_at_the_same_moment_all_get_it(tmp_path: Path) -> None:
    for round_ in range(15):
        folder, start = tmp_path / f"run{round_}", time.monotonic() + 0.02

        def begin(write: int, folder: Path = folder, start: float = start) -> None:
            while time.monotonic() < start:
                pass
            with Store.open_or_create(folder, {"kind": "memory"}, shared=True) as store:
                store.add_candidate(_candidate(os.getpid()))
            os.write(write, b"ok")

        children = [_in_child(begin) for _ in range(4)]
        said = [_said_by(*child) for child in children]
        assert said == [b"ok"] * 4
        with Store.open(folder, writable=False) as store:
            assert store.meta["kind"] == "memory"


def _said_by(pid: int, read: int) -> bytes:
    os.waitpid(pid, 0)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read()


def test_a_missing_blob_is_one_clear_error(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run") as store:
        name = store.put_blob("text")
        assert store.get_blob(name) == "text"
        (tmp_path / "run" / "blobs" / name[:2] / name[2:]).unlink()
        with pytest.raises(StoreError, match=f"blob {name[:12]}"):
            store.get_blob(name)


def test_half_written_files_of_a_killed_writer_are_swept_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Store.create(folder) as store:
        store.put_blob("whole")
    left = [folder / "run.sqlite.new", folder / "run.sqlite.new-journal", folder / "blobs" / "new-140"]
    for path in left:
        path.write_text("half")
    Store.open(folder, writable=False).close()
    assert all(path.exists() for path in left)
    with Store.open(folder) as store:
        assert not any(path.exists() for path in left)
        assert store.get_blob(store.put_blob("whole")) == "whole"


def test_where_the_disk_is_full_the_hint_is_to_make_room(tmp_path: Path) -> None:
    """Another folder would be on the same disk, and would lack the finished results."""
    with Store.create(tmp_path / "run") as store:
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")  # SQLite then reports the error of a full disk
        with pytest.raises(StoreError, match="full") as error:
            for n in range(1000):
                store.add_event("note", {"text": f"{n} " * 200})
    assert "make room" in str(error.value.hint) and "same command" in str(error.value.hint)
