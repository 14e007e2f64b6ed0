"""One warm parent for the judges of several commands: each gets a zygote forked from it, and waits for no import.

`kernelwright warm` starts it and prints its socket's path. A command that finds the path in `KERNELWRIGHT_WARM` asks it
for a zygote before it starts one itself, much as with ssh-agent. The parent runs no foreign code: it forks, and the
fork becomes the asking pool's zygote, with that pool's folder, environment and control socket (`zygote.main` describes
the rest).

A process that reaches the socket can have unconfined processes started. So the socket lies in a folder of the user's
own, asks the kernel for the caller's user, and is not used if a candidate could call it. Candidates have no sockets
(`seccomp`); if seccomp is missing, or if bubblewrap would have confined the zygote as a whole, pools start their own.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kernelwright.evaluation.processes import huge_pages, sandbox, seccomp, zygote

VARIABLE = "KERNELWRIGHT_WARM"
ANSWER_SECONDS = 10.0


class Adopted:
    """A zygote that is no child of ours: the methods of `subprocess.Popen` that a pool uses, on a pidfd."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Returns 0 once it has ended, None before; only its parent can read its status."""
        if self._fd >= 0 and select.select([self._fd], [], [], 0)[0]:
            os.close(self._fd)
            self._fd = -1
        return 0 if self._fd < 0 else None

    def wait(self, timeout: float) -> int:
        """Waits for the end; raises `subprocess.TimeoutExpired`."""
        if self._fd >= 0:
            select.select([self._fd], [], [], timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("zygote", timeout)
        return 0


def version() -> str:
    """Returns the version of this code: a parent that imported an older state must not judge for a newer one."""
    package = Path(__file__).resolve().parents[2]
    newest = max(path.stat().st_mtime_ns for path in package.rglob("*.py"))
    return f"{package} {newest} {sys.executable}"


def usable() -> bool:
    """Tells whether candidates cannot call the parent, and nothing would confine the zygote as a whole."""
    return seccomp.available() and not sandbox.wraps()


def adopt(environment: dict[str, str], control: socket.socket, log: Path) -> Adopted | None:
    """Returns a zygote from the parent that the environment names; None if there is no usable one.

    `environment` holds all of the zygote's variables, HOME the pool's folder. `control` is its end of the control
    socket.
    """
    place = os.environ.get(VARIABLE)
    if not place or not usable():
        return None
    order = {"version": version(), "environment": environment, "path": [p for p in sys.path if p and Path(p).is_dir()]}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking, open(log, "wb") as written:
            asking.settimeout(ANSWER_SECONDS)
            asking.connect(place)
            socket.send_fds(asking, [json.dumps(order).encode()], [control.fileno(), written.fileno()])
            answer = json.loads(asking.recv(4096) or b"{}")
            return Adopted(answer["pid"]) if answer.get("pid") else None
    except (OSError, ValueError):
        return None


def listen(folder: Path) -> socket.socket:
    """Opens the socket that `main` serves; `folder` must be the user's alone."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(folder / "socket"))
    listening.listen(64)
    return listening


def main(listening_fd: int, ready_fd: int, idle_seconds: float) -> None:
    """Serves until it is ended, or until no request has come for `idle_seconds`. Writes to `ready_fd` once it can
    answer."""
    listening = socket.socket(fileno=listening_fd)
    known = version()
    zygote.preload()
    zygote.settle()
    huge_pages.collapse()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the zygotes are reaped as they end
    os.write(ready_fd, b"ready")
    asked = time.monotonic()
    while time.monotonic() - asked < idle_seconds:
        # The starter holds the other end of `ready_fd`; it closes when the starter ends, however it ends.
        found = select.select([listening_fd, ready_fd], [], [], 5.0)[0]
        if ready_fd in found:
            return
        if listening_fd in found:
            asked = time.monotonic()
            with contextlib.suppress(OSError, ValueError, KeyError), listening.accept()[0] as asking:
                _answer(asking, listening, ready_fd, known)


def _answer(asking: socket.socket, listening: socket.socket, ready_fd: int, known: str) -> None:
    """Forks a zygote for a caller of the same user and the same code; answers with its process id, or with an empty
    object."""
    asking.settimeout(1.0)
    _pid, user, _group = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    data, fds = zygote.received(asking)
    try:
        order = json.loads(data)
        if user != os.getuid() or len(fds) != 2 or order["version"] != known:
            asking.send(b"{}")
            return
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                listening.close()
                os.close(ready_fd)
                asking.close()
                _become(order, *fds)
            os._exit(70)
        asking.send(json.dumps({"pid": pid}).encode())
    finally:
        for fd in fds:
            os.close(fd)


def _become(order: dict[str, Any], control_fd: int, log_fd: int) -> None:
    """Turns the fork into the process that the asking pool would have started itself."""
    from kernelwright.evaluation.processes import roles

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    environment: dict[str, str] = order["environment"]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(environment["HOME"])
    tempfile.tempdir = None
    sys.path[:] = list(dict.fromkeys([*order["path"], *sys.path]))
    importlib.invalidate_caches()
    roles.library_paths.cache_clear()
    roles.candidate_paths.cache_clear()
    roles.candidate_paths()
    zygote.serve(control_fd)
