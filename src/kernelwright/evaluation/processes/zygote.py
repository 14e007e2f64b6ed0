"""The warm parent of all children: imports torch once, then forks every oracle, builder and runner.

Importing torch costs seconds, forking an interpreter that has it costs milliseconds. The zygote runs none of a task's
or a candidate's code: it forks, and the fork confines itself (`sandbox.enter`) before it reads its first message.

Protocol: the judge sends one datagram per child on the control socket (JSON, with two descriptors): the child's channel
and a status socket. On the status socket the zygote writes `{"pid"}` and, at the end, `{"exit", "signal", "rss_mb",
"full"}`; the judge writes `kill`, or closes it, to end the child. When the control socket closes, every child is
killed.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright import syntax
from kernelwright.evaluation.processes import huge_pages, sandbox

WATCH_SECONDS = 1.0
RESIDENT_SECONDS = 0.2
"""The interval in seconds at which a child's resident memory is checked, if its address space alone does not bound
it."""
CHEAP_FORKS_AFTER = 16
"""The children after which memory is moved into huge pages: it costs as much as these have cost without."""
SCRATCH_MB = 1024
"""A bound on the size of all files of one child: the limit on a file's size bounds only each of them."""


@dataclass
class _Child:
    pid: int
    status: socket.socket
    scratch: Path
    scratch_mb: int = SCRATCH_MB
    resident_mb: int = 0
    full: bool = False


def preload() -> None:
    """Imports the modules that children need; starts no thread, so that forking stays safe.

    Garbage is not collected before `settle`: almost all that imports make stays.
    """
    gc.disable()
    import numpy  # noqa: F401
    import torch
    import torch.nn

    # cpp_extension tests for a GPU when it is imported. The CUDA runtime that answers cannot be used in a fork.
    asked, torch.cuda.is_available = torch.cuda.is_available, lambda: True
    import torch.utils.cpp_extension
    import torch.utils.flop_counter

    torch.cuda.is_available = asked
    torch.set_num_threads(1)
    with contextlib.suppress(RuntimeError):
        torch.set_num_interop_threads(1)
    import kernelwright.backends.build
    import kernelwright.backends.extension
    import kernelwright.cuda
    import kernelwright.machine.runtime  # noqa: F401
    from kernelwright.evaluation.processes import roles

    roles.candidate_paths()  # cached for the children, which would search again
    for role in roles.PRELOADED:
        prepare = getattr(importlib.import_module(roles.MODULES[role]), "prepare", None)
        if prepare is not None:
            prepare()
    with contextlib.suppress(Exception):
        from kernelwright.machine import library, nvrtc

        library.load()
        nvrtc.load()


def _preload_triton() -> None:
    from kernelwright.backends.triton import triton_support

    triton_support.prepare()


PRELOADS: dict[str, Callable[[], None]] = {"triton": _preload_triton}
"""Imports that only some children need, made here when the first of them is started: the others do not wait for
them."""
_preloaded: set[str] = set()


def _preload_for(order: dict[str, Any]) -> None:
    for name in order.get("preload") or ():
        if name in PRELOADS and name not in _preloaded:
            _preloaded.add(name)
            # A missing or broken package shows in the child, as the candidate's import.
            with contextlib.suppress(Exception):
                PRELOADS[name]()
            settle()


def main(control_fd: int) -> None:
    """Imports the modules that children need, then serves until the control socket closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    preload()
    settle()
    serve(control_fd)


def settle() -> None:
    """Exempts imported objects from garbage collection, since forks share their pages."""
    gc.collect()
    gc.freeze()
    gc.enable()


def serve(control_fd: int) -> None:
    """Forks children as they are ordered, until the control socket closes."""
    control = socket.socket(fileno=control_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ, "control")
    selector.register(wake_read, selectors.EVENT_READ, "wake")
    children: dict[int, _Child] = {}
    sandbox.become_reaper()
    control.send(b"ready")
    watched = time.monotonic()
    forks = 0
    while True:
        if children and time.monotonic() - watched > WATCH_SECONDS:
            _watch_scratch(children)
            watched = time.monotonic()
        for key, _ in selector.select(_watch_memory(children)):
            if key.data == "control":
                if not _spawn(control, selector, children):
                    _end(children)
                forks += 1
                if forks == CHEAP_FORKS_AFTER:
                    huge_pages.collapse()
            elif key.data == "wake":
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                _reap(selector, children)
            else:
                # `kill` or end of file: either way this child is over.
                child = key.data
                if child.pid not in children:  # reaped in this same round, its socket is closed
                    continue
                with contextlib.suppress(OSError):
                    child.status.recv(16)
                selector.unregister(child.status)
                sandbox.kill_group(child.pid)


def _watch_memory(children: dict[int, _Child]) -> float | None:
    """Ends a child that exceeds its memory bound; returns the seconds to wait until the next check."""
    bounded = [child for child in children.values() if child.resident_mb]
    for child in bounded:
        with contextlib.suppress(OSError):
            with open(f"/proc/{child.pid}/statm") as file:
                pages = int(file.read().split()[1])
            if pages * os.sysconf("SC_PAGESIZE") > child.resident_mb << 20:
                sandbox.kill_group(child.pid)
    return RESIDENT_SECONDS if bounded else WATCH_SECONDS if children else None


def _watch_scratch(children: dict[int, _Child]) -> None:
    """Ends a child whose files fill the disk."""
    for child in children.values():
        if not child.full and sandbox.oversized(child.scratch, child.scratch_mb):
            child.full = True
            sandbox.kill_group(child.pid)


def _end(children: dict[int, _Child]) -> None:
    """Ends everything: the judge is gone, perhaps killed, and no child and no folder of the pool may outlive it."""
    for child in children.values():
        sandbox.kill_group(child.pid)
    home = Path(os.environ["HOME"])
    if home.name.startswith("kernelwright-"):
        shutil.rmtree(home, ignore_errors=True)
    os._exit(0)


def received(control: socket.socket) -> tuple[bytes, list[int]]:
    """Receives a datagram with at most three descriptors; empty when the other end is closed. Raises OSError."""
    fds: array.array[int] = array.array("i")
    data, ancillary, _flags, _address = control.recvmsg(1 << 20, socket.CMSG_LEN(3 * fds.itemsize))
    for _level, _kind, value in ancillary:
        fds.frombytes(value[: len(value) - len(value) % fds.itemsize])
    return data, list(fds)


def _receive(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    try:
        data, fds = received(control)
    except OSError:
        return None
    return (json.loads(data), fds) if data else None


def _spawn(control: socket.socket, selector: selectors.BaseSelector, children: dict[int, _Child]) -> bool:
    received = _receive(control)
    if received is None:
        return False
    order, (channel_fd, status_fd, *link) = received
    status = socket.socket(fileno=status_fd)
    _preload_for(order)
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with contextlib.suppress(BaseException):
            _child(order, channel_fd, link)
        os._exit(70)
    for fd in (channel_fd, *link):
        os.close(fd)
    child = _Child(pid, status, Path(order["scratch"]), order.get("file_mb") or SCRATCH_MB, order.get("resident_mb", 0))
    children[pid] = child
    with contextlib.suppress(OSError):
        status.send(json.dumps({"pid": pid}).encode())
    selector.register(status, selectors.EVENT_READ, child)
    return True


def _reap(selector: selectors.BaseSelector, children: dict[int, _Child]) -> None:
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        # Before `wait` the process id cannot have gone to another process: first kill its group, then reap it.
        with contextlib.suppress(OSError):
            os.killpg(ended.si_pid, signal.SIGKILL)
        pid, status, usage = os.wait4(ended.si_pid, 0)
        child = children.pop(pid, None)
        sandbox.kill_strays(children)  # orphans that it left behind came to us
        if child is None:
            continue
        fate = {
            "exit": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            "rss_mb": usage.ru_maxrss // 1024,
            "full": child.full,
        }
        with contextlib.suppress(OSError):
            child.status.send(json.dumps(fate).encode())
        with contextlib.suppress(KeyError, ValueError):
            selector.unregister(child.status)
        child.status.close()


def _child(order: dict[str, Any], channel_fd: int, link: list[int]) -> None:
    """Confines the fork, then serves the role. Never returns to the zygote's loop."""
    from kernelwright.evaluation.processes import roles

    syntax.parse_at_once()  # this child cannot start another, and the judge ends it at its deadline
    wanted = order.get("device")
    errors = os.dup(2)  # the pool reads errors from before the child serves
    kept = [channel_fd, errors, *link]
    device = None
    try:
        if wanted:
            from kernelwright.evaluation.device import devices

            device, opened = devices.make(wanted["name"], wanted["index"], wanted.get("streams", False))
            kept += opened
        roles.load(order)
        level = sandbox.enter(roles.jail_of(order), order["sandbox"], keep_fds=tuple(kept))
    except BaseException:
        os.write(errors, traceback.format_exc().encode(errors="replace"))
        os._exit(71)
    os.close(errors)
    if order.get("kernels"):
        os.environ["PYTORCH_KERNEL_CACHE_PATH"] = order["kernels"]
    roles.serve(order["role"], channel_fd, level, device, link[0] if link else None)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
