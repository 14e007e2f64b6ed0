"""A run on disk: an append-only SQLite file and content-addressed blobs, written by one process, read by any number.

Processes that serve the run's queue (`jobqueue`) share the right to write.

Every addition is one committed transaction, and a blob is on disk before the row that names it: `kill -9` loses at most
the addition in progress. Evaluations are found again by key, so a rerun judges nothing twice. This module neither
judges nor prints.

    RUN/run.sqlite       meta, tasks, candidates, evaluations, items, turns, events, queue
    RUN/blobs/ab/cdef…   sources and logs, named by the SHA-256 of their text
    RUN/writer.lock      held while a process writes, by one alone or by several that share it
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sqlite3
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from kernelwright.errors import StoreError
from kernelwright.records import Candidate, Evaluation, Task, Turn
from kernelwright.runs.folders import claim, full

SCHEMA_VERSION = 2
OLDEST_VERSION = 1
"""The oldest readable version. A writer first brings a run to `SCHEMA_VERSION` (see `_migrate`)."""
APPLICATION_ID = 0x4B575247  # "KWRG": marks our files among SQLite files
LARGE = 2048
"""Characters: longer texts are stored as blobs."""

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
CREATE TABLE events (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, data TEXT NOT NULL, created REAL NOT NULL);
"""
# Added by version 2, which changed no row of version 1.
_QUEUE = (
    "CREATE TABLE queue (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, task TEXT NOT NULL, candidate TEXT NOT NULL,"
    " gate TEXT, options TEXT NOT NULL, priority INTEGER NOT NULL, after INTEGER NOT NULL,"
    " state TEXT NOT NULL CHECK (state IN ('queued', 'leased', 'done', 'failed')), owner TEXT, expires REAL,"
    " attempts INTEGER NOT NULL, note TEXT NOT NULL, created REAL NOT NULL)",
    "CREATE INDEX queue_by_turn ON queue (state, priority DESC, id)",
    "CREATE TABLE queue_items (position INTEGER PRIMARY KEY, item_id TEXT NOT NULL, key TEXT NOT NULL)",
    "CREATE INDEX queue_items_by_key ON queue_items (key)",
    "CREATE INDEX queue_items_by_name ON queue_items (item_id)",
    "CREATE INDEX items_by_name ON items (item_id)",
)
ADD_EVALUATION = (
    "INSERT INTO evaluations (key, task_hash, candidate, verdict, record, created) VALUES (?, ?, ?, ?, ?, ?)"
)
SHARING_SECONDS = 2.0
"""Seconds that a process which shares the right to write waits for another one that is just opening the run."""
_PAGE = 256
"""Records read at a time, so that a large run need not fit into memory."""

ItemStatus = Literal["judged", "no_candidate", "bad_task"]


@dataclass(frozen=True)
class Event:
    """An event of the run. `at` is in seconds since 1970."""

    kind: str
    data: Any
    at: float


@dataclass(frozen=True)
class Item:
    """A row of a run's input. `note` says in one line why it has no evaluation."""

    position: int
    item_id: str
    status: ItemStatus
    evaluation: Evaluation | None
    note: str = ""


class Store:
    """A run folder. `create`, `open` and `open_or_create` make one; close it, or use it in a `with`."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock_fd: int | None) -> None:
        self.folder = folder
        self._db = connection
        self._lock_fd = lock_fd
        self._mutex = threading.Lock()

    @classmethod
    def create(cls, folder: Path | str, meta: dict[str, Any] | None = None) -> Self:
        """Creates a run. Raises `StoreError` when the folder holds a run already, or cannot be written."""
        path = Path(folder)
        with contextlib.ExitStack() as undo:
            try:
                claim(path, "run.sqlite")
                path.mkdir(parents=True, exist_ok=True)
                lock = _lock(path)
                undo.callback(os.close, lock)
                if (path / "run.sqlite").exists():
                    raise StoreError(
                        f"{str(path)!r} already holds a run", hint="name another folder, or continue the run there"
                    )
                _write_empty(path, meta or {})
                connection = _connect(path, writable=True)
            except (OSError, sqlite3.Error) as error:
                raise _unusable(path, error) from error
            undo.pop_all()
        return cls(path, connection, lock)

    @classmethod
    def open(cls, folder: Path | str, writable: bool = True, shared: bool = False) -> Self:
        """Opens an existing run. Raises `StoreError` where there is none, or one of another version.

        `writable=False` needs no right to write, and another process may write meanwhile. With `shared`, other
        processes that open the run with `shared` may write meanwhile.
        """
        path = Path(folder)
        with contextlib.ExitStack() as undo:
            try:
                _check(path)
                lock = None
                if writable:
                    lock = _lock_shared(path) if shared else _lock(path)
                    undo.callback(os.close, lock)
                    if not shared:
                        _sweep(path)
                connection = _connect(path, writable)
            except (OSError, sqlite3.Error) as error:
                raise _unusable(path, error) from error
            undo.pop_all()
        return cls(path, connection, lock)

    @classmethod
    def open_or_create(cls, folder: Path | str, meta: dict[str, Any] | None = None, shared: bool = False) -> Self:
        """Continues the run in a folder, or creates one. A continued run keeps its meta; `meta` becomes an event."""
        path = Path(folder)
        try:
            known = (path / "run.sqlite").exists()
        except OSError as error:
            raise _unusable(path, error) from error
        if not known and not shared:
            return cls.create(path, meta)
        if not known:
            return cls._begun_by_one(path, meta)
        store = cls.open(path, shared=shared)
        store.add_event("continued", meta or {})
        return store

    @classmethod
    def _begun_by_one(cls, path: Path, meta: dict[str, Any] | None) -> Self:
        """Opens a new run that several processes may create at once: one of them creates it, the others wait."""
        deadline = time.monotonic() + SHARING_SECONDS
        while not (path / "run.sqlite").exists():
            try:
                cls.create(path, meta).close()
            except StoreError:
                if time.monotonic() > deadline or not (path / "writer.lock").exists():
                    raise
                time.sleep(0.01)
        return cls.open(path, shared=True)

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
        """Returns the settings with which the run was created."""
        return {key: json.loads(value) for key, value in self._rows("SELECT key, value FROM meta")}

    def add_task(self, task: Task) -> str:
        """Stores a task; returns its content hash."""
        record = self.pack(task.plain())
        row = (task.content_hash, task.task_id, record, time.time())
        self._write("INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?)", row)
        return task.content_hash

    def add_candidate(self, candidate: Candidate) -> str:
        """Stores a candidate; returns its content hash."""
        record = self.pack(candidate.plain())
        row = (candidate.content_hash, candidate.code_hash, record, time.time())
        self._write("INSERT OR IGNORE INTO candidates VALUES (?, ?, ?, ?)", row)
        return candidate.content_hash

    def add_evaluation(self, evaluation: Evaluation, key: str) -> int:
        """Stores an evaluation under the key of its task, candidate and options; returns its row."""
        record = self.pack(evaluation.plain())
        row = (key, evaluation.task_hash, evaluation.candidate_id, evaluation.verdict, record, time.time())
        return self._write(ADD_EVALUATION, row)

    def find_evaluation(self, key: str) -> Evaluation | None:
        """Returns the latest evaluation of a key; a `harness_error` does not count as finished."""
        rows = self._rows(
            "SELECT record FROM evaluations WHERE key = ? AND verdict != 'harness_error' ORDER BY id DESC LIMIT 1", key
        )
        return self._evaluation(rows[0][0]) if rows else None

    def evaluations(self) -> Iterator[Evaluation]:
        """Yields all evaluations, in the order in which they were added."""
        last = 0
        query = "SELECT id, record FROM evaluations WHERE id > ? ORDER BY id LIMIT ?"
        while rows := self._rows(query, last, _PAGE):
            for _, record in rows:
                yield self._evaluation(record)
            last = rows[-1][0]

    def tasks(self) -> Iterator[Task]:
        """Yields all tasks, in the order in which they were added."""
        for (record,) in self._rows("SELECT record FROM tasks ORDER BY rowid"):
            yield Task.model_validate(self.unpack(record))

    def task(self, content_hash: str) -> Task | None:
        """Returns the task of a content hash."""
        rows = self._rows("SELECT record FROM tasks WHERE hash = ?", content_hash)
        return Task.model_validate(self.unpack(rows[0][0])) if rows else None

    def candidate(self, content_hash: str) -> Candidate | None:
        """Returns the candidate of a content hash."""
        rows = self._rows("SELECT record FROM candidates WHERE hash = ?", content_hash)
        return Candidate.model_validate(self.unpack(rows[0][0])) if rows else None

    def set_item(self, position: int, item_id: str, status: ItemStatus, key: str | None = None, note: str = "") -> None:
        """Stores the status of one input row; `key` names its evaluation."""
        found = self._rows("SELECT max(id) FROM evaluations WHERE key = ?", key) if key else []
        row = (position, item_id, status, found[0][0] if found else None, note, time.time())
        self._write(
            "INSERT INTO items (position, item_id, status, evaluation, note, created) VALUES (?, ?, ?, ?, ?, ?)", row
        )

    def items(self) -> list[Item]:
        """Returns the input's rows in order, each with its latest status."""
        rows = self._rows(
            "SELECT i.position, i.item_id, i.status, e.record, i.note FROM items i LEFT JOIN evaluations e "
            "ON e.id = i.evaluation WHERE i.id IN (SELECT max(id) FROM items GROUP BY position) ORDER BY i.position"
        )
        return [Item(p, name, status, self._evaluation(r) if r else None, note) for p, name, status, r, note in rows]

    def add_turn(self, rollout: str, turn: Turn) -> None:
        """Stores one turn of a rollout."""
        record = self.pack(turn.plain())
        self._write(
            "INSERT INTO turns (rollout, position, record, created) VALUES (?, ?, ?, ?)",
            (rollout, turn.index, record, time.time()),
        )

    def turns(self) -> dict[str, list[Turn]]:
        """Returns the turns of every rollout, in order; the latest where a turn was added twice."""
        found: dict[str, dict[int, Turn]] = {}
        for rollout, position, record in self._rows("SELECT rollout, position, record FROM turns ORDER BY id"):
            found.setdefault(rollout, {})[position] = Turn.model_validate(self.unpack(record))
        return {rollout: [turns[i] for i in sorted(turns)] for rollout, turns in found.items()}

    def add_event(self, kind: str, data: Any) -> None:
        """Stores an event of the run, e.g. that it was continued. `data` is any JSON value."""
        row = (kind, json.dumps(data), time.time())
        self._write("INSERT INTO events (kind, data, created) VALUES (?, ?, ?)", row)

    def events(self) -> list[Event]:
        """Returns the run's events, in order."""
        rows = self._rows("SELECT kind, data, created FROM events ORDER BY id")
        return [Event(kind, json.loads(data), at) for kind, data, at in rows]

    def verdict_counts(self) -> dict[str, int]:
        """Counts the run's evaluations by verdict, without reading the records."""
        return dict(self._rows("SELECT verdict, count(*) FROM evaluations GROUP BY verdict"))

    def queue_counts(self) -> dict[str, int]:
        """Counts the queue's jobs by state (see `jobqueue`)."""
        if self._rows("PRAGMA user_version")[0][0] < 2:  # a reader leaves an older run as it is
            return {}
        return dict(self._rows("SELECT state, count(*) FROM queue GROUP BY state"))

    def put_blob(self, text: str) -> str:
        """Stores a text under the SHA-256 of its UTF-8 bytes; returns that name."""
        if self._lock_fd is None:
            raise StoreError(f"the run in {str(self.folder)!r} is not open for writing")
        data = text.encode("utf-8", "surrogatepass")
        name = hashlib.sha256(data).hexdigest()
        path = self.folder / "blobs" / name[:2] / name[2:]
        temporary = self.folder / "blobs" / f"new-{os.getpid()}-{threading.get_ident()}"
        try:
            if path.exists():
                return name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            raise _unusable(self.folder, error) from error
        return name

    def get_blob(self, name: str) -> str:
        """Returns the text of a blob. Raises `StoreError` when it cannot be read."""
        path = self.folder / "blobs" / name[:2] / name[2:]
        try:
            return path.read_bytes().decode("utf-8", "surrogatepass")
        except OSError as error:
            raise StoreError(f"blob {name[:12]} of {str(self.folder)!r} cannot be read", hint=str(error)) from error

    def pack(self, value: Any) -> str:
        """Returns a value as JSON, its long texts stored as blobs."""
        return json.dumps(self._outline(value), ensure_ascii=True, separators=(",", ":"))

    def _outline(self, value: Any) -> Any:
        """Returns the value with long texts replaced by the names of blobs."""
        if isinstance(value, str):
            return {"$blob": self.put_blob(value)} if len(value) > LARGE else value
        if isinstance(value, dict):
            inner = {k: self._outline(v) for k, v in value.items()}
            return {"$dict": inner} if "$blob" in value or "$dict" in value else inner
        if isinstance(value, list):
            return [self._outline(v) for v in value]
        return value

    def unpack(self, text: str) -> Any:
        """Returns the value that `pack` was given."""
        return self._inline(json.loads(text))

    def _inline(self, value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"$blob"}:
                return self.get_blob(value["$blob"])
            if set(value) == {"$dict"}:
                value = value["$dict"]
            return {k: self._inline(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self._inline(v) for v in value]
        return value

    def _evaluation(self, record: str) -> Evaluation:
        return Evaluation.model_validate(self.unpack(record))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Runs several statements as one transaction; no other process writes in between."""
        with self._mutex:
            try:
                try:
                    self._db.execute("BEGIN IMMEDIATE")
                    yield self._db
                    self._db.commit()
                except BaseException:  # Ctrl-C may come anywhere
                    if self._db.in_transaction:
                        self._db.rollback()
                    raise
            except sqlite3.Error as error:
                raise _unusable(self.folder, error) from error

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


def _write_empty(folder: Path, meta: dict[str, Any]) -> None:
    """Writes a database without rows. It is renamed into place, so that a kill leaves a whole one or none."""
    temporary = folder / "run.sqlite.new"
    _sweep(folder)
    with contextlib.closing(sqlite3.connect(temporary)) as db:
        db.executescript(";".join((_SCHEMA, *_QUEUE)))
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        rows = {"created": time.time(), **meta}
        db.executemany("INSERT INTO meta VALUES (?, ?)", [(k, json.dumps(v)) for k, v in rows.items()])
        db.commit()
    os.replace(temporary, folder / "run.sqlite")


def _sweep(folder: Path) -> None:
    """Removes the half-written files of a killed writer. Only the holder of the lock may call it."""
    for pattern in ("run.sqlite.new*", "blobs/new-*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _connect(folder: Path, writable: bool) -> sqlite3.Connection:
    path = folder / "run.sqlite"
    if not writable:
        return _connect_reader(path)
    db = sqlite3.connect(path, timeout=30, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("SELECT 1 FROM meta LIMIT 1").fetchall()
        _migrate(db)
    except sqlite3.Error:
        db.close()
        raise
    return db


def _migrate(db: sqlite3.Connection) -> None:
    """Migrates a run of version 1 to version 2, whole or not at all. An older Kernelwright refuses it from then on."""
    if _version(db) == SCHEMA_VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        if _version(db) == 1:  # another process may have done it meanwhile
            for statement in _QUEUE:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.commit()
    except BaseException:
        db.rollback()
        raise
    # `_check` reads the version from the file's head: without a checkpoint it would stand in the log only.
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _connect_reader(path: Path) -> sqlite3.Connection:
    """Connects without writing to the run.

    SQLite's readers need the `-shm` file beside a database in WAL mode, or the right to create it. Without either (a
    killed writer's folder, copied or mounted read-only), the database and its log are copied to a temporary folder.
    """
    try:
        return _read_only(path)
    except sqlite3.OperationalError:
        if os.access(path.parent, os.W_OK):
            raise
    with tempfile.TemporaryDirectory(prefix="kernelwright-run-") as scratch:
        copy = Path(scratch) / path.name
        shutil.copyfile(path, copy)
        log = path.with_name(f"{path.name}-wal")
        if log.exists():
            shutil.copyfile(log, copy.with_name(log.name))
        with contextlib.closing(sqlite3.connect(copy)) as source:
            whole = sqlite3.connect(":memory:", check_same_thread=False)
            source.backup(whole)
    whole.execute("PRAGMA query_only = 1")
    return whole


def _read_only(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=30, check_same_thread=False)
    try:
        db.execute("SELECT 1 FROM meta LIMIT 1").fetchall()
    except sqlite3.Error:
        db.close()
        raise
    return db


def _check(folder: Path) -> None:
    """Refuses a file that is not ours, or of another version, by its first bytes, before SQLite touches it."""
    path = folder / "run.sqlite"
    if not path.is_file():
        what = "is not a folder" if folder.exists() and not folder.is_dir() else "holds no run"
        raise StoreError(f"{str(folder)!r} {what}", hint="name a folder that an earlier command wrote with --run")
    with open(path, "rb") as file:
        head = file.read(100)
    # SQLite's file header: magic at 0, user_version at 60, application_id at 68, both big-endian.
    ours = len(head) == 100 and head.startswith(b"SQLite format 3\0")
    version, application = struct.unpack_from(">I4xI", head, 60) if ours else (0, 0)
    if application != APPLICATION_ID:
        raise StoreError(f"{str(path)!r} is not a run of Kernelwright", hint="name another folder with --run")
    if not OLDEST_VERSION <= version <= SCHEMA_VERSION:
        raise StoreError(
            f"the run in {str(folder)!r} is of version {version}; "
            f"this Kernelwright reads versions {OLDEST_VERSION} to {SCHEMA_VERSION}",
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


def _lock_shared(folder: Path) -> int:
    """Takes the lock as one of several holders. A process that finds no other holder sweeps the folder first."""
    deadline = time.monotonic() + SHARING_SECONDS
    while True:
        try:
            fd = _lock(folder)
            _sweep(folder)
        except StoreError:
            fd = os.open(folder / "writer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return fd
        except OSError:
            os.close(fd)
            if time.monotonic() > deadline:
                return _lock(folder)  # raises the error with its hint
        time.sleep(0.01)


def _unusable(folder: Path, error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    hint = "name a folder that you may write to with --run"
    told = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    if told or (isinstance(error, OSError | sqlite3.OperationalError) and full(folder, error)):
        hint = "make room on its disk and give the same command again: what is in the run is kept"
    return StoreError(f"the run folder {str(folder)!r} cannot be used: {text}", hint=hint)
