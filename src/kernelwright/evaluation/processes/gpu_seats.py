"""The judge's share of one GPU: its lease, its seats, and spare runners that have the device opened.

Everything that computes on the GPU holds the lease. Timed work holds it exclusively, so that no two candidates are
timed at once and nothing else computes meanwhile; other work shares it. A seat is a referee, a baseline and a replayer
process, which serve one judgement at a time. A runner takes seconds to open a GPU, so a few are opened ahead; each
serves one candidate.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from kernelwright.errors import HarnessError, TaskError
from kernelwright.evaluation.processes.channel import ChannelClosed, ChannelTimeout, Frame
from kernelwright.evaluation.processes.device_client import Devices
from kernelwright.evaluation.processes.gpu_faults import Disturbed, Faults, opened
from kernelwright.evaluation.processes.pool import Child, Pool
from kernelwright.evaluation.tensor_bytes import TensorBytes

REFEREE_SECONDS = 180.0
REPLAYER_SECONDS = 30.0
HANDED_SECONDS = 1.0
"""Seconds for which threads of one process may pass an exclusive lease to each other."""
GATHERED, GATHER_SECONDS = 4, 0.3
"""An exclusive request waits until this many threads want the GPU exclusively, or for this many seconds, so that shared
work pauses once for all of them."""
LEASE_SECONDS = 3600.0
"""A bound on the seconds to wait for a GPU that other processes use in turn with us."""
SEATS = 8
"""Judgements that may be on one GPU at once, each with a seat of its own."""
HEADROOMS = (1 << 30, 3 << 30, 6 << 30, 13 << 30, 26 << 30)
"""Bytes that a judgement's checks may take while other judgements run: the first sufficient number. A judgement that
needs more gets the GPU exclusively."""
MEMORY = 40 << 30
"""Bytes that the checks of all judgements may take together."""
LOCKS = Path("/tmp/kernelwright-locks")
"""The prefix of the lock folder; the user's number follows. No TMPDIR moves it: processes must agree."""


class DeviceFailed(HarnessError):
    """A process that we trust met a fault of the GPU."""


class TooLarge(Exception):
    """The size does not fit the device, with the reason in words."""


class Lease:
    """The right to use one GPU among this user's threads and processes: exclusive, or shared.

    It is a lock on a file, exclusive or shared. A thread that waits for it holds the lock on a second file, the door.
    Later requests queue behind the door, including those of a process that gives the GPU back and wants it again at
    once. Only threads of one process that want an exclusive lease wait for each other briefly, and pass it to each
    other for a while: the GPU is idle until the shared work has stopped.
    """

    def __init__(self, path: Path) -> None:
        """Prepares the locks at `path`, which is the same in all processes that share the GPU."""
        self._path, self._door = path, path.with_suffix(".door")
        self._first = threading.Lock()
        """Held by the one thread of this process that is at the door; the others wait here."""
        self._hand = threading.Condition()
        self._exclusive, self._wanting, self._sharing = False, 0, 0
        """True while a thread of this process holds the lease exclusively; the number of other threads that want to;
        the number of threads that share it or want to."""
        self._file: int | None = None
        self._since = 0.0

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Holds the lease exclusively."""
        with self._hand:
            self._wanting += 1
            self._hand.notify_all()
            try:
                self._hand.wait_for(self._worth_it, GATHER_SECONDS)
                self._hand.wait_for(lambda: not self._exclusive)
                self._exclusive = True
            finally:
                self._wanting -= 1
        try:
            if self._file is None:
                self._file, self._since = self._taken(fcntl.LOCK_EX), time.monotonic()
            yield
        finally:
            with self._hand:
                if self._file is not None and (not self._wanting or time.monotonic() - self._since > HANDED_SECONDS):
                    os.close(self._file)
                    self._file = None
                self._exclusive = False
                self._hand.notify_all()

    def _worth_it(self) -> bool:
        """Tells whether an exclusive request need not wait for further ones."""
        return self._exclusive or self._file is not None or self._wanting >= GATHERED or not self._sharing

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Holds the lease shared: no thread or process holds it exclusively meanwhile. A thread that already holds the
        lease must not call this, since it may wait for itself."""
        with self._hand:
            self._sharing += 1
        try:
            file = self._taken(fcntl.LOCK_SH)
            try:
                yield
            finally:
                os.close(file)
        finally:
            with self._hand:
                self._sharing -= 1
                self._hand.notify_all()

    def _taken(self, way: int) -> int:
        """Returns a descriptor that holds the lock, shared or exclusive."""
        deadline = time.monotonic() + LEASE_SECONDS
        with self._first:
            door = _locked(self._door, fcntl.LOCK_EX, deadline)
            try:
                return _locked(self._path, way, deadline)
            finally:
                os.close(door)


def lock_folder(cache: Path) -> Path:
    """Returns the folder of this user's GPU locks: one for all processes, including those with caches of their own.

    If that folder cannot be used, or belongs to another user, the cache holds the locks.
    """
    path = LOCKS.with_name(f"{LOCKS.name}-{os.getuid()}")
    with contextlib.suppress(OSError):
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and os.access(path, os.W_OK):
            return path
    return cache / "leases"


def shared_path(cache: Path, index: str) -> Path:
    """Returns the path that all processes of this user share for a GPU: its lease and the record of its faults lie
    there."""
    return lock_folder(cache) / f"gpu-{index}"


def _locked(path: Path, way: int, deadline: float) -> int:
    """Returns a descriptor that holds the lock on a file; the lock ends with it, at the latest with the process."""
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


_Role = Literal["referee", "baseline", "replayer"]


class Trusted:
    """A child that runs only a task's code (referee, baseline) or only device code (replayer). The holder of its seat
    sends it one request after another. It is started again when it dies."""

    def __init__(
        self, pool: Pool, role: _Role, device: dict[str, Any], faults: Faults, seconds: float | None = None
    ) -> None:
        """Bounds each answer to this number of `seconds` (`REFEREE_SECONDS`)."""
        self.pool, self.faults = pool, faults
        self.seconds = REFEREE_SECONDS if seconds is None else seconds
        self.role: _Role = role
        self.device = device
        self.child: Child | None = None
        self.shared = False
        """True if other candidates may be on the GPU, and meet faults."""
        self._opening, self._closing = threading.Lock(), False

    def ask(self, task_id: str, header: dict[str, Any], tensors: tuple[TensorBytes, ...] = ()) -> Frame:
        """Returns one answer. Raises `TaskError` for a failure of the reference, `TooLarge` when memory runs out, and
        `Disturbed`."""
        child = self.open()
        try:
            answer = self._answer(child, header, tensors)
        except ChannelTimeout:
            self.close()
            message = f"the reference of task {task_id!r} did not finish within {self.seconds:.0f} s on the GPU"
            raise TaskError(message, hint="make the task's sizes smaller") from None
        except ChannelClosed as error:
            fate = child.natural_fate()
            self.close()
            raise HarnessError(f"the {self.role} of task {task_id!r} went away: it {fate} ({error})") from error
        if answer.kind == "failed":
            if answer.header["why"] == "large":
                raise TooLarge(answer.header["message"])
            # A fault of the device stays with the process that met it.
            if answer.header["why"] == "device":
                self.close()
                raise DeviceFailed(f"the {self.role}: {answer.header['message'][:400]}")
            hint = answer.header.get("hint") or "run the reference by itself to see the whole error"
            raise TaskError(f"task {task_id!r} on the GPU: {answer.header['message']}", hint=hint)
        return answer

    def open(self) -> Child:
        """Returns the child, started if there is none. That takes seconds, in which the caller need not hold the
        GPU."""
        with self._opening:
            if self.child is None:
                programs = self.role != "replayer"
                self.child = opened(self.pool, self.role, self.device, programs, lambda: self._closing)
            return self.child

    def _answer(self, child: Child, header: dict[str, Any], tensors: tuple[TensorBytes, ...]) -> Frame:
        began, deadline = time.time(), time.monotonic() + self.seconds
        child.channel.send(header, tensors, deadline)
        while self.shared and not child.channel.ready(1.0) and time.monotonic() < deadline:
            if self.faults.stuck(began):
                self.close()
                raise Disturbed(
                    f"the {self.role} gave no answer after another process had met a fault on the GPU",
                    hint="judge again; with --jobs 1 nothing else is on the GPU",
                )
        return child.channel.receive(deadline)

    def close(self) -> None:
        """Ends the child, also one that is being started ahead."""
        self._closing = True
        with self._opening:
            if self.child is not None:
                self.child.end()
                self.child = None
            self._closing = False


def _opened_ahead(trusted: Trusted) -> None:
    with contextlib.suppress(HarnessError):
        trusted.open()


class Seat:
    """A referee, a baseline and a replayer process, which serve one judgement at a time."""

    def __init__(self, pool: Pool, device: dict[str, Any], faults: Faults) -> None:
        self.referee = Trusted(pool, "referee", device, faults)
        self.baseline = Trusted(pool, "baseline", device, faults)
        self.replayer = Trusted(pool, "replayer", device, faults, REPLAYER_SECONDS)
        self.key = ""
        """The task that was judged here last."""
        self.headroom = 0
        """Bytes that checking may take now; 0 for a judgement that has the GPU exclusively."""
        self.alone = False
        """True if no other seat has processes, and no runner is spare: what they hold is free memory, too."""

    def open_ahead(self) -> None:
        """Starts the three processes side by side, before a judgement asks for them. One that does not start is tried
        again by the judgement, which then says why."""
        for trusted in (self.referee, self.replayer, self.baseline):
            threading.Thread(target=_opened_ahead, args=(trusted,), daemon=True).start()

    def rest(self) -> None:
        """Frees the memory that the previous task has left."""
        for trusted in (self.referee, self.baseline, self.replayer):
            if trusted.child is not None and self.key:
                try:
                    trusted.ask(self.key, {"kind": "release", "all": True})
                except (HarnessError, TaskError, TooLarge):
                    trusted.close()
        self.key = ""

    def close(self) -> None:
        for trusted in (self.referee, self.baseline, self.replayer):
            trusted.close()


class Gpu:
    """One GPU, shared by threads. Work on the device runs under a `lease`, in a `seat`."""

    def __init__(self, pool: Pool, index: str = "0", name: str = "cuda", makers: int = 2) -> None:
        """Names the GPU `index` as CUDA_VISIBLE_DEVICES does; its children see only this one. `makers` threads open it
        at once."""
        self.pool = pool
        self.device = {"name": name, "index": index}
        path = shared_path(pool.cache, index) if name == "cuda" else pool.home / f"gpu-{index}"
        self.lease, self.faults = Lease(path), Faults(path)
        self.architecture: str | None = None
        """The architecture that a replayer wants device code built for; None before one was asked."""
        self._needs: dict[str, int] = {}
        """The index in `HEADROOMS` that a task needs, by the task's hash, if it is not 0; `len(HEADROOMS)` means the
        whole GPU, and one more that other seats have no processes meanwhile."""
        self._taken = 0
        """Bytes of the `HEADROOMS` entries in use."""
        self._seats = [Seat(pool, self.device, self.faults) for _ in range(SEATS)]
        self._free, self._left = list(self._seats), threading.Condition()
        self._next = threading.Lock()
        self._spares: queue.Queue[Child | HarnessError] = queue.Queue()
        self._wanted, self._ordered = threading.Semaphore(0), 0
        """Spare runners to open, and the number that is spare or being opened; none before the first runner is asked
        for, since programs need none."""
        self.live = Devices(pool, self.device)
        """The processes that execute programs as they arrive."""
        self._closed = False
        self._makers = [threading.Thread(target=self._make, daemon=True) for _ in range(makers)]
        for thread in self._makers:
            thread.start()
        self._seats[-1].open_ahead()  # the first judgement takes it

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

    def _open(self, programs: bool = False, streams: bool = False) -> Child:
        device = {**self.device, "streams": streams}
        return opened(self.pool, "gpu_runner", device, programs, lambda: self._closed)

    def runner(self, programs: bool = False, streams: bool = False) -> Child:
        """Returns a fresh runner with the device opened; raises `HarnessError`. `programs` lets it start compilers;
        `streams` lets its streams run concurrently."""
        if programs or streams:
            return self._open(programs, streams)
        with self._left:
            missing = len(self._makers) + 2 - self._ordered  # one for this caller
            self._ordered += missing
        for _ in range(missing):
            self._wanted.release()
        found = self._spares.get()
        with self._left:
            self._ordered -= 1
        if isinstance(found, HarnessError):
            raise found
        return found

    def expect(self, key: str, nbytes: int) -> None:
        """Records that a task's checks need at least this much memory, so that the task starts with a sufficient entry
        of `HEADROOMS`, or with the whole GPU."""
        enough = next((k for k, headroom in enumerate(HEADROOMS) if headroom >= nbytes), len(HEADROOMS))
        self._needs.setdefault(key, enough)

    def more_headroom(self, key: str, headroom: int) -> None:
        """Notes that a judgement of that task needs more memory than its `headroom` (0: the whole GPU). Several may
        report at once."""
        number = HEADROOMS.index(headroom) if headroom else len(HEADROOMS)
        self._needs[key] = max(self._needs.get(key, 0), number + 1)

    @contextlib.contextmanager
    def seat(self, key: str, exclusive: bool) -> Iterator[Seat]:
        """Holds a seat for one judgement of the task of that hash: the seat that judged it last, if free, else the seat
        that was used last. With `exclusive`, no other judgement of this process has a seat, or memory of its own,
        meanwhile."""
        with self._next, self._left:  # first come, first served, also for a judgement that wants all seats
            number = max(self._needs.get(key, 0), len(HEADROOMS) if exclusive else 0)
            headroom = HEADROOMS[number] if number < len(HEADROOMS) else 0
            wanted = 1 if headroom else len(self._seats)
            self._left.wait_for(lambda: len(self._free) >= wanted and self._taken + headroom <= max(MEMORY, headroom))
            seat = next((s for s in reversed(self._free) if s.key == key), self._free[-1])
            self._free.remove(seat)
            others = [self._free.pop(0) for _ in range(wanted - 1)]
            self._taken += headroom
        seat.headroom, seat.alone = headroom, number > len(HEADROOMS)
        seat.referee.shared = seat.baseline.shared = seat.replayer.shared = headroom > 0
        try:
            if not headroom:
                with self.lease.shared():
                    for one in (*others, seat):
                        one.rest()
            if seat.alone:
                for other in others:
                    other.close()
                self._end_spares()
                self.live.close()
            seat.key = key
            yield seat
        finally:
            with self._left:
                self._free += [*others, seat]
                self._taken -= headroom
                self._left.notify()

    def _end_spares(self) -> None:
        """Ends the spare runners; the next that is asked for opens others."""
        while not self._spares.empty():
            left = self._spares.get()
            with self._left:
                self._ordered -= 1
            if isinstance(left, Child):
                left.end()

    def close(self) -> None:
        """Ends seats and spare runners. May be called twice."""
        self._closed = True
        for _ in self._makers:
            self._wanted.release()
        for thread in self._makers:
            thread.join(60)
        self._end_spares()
        self.live.close()
        for seat in self._seats:
            seat.close()
