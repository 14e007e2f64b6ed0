"""The judge's side of device processes: starts them, lends each to one candidate at a time, and asks them.

A device process outlives a candidate: it forgets all memory and code of one before it serves the next, and starts
anew after anything unusual. Each candidate gets a record stream of its own.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from kernelwright.evaluation.processes.channel import ChannelClosed, ChannelTimeout, Frame
from kernelwright.evaluation.processes.pool import START_SECONDS, Child, ChildLimits, Pool
from kernelwright.evaluation.processes.roles import Role
from kernelwright.evaluation.tensor_bytes import TensorBytes

LINK_BYTES = 1 << 20
"""The send buffer of a record stream."""
FORGET_SECONDS = 1.0
"""Seconds that a process may take to unmap a candidate's memory."""
OPEN_SECONDS = 60.0
"""Seconds that a process may take to open a GPU."""
MOST_SERVED = 500
"""The candidates that one process serves, so that nothing can grow for ever."""


class LentDevice:
    """One device process, lent to one candidate at a time."""

    def __init__(self, pool: Pool, role: Role, limits: ChildLimits, gpu: dict[str, Any] | None = None) -> None:
        """With `gpu` (name and index) the process has that GPU opened."""
        self.key = (role, limits)
        self.served = 0
        self._control, theirs = socket.socketpair()
        seconds = START_SECONDS if gpu is None else OPEN_SECONDS
        self.child: Child = pool.spawn(role, limits, link=theirs, device=gpu, start_seconds=seconds)

    def open(self, deadline: float, **header: Any) -> socket.socket:
        """Prepares the process for a new candidate; returns the candidate's end of its record stream.

        Raises `ChannelClosed` or `ChannelTimeout`."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LINK_BYTES)
        self.served += 1
        try:
            socket.send_fds(self._control, [b"link"], [theirs.fileno()])
            answer = self.ask({"kind": "open", **header}, (), deadline)
            if problem := answer.header.get("problem"):
                raise ChannelClosed(f"{problem}\n{answer.header.get('first_traceback', '')}")
        except OSError as error:
            ours.close()
            raise ChannelClosed(str(error)) from error
        except (ChannelClosed, ChannelTimeout):
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def ask(self, header: dict[str, Any], tensors: tuple[TensorBytes, ...], deadline: float) -> Frame:
        """Sends one message and waits for the answer; raises `ChannelClosed` or `ChannelTimeout`."""
        return self.child.ask(header, tensors, deadline)

    def forget(self) -> None:
        """Has the process unmap the candidate's memory, without waiting for it. Raises `ChannelClosed`."""
        self.child.channel.send({"kind": "forget"}, (), time.monotonic() + FORGET_SECONDS)

    def forgot(self) -> bool:
        """Tells whether the process has forgotten its last candidate; one that is busy with a launch has not."""
        try:
            self.child.channel.receive(time.monotonic() + FORGET_SECONDS)
        except (ChannelClosed, ChannelTimeout):
            return False
        return True

    def end(self) -> None:
        """Ends the process."""
        self._control.close()
        self.child.end()


class Devices:
    """The idle device processes of a pool. Threads may share it."""

    def __init__(self, pool: Pool, gpu: dict[str, Any] | None = None) -> None:
        self._pool, self._gpu = pool, gpu
        self._lock = threading.Lock()
        self._idle: list[LentDevice] = []

    def take(self, role: Role, limits: ChildLimits) -> LentDevice:
        """Returns an idle process with these limits, or a fresh one."""
        with self._lock:
            found = next((d for d in self._idle if d.key == (role, limits)), None)
            if found is not None:
                self._idle.remove(found)
        if found is not None and found.forgot():
            return found
        if found is not None:
            found.end()
        return LentDevice(self._pool, role, limits, self._gpu)

    def give_back(self, device: LentDevice) -> None:
        """Keeps a process for the next candidate, after a judgement in which nothing unusual happened."""
        try:
            device.forget()
        except (ChannelClosed, ChannelTimeout):
            device.served = MOST_SERVED
        if device.served >= MOST_SERVED:
            device.end()
            return
        with self._lock:
            self._idle.append(device)

    def close(self) -> None:
        """Ends all idle processes."""
        with self._lock:
            for device in self._idle:
                device.end()
            self._idle.clear()


def soon(seconds: float) -> float:
    """Returns the deadline this many seconds from now, and at least one."""
    return time.monotonic() + max(1.0, seconds)
