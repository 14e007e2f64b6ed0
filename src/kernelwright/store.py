"""A run on disk: an append-only SQLite file and content-addressed blobs, written by one process, read by any number.

Every addition is one committed transaction, and a blob is on disk before the row that names it, so `kill -9` at any
moment loses at most what was not yet added. Finished evaluations are found again by key: a rerun pays for nothing
twice. This module judges nothing and prints nothing.

    RUN/run.sqlite       meta, tasks, candidates, evaluations, items, turns
    RUN/blobs/ab/cdef…   sources and logs, named by the SHA-256 of their text
    RUN/writer.lock      held while a process writes
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernelwright.errors import StoreError
from kernelwright.records import Candidate, Evaluation, Task, Turn

SCHEMA_VERSION = 1
APPLICATION_ID = 0x4B575247  # "KWRG": tells our files from other SQLite files
LARGE = 2048
"""Texts longer than this many characters go to blobs."""

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE tasks (hash TEXT PRIMARY KEY, task_id TEXT NOT NULL, record TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE candidates (hash TEXT PRIMARY KEY, code_hash TEXT NOT NULL, record TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE evaluations (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, task_hash TEXT NOT NULL, candidate TEXT NOT NULL,
    verdict TEXT NOT NULL, record TEXT NOT NULL, created REAL NOT NULL);
CREATE INDEX evaluations_by_key ON evaluations (key);
CREATE TABLE items (
    id INTEGER PRIMARY KEY, position INTEGER NOT NULL, item_id TEXT NOT NULL, status TEXT NOT NULL,
    evaluation INTEGER, note TEXT NOT NULL, created REAL NOT NULL);
CREATE INDEX items_by_position ON items (position);
CREATE TABLE turns (
    id INTEGER PRIMARY KEY, rollout TEXT NOT NULL, position INTEGER NOT NULL, record TEXT NOT NULL,
    created REAL NOT NULL);
"""


@dataclass(frozen=True)
class Item:
    """One row of a run's input. `status` is `judged`, `no_candidate` or `bad_task`; `note` says why, in one line."""

    position: int
    item_id: str
    status: str
    evaluation: Evaluation | None
    note: str = ""


class Store:
    """A run folder. Make one with `create`, `open` or `open_or_create`; close it, or use it in a `with`."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock_fd: int | None) -> None:
        self.folder = folder
        self._db = connection
        self._lock_fd = lock_fd
        self._mutex = threading.Lock()

    @classmethod
    def create(cls, folder: Path | str, meta: dict[str, Any] | None = None) -> Self:
        """A new run. Raises `StoreError` when the folder holds one already, or cannot be written."""
        path = Path(folder)
        if (path / "run.sqlite").exists():
            raise StoreError(
                f"{str(path)!r} already holds a run", hint="name another folder, or continue the run there"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = _lock(path)
            # Built beside its place and renamed, so that a kill leaves a whole database or none.
            temporary = path / f"run.sqlite.{os.getpid()}.new"
            temporary.unlink(missing_ok=True)
            with contextlib.closing(sqlite3.connect(temporary)) as db:
                db.executescript(_SCHEMA)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                db.execute("INSERT INTO meta VALUES ('created', ?)", (json.dumps(time.time()),))
                for key, value in (meta or {}).items():
                    db.execute("INSERT INTO meta VALUES (?, ?)", (key, json.dumps(value)))
                db.commit()
            os.replace(temporary, path / "run.sqlite")
        except (OSError, sqlite3.Error) as error:
            raise _unusable(path, error) from error
        return cls(path, _connect(path, writable=True), lock)

    @classmethod
    def open(cls, folder: Path | str, writable: bool = True) -> Self:
        """An existing run. Raises `StoreError` for anything that is not one, or is of another version."""
        path = Path(folder)
        if not (path / "run.sqlite").is_file():
            what = "is not a folder" if path.exists() and not path.is_dir() else "holds no run"
            raise StoreError(f"{str(path)!r} {what}", hint="name a folder that an earlier command wrote with --run")
        lock = None
        try:
            _check(path)
            lock = _lock(path) if writable else None
            return cls(path, _connect(path, writable), lock)
        except (OSError, sqlite3.Error) as error:
            if lock is not None:
                os.close(lock)
            raise _unusable(path, error) from error

    @classmethod
    def open_or_create(cls, folder: Path | str, meta: dict[str, Any] | None = None) -> Self:
        """Continues the run in a folder, or begins one there."""
        path = Path(folder)
        return cls.open(path) if (path / "run.sqlite").exists() or path.is_file() else cls.create(path, meta)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file and gives up the writer's lock. May be called twice."""
        with self._mutex:
            self._db.close()
            if self._lock_fd is not None:
                os.close(self._lock_fd)
                self._lock_fd = None

    @property
    def meta(self) -> dict[str, Any]:
        """What the run was started with."""
        return {key: json.loads(value) for key, value in self._rows("SELECT key, value FROM meta")}

    def add_task(self, task: Task) -> str:
        """Keeps a task; returns its content hash."""
        record = self._pack(task.model_dump(mode="json"))
        row = (task.content_hash, task.task_id, record, time.time())
        self._write("INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?)", row)
        return task.content_hash

    def add_candidate(self, candidate: Candidate) -> str:
        """Keeps a candidate; returns its content hash."""
        record = self._pack(candidate.model_dump(mode="json"))
        row = (candidate.content_hash, candidate.code_hash, record, time.time())
        self._write("INSERT OR IGNORE INTO candidates VALUES (?, ?, ?, ?)", row)
        return candidate.content_hash

    def add_evaluation(self, evaluation: Evaluation, key: str) -> int:
        """Keeps an evaluation under the key of its task, candidate and options; returns its row."""
        record = self._pack(evaluation.model_dump(mode="json"))
        row = (key, evaluation.task_hash, evaluation.candidate_id, evaluation.verdict, record, time.time())
        return self._write(
            "INSERT INTO evaluations (key, task_hash, candidate, verdict, record, created) VALUES (?, ?, ?, ?, ?, ?)",
            row,
        )

    def find_evaluation(self, key: str) -> Evaluation | None:
        """The evaluation kept under a key, the latest one; a fault of ours does not count as finished."""
        rows = self._rows(
            "SELECT record FROM evaluations WHERE key = ? AND verdict != 'harness_error' ORDER BY id DESC LIMIT 1", key
        )
        return self._evaluation(rows[0][0]) if rows else None

    def evaluations(self) -> Iterator[Evaluation]:
        """All evaluations, in the order in which they were added."""
        for (record,) in self._rows("SELECT record FROM evaluations ORDER BY id"):
            yield self._evaluation(record)

    def tasks(self) -> Iterator[Task]:
        """All tasks, in the order in which they were added."""
        for (record,) in self._rows("SELECT record FROM tasks ORDER BY rowid"):
            yield Task.model_validate(self._unpack(record))

    def candidate(self, content_hash: str) -> Candidate | None:
        """A candidate by its content hash."""
        rows = self._rows("SELECT record FROM candidates WHERE hash = ?", content_hash)
        return Candidate.model_validate(self._unpack(rows[0][0])) if rows else None

    def set_item(self, position: int, item_id: str, status: str, key: str | None = None, note: str = "") -> None:
        """Notes what became of one row of the input; `key` names its evaluation."""
        found = self._rows("SELECT max(id) FROM evaluations WHERE key = ?", key) if key else []
        row = (position, item_id, status, found[0][0] if found else None, note, time.time())
        self._write(
            "INSERT INTO items (position, item_id, status, evaluation, note, created) VALUES (?, ?, ?, ?, ?, ?)", row
        )

    def items(self) -> list[Item]:
        """The input's rows in order, each with the latest that is known of it."""
        rows = self._rows(
            "SELECT i.position, i.item_id, i.status, e.record, i.note FROM items i LEFT JOIN evaluations e "
            "ON e.id = i.evaluation WHERE i.id IN (SELECT max(id) FROM items GROUP BY position) ORDER BY i.position"
        )
        return [Item(p, name, status, self._evaluation(r) if r else None, note) for p, name, status, r, note in rows]

    def add_turn(self, rollout: str, turn: Turn) -> None:
        """Keeps one turn of a rollout."""
        record = self._pack(turn.model_dump(mode="json"))
        self._write(
            "INSERT INTO turns (rollout, position, record, created) VALUES (?, ?, ?, ?)",
            (rollout, turn.index, record, time.time()),
        )

    def turns(self) -> dict[str, list[Turn]]:
        """The turns of every rollout, in order; of a turn that was added twice, the latest."""
        found: dict[str, dict[int, Turn]] = {}
        for rollout, position, record in self._rows("SELECT rollout, position, record FROM turns ORDER BY id"):
            found.setdefault(rollout, {})[position] = Turn.model_validate(self._unpack(record))
        return {rollout: [turns[i] for i in sorted(turns)] for rollout, turns in found.items()}

    def verdict_counts(self) -> dict[str, int]:
        """How often each verdict stands in the run, without reading the records."""
        return dict(self._rows("SELECT verdict, count(*) FROM evaluations GROUP BY verdict"))

    def put_blob(self, text: str) -> str:
        """Keeps a text under the SHA-256 of its UTF-8 bytes; returns that name."""
        data = text.encode("utf-8", "surrogatepass")
        name = hashlib.sha256(data).hexdigest()
        path = self.folder / "blobs" / name[:2] / name[2:]
        if path.exists():
            return name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.new")
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        return name

    def get_blob(self, name: str) -> str:
        """The text of a blob; raises `StoreError` when it is gone."""
        path = self.folder / "blobs" / name[:2] / name[2:]
        try:
            return path.read_bytes().decode("utf-8", "surrogatepass")
        except OSError as error:
            raise StoreError(f"blob {name[:12]} of {str(self.folder)!r} cannot be read", hint=str(error)) from error

    def _pack(self, value: Any) -> str:
        return json.dumps(self._outline(value), ensure_ascii=True, separators=(",", ":"))

    def _outline(self, value: Any) -> Any:
        """The value with long texts replaced by the names of blobs."""
        if isinstance(value, str):
            return {"$blob": self.put_blob(value)} if len(value) > LARGE else value
        if isinstance(value, dict):
            return {k: self._outline(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self._outline(v) for v in value]
        return value

    def _unpack(self, text: str) -> Any:
        return self._inline(json.loads(text))

    def _inline(self, value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"$blob"}:
                return self.get_blob(value["$blob"])
            return {k: self._inline(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self._inline(v) for v in value]
        return value

    def _evaluation(self, record: str) -> Evaluation:
        return Evaluation.model_validate(self._unpack(record))

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._mutex:
            try:
                return self._db.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise _unusable(self.folder, error) from error

    def _write(self, statement: str, values: tuple[Any, ...]) -> int:
        with self._mutex:
            try:
                with self._db:
                    return int(self._db.execute(statement, values).lastrowid or 0)
            except sqlite3.Error as error:
                raise _unusable(self.folder, error) from error


def _connect(folder: Path, writable: bool) -> sqlite3.Connection:
    path = folder / "run.sqlite"
    if writable:
        db = sqlite3.connect(path, timeout=30, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        return db
    mode = "mode=ro" if os.access(folder, os.W_OK) or (folder / "run.sqlite-shm").exists() else "immutable=1"
    db = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=30, check_same_thread=False)
    db.execute("SELECT 1 FROM meta LIMIT 1").fetchall()
    return db


def _check(folder: Path) -> None:
    """Refuses files that are not ours, or of another version, before anything is written."""
    path = folder / "run.sqlite"
    with open(path, "rb") as file:
        head = file.read(100)
    if len(head) < 100 or not head.startswith(b"SQLite format 3\0"):
        raise StoreError(f"{str(path)!r} is not a run of Kernelwright", hint="name another folder with --run")
    with contextlib.closing(_connect(folder, writable=False)) as db:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StoreError(f"{str(path)!r} is not a run of Kernelwright", hint="name another folder with --run")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"the run in {str(folder)!r} is of version {version}; this Kernelwright reads version {SCHEMA_VERSION}",
            hint="name another folder with --run, or use the version that wrote it; nothing in it was changed",
        )


def _lock(folder: Path) -> int:
    fd = os.open(folder / "writer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise StoreError(
            f"another process is writing to the run in {str(folder)!r}",
            hint="wait for it, or name another folder with --run; reports can be made while it writes",
        ) from error
    return fd


def _unusable(folder: Path, error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return StoreError(
        f"the run folder {str(folder)!r} cannot be used: {text}", hint="name a folder that you may write to with --run"
    )
