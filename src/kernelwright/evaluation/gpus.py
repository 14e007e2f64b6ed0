"""What the judge holds of one GPU: its lease, the referee on it, and runners that wait with the device opened.

The lease is taken for everything that computes on the GPU, so that no two candidates are timed at once. Opening a GPU
takes a runner seconds, so a few are opened ahead; each serves one candidate.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import stat
import threading
import time
from pathlib import Path
from typing import Any, Literal

from kernelwright.errors import HarnessError, TaskError
from kernelwright.evaluation.channel import ChannelClosed, ChannelTimeout, Message
from kernelwright.evaluation.pool import Child, Pool

REFEREE_SECONDS = 180.0
LEASE_SECONDS = 3600.0
"""How long one may wait for a GPU that other processes use, in turn with us."""
LOCKS = Path("/tmp/kernelwright-locks")
"""A user's locks lie in the folder of this name and the user's number. No TMPDIR moves it: processes must agree."""


class TooLarge(Exception):
    """The size does not fit the device, with the reason in words."""


class Lease:
    """The right to use one GPU, held by one thread of one process of this user's at a time; use in a `with`.

    Between processes it is a lock on a file. Whoever waits for that holds the lock on a second file, the door: a
    process that gives the GPU back and wants it again at once waits at the door behind the one that is waiting.
    """

    def __init__(self, path: Path | None = None) -> None:
        """`path` is what all processes name that share the GPU; None where no other process has it."""
        self._threads = threading.Lock()
        self._paths = [path.with_suffix(".door"), path] if path else []
        self._files: list[int] = []

    def __enter__(self) -> None:
        self._threads.acquire()
        try:
            for path in self._paths:
                self._files.append(_locked(path, time.monotonic() + LEASE_SECONDS))
            if self._files:
                os.close(self._files.pop(0))
        except BaseException:
            self._release()
            raise

    def __exit__(self, *_exc: object) -> None:
        self._release()

    def _release(self) -> None:
        while self._files:
            os.close(self._files.pop())
        self._threads.release()


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


def _locked(path: Path, deadline: float) -> int:
    """A descriptor that holds the lock on a file; the lock ends with it, at the latest with the process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise HarnessError(f"the lock of a GPU, {str(path)!r}, cannot be opened: {error.strerror}") from error
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(file)
                raise HarnessError(f"other processes kept the GPU of {str(path)!r} too long") from None
            time.sleep(0.001)
        except BaseException:
            os.close(file)
            raise


class Trusted:
    """A child that runs only a task's code, asked one thing after another by whoever holds the lease: the referee, or
    the baselines. It is started again when it dies."""

    def __init__(self, pool: Pool, role: Literal["referee", "baseline"], device: dict[str, Any]) -> None:
        self.pool = pool
        self.role: Literal["referee", "baseline"] = role
        self.device = device
        self.child: Child | None = None

    def ask(self, task_id: str, header: dict[str, Any]) -> Message:
        """One answer. Raises `TaskError` for what the reference did, `TooLarge` where memory ends."""
        if self.child is None:
            self.child = self.pool.spawn(self.role, cpu_seconds=0, memory_mb=0, device=self.device, programs=True)
        try:
            answer = self.child.ask(header, deadline=time.monotonic() + REFEREE_SECONDS)
        except ChannelTimeout:
            self.close()
            message = f"the reference of task {task_id!r} did not finish within {REFEREE_SECONDS:.0f} s on the GPU"
            raise TaskError(message, hint="make the task's sizes smaller") from None
        except ChannelClosed as error:
            fate = self.child.natural_fate()
            self.close()
            raise HarnessError(f"the {self.role} of task {task_id!r} went away: it {fate} ({error})") from error
        if answer.kind == "failed":
            if answer.header["why"] == "large":
                raise TooLarge(answer.header["message"])
            # A fault of the device stays with the process that met it.
            if "CUDA error" in answer.header["message"]:
                self.close()
                raise HarnessError(f"the {self.role}: {answer.header['message'][:400]}")
            hint = answer.header.get("hint") or "run the reference by itself to see the whole error"
            raise TaskError(f"task {task_id!r} on the GPU: {answer.header['message']}", hint=hint)
        return answer

    def close(self) -> None:
        if self.child is not None:
            self.child.end()
            self.child = None


class Gpu:
    """One GPU. Threads share it; what needs the device is done under `lease`."""

    def __init__(self, pool: Pool, index: str = "0", name: str = "cuda", makers: int = 2) -> None:
        """`index` as CUDA_VISIBLE_DEVICES names the GPU: its children see this one only. `makers` open it at once."""
        self.pool = pool
        self.device = {"name": name, "index": index}
        self.lease = Lease(lock_folder(pool.cache) / f"gpu-{index}" if name == "cuda" else None)
        self.referee = Trusted(pool, "referee", self.device)
        self.baseline = Trusted(pool, "baseline", self.device)
        self._spares: queue.Queue[Child | HarnessError] = queue.Queue()
        self._wanted = threading.Semaphore(makers + 1)
        self._closed = False
        self._makers = [threading.Thread(target=self._make, daemon=True) for _ in range(makers)]
        for thread in self._makers:
            thread.start()

    def _make(self) -> None:
        while True:
            self._wanted.acquire()
            if self._closed:
                return
            try:
                child = self._open()
            except HarnessError as error:
                self._spares.put(error)
                continue
            if self._closed:
                child.end()
                return
            self._spares.put(child)

    def _open(self, programs: bool = False) -> Child:
        return self.pool.spawn("gpu_runner", cpu_seconds=0, memory_mb=0, device=self.device, programs=programs)

    def runner(self, programs: bool = False) -> Child:
        """A fresh runner with the device opened; raises `HarnessError`. `programs`: one that may start compilers."""
        if programs:
            return self._open(programs=True)
        found = self._spares.get()
        self._wanted.release()
        if isinstance(found, HarnessError):
            raise found
        return found

    def close(self) -> None:
        """Ends referee, baselines and the runners that wait. May be called twice."""
        self._closed = True
        for _ in self._makers:
            self._wanted.release()
        for thread in self._makers:
            thread.join(60)
        while not self._spares.empty():
            left = self._spares.get()
            if isinstance(left, Child):
                left.end()
        self.referee.close()
        self.baseline.close()
