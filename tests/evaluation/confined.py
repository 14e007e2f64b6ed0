"""Runs one action in a real forked child, confined or not, and reports its outcome."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.evaluation.processes import sandbox
from kernelwright.evaluation.processes.roles import library_paths

NOBODY = 65534
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Outcome:
    """The outcome of an action: `value` is the repr of its result; `error` an exception's class and errno, or `""`."""

    value: str
    error: str
    number: int
    text: str
    level: str
    status: int
    """As from `waitpid`; 0 when the child came to its end."""

    @property
    def worked(self) -> bool:
        return self.error == "" and self.status == 0

    @property
    def refused(self) -> bool:
        return self.number in (errno.EPERM, errno.EACCES, errno.EXDEV)


@dataclass(frozen=True)
class Place:
    """Folders of one test: `scratch` is the jail's own, `outside` holds `secret`, which the jail must not reach."""

    scratch: Path
    outside: Path
    uid: int | None
    """The user that the child becomes; None for the one that runs the tests."""

    @property
    def secret(self) -> Path:
        return self.outside / "secret"

    def jail(self, **fields: Any) -> sandbox.Jail:
        limits = fields.pop("limits", sandbox.Limits(cpu_seconds=20, memory_mb=512, file_mb=1))
        return sandbox.Jail(
            **{"scratch": self.scratch, "readable": library_paths(), "writable": (self.scratch,), "limits": limits}
            | fields
        )


def attempt(
    action: Callable[[], object],
    place: Place,
    *,
    level: str | None = "auto",
    jail: sandbox.Jail | None = None,
    before: Callable[[], object] = lambda: None,
    keep: tuple[int, ...] = (),
) -> Outcome:
    """Runs the action in a child process: within the jail, or unconfined where `level` is None."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _child(action, place, level, jail or place.jail(), before, write, keep)
    os.close(write)
    text, status = _gather(pid, read)
    facts = json.loads(text) if text else {"value": "", "error": "", "number": 0, "text": "", "level": ""}
    return Outcome(**facts, status=status)


def _child(
    action: Callable[[], object],
    place: Place,
    level: str | None,
    jail: sandbox.Jail,
    before: Callable[[], object],
    write: int,
    keep: tuple[int, ...],
) -> None:
    facts: dict[str, object] = {"value": "", "error": "", "number": 0, "text": "", "level": ""}
    try:
        become(place.uid)
        before()
        if level is not None:
            facts["level"] = sandbox.enter(jail, level, (write, *keep))
        facts["value"] = repr(action())
    except BaseException as error:
        facts |= {"error": type(error).__name__, "number": getattr(error, "errno", 0) or 0, "text": str(error)}
    with contextlib.suppress(OSError):
        os.write(write, json.dumps(facts).encode())
    os._exit(0)


def _gather(pid: int, read: int, seconds: float = 30.0) -> tuple[bytes, int]:
    text, deadline = b"", time.monotonic() + seconds
    while True:
        if not select.select([read], [], [], max(0.0, deadline - time.monotonic()))[0]:
            os.kill(pid, signal.SIGKILL)
            break
        data = os.read(read, 65536)
        if not data:
            break
        text += data
    os.close(read)
    return text, os.waitpid(pid, 0)[1]


def become(uid: int | None) -> None:
    if uid is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)


def call(number: int, *arguments: Any) -> int:
    """Makes a raw system call; raises `OSError`."""
    result = int(LIBC.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


@contextlib.contextmanager
def bystander(uid: int | None = None) -> Iterator[int]:
    """Starts an unrelated process; yields its number, and fails the test if it did not survive."""
    ready, say = os.pipe()  # it may be signalled by its like only once it has become one of them
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        become(uid)
        os.close(say)
        while True:
            time.sleep(60)
    os.close(say)
    try:
        os.read(ready, 1)
        yield pid
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "the bystander died"
    finally:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(ready)


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Tells whether a process ends within some time. A zombie, for which its parent has not waited, counts as ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False
