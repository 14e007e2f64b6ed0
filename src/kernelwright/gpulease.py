"""Whose turn it is on a GPU: a lock that all processes of a user share, alone or beside each other.

Judging takes it alone for what is timed, so that nothing else computes then; what computes on a GPU otherwise, our own
generation among it, takes it beside others, for moments, and waits while somebody has it alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.config import cache_dir
from kernelwright.errors import HarnessError
from kernelwright.evaluation.options import visible_gpus

if TYPE_CHECKING:
    import torch

LEASE_SECONDS = 3600.0
"""How long one may wait for a GPU that other processes use, in turn with us."""
LOCKS = Path("/tmp/kernelwright-locks")
"""A user's locks lie in the folder of this name and the user's number. No TMPDIR moves it: processes must agree."""


class Lease:
    """The right to use one GPU, of this user's threads and processes: one alone, or several beside each other.

    It is a lock on a file, which those share who are beside each other. Whoever waits for that holds the lock on a
    second file, the door: who comes later, or gives the GPU back and wants it again at once, waits behind.
    """

    def __init__(self, path: Path) -> None:
        """`path` is what all processes name that share the GPU."""
        self._path, self._door = path, path.with_suffix(".door")
        self._first = threading.Lock()
        """One thread of this process is at the door, the others wait here."""

    def alone(self) -> AbstractContextManager[None]:
        """Nobody else has the GPU meanwhile."""
        return self._held(fcntl.LOCK_EX)

    def beside(self) -> AbstractContextManager[None]:
        """Nobody has the GPU alone meanwhile. Not within another turn of the same thread: it may wait for itself."""
        return self._held(fcntl.LOCK_SH)

    @contextlib.contextmanager
    def _held(self, way: int) -> Iterator[None]:
        deadline = time.monotonic() + LEASE_SECONDS
        with self._first:
            door = _locked(self._door, fcntl.LOCK_EX, deadline)
            try:
                file = _locked(self._path, way, deadline)
            finally:
                os.close(door)
        try:
            yield
        finally:
            os.close(file)


def lease_of(device: torch.device) -> Lease | None:
    """The lease of the GPU that this process's torch calls so; None for a device that is none.

    Work in turns of it has to be over when a turn ends: whoever computes waits for the device before.
    """
    if device.type != "cuda":
        return None
    names = visible_gpus()
    index = device.index or 0
    name = names[index] if index < len(names) else str(index)
    return Lease(lock_folder(cache_dir()) / f"gpu-{name}")


@contextlib.contextmanager
def by_moments(lease: Lease | None) -> Iterator[Callable[[], None]]:
    """Turns beside others, one after another: what is yielded ends one and begins the next. Without a lease, none."""
    with contextlib.ExitStack() as turn:

        def again() -> None:
            turn.close()
            if lease is not None:
                turn.enter_context(lease.beside())

        again()
        yield again


def lock_folder(cache: Path) -> Path:
    """Where this user's GPUs are locked: one place for all processes, also those with caches of their own.

    Where that place is not to be had, or is another user's, it is in the cache.
    """
    path = LOCKS.with_name(f"{LOCKS.name}-{os.getuid()}")
    with contextlib.suppress(OSError):
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and os.access(path, os.W_OK):
            return path
    return cache / "leases"


def _locked(path: Path, way: int, deadline: float) -> int:
    """A descriptor that holds the lock on a file; the lock ends with it, at the latest with the process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise HarnessError(f"the lock of a GPU, {str(path)!r}, cannot be opened: {error.strerror}") from error
    while True:
        try:
            fcntl.flock(file, way | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(file)
                raise HarnessError(f"other processes kept the GPU of {str(path)!r} too long") from None
            time.sleep(0.001)
        except BaseException:
            os.close(file)
            raise
