"""The `kernelwright` fixture: the command line, run in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import command_server

Command = Callable[..., subprocess.CompletedProcess[str]]

LARGEST = 100_000
"""Bytes of a request that go through the server's socket for certain."""


def of_interpreter() -> dict[str, str]:
    """Returns the variables that an interpreter reads when it starts: a fork has those of its server."""
    return {k: v for k, v in os.environ.items() if k.startswith(("PYTHON", "LC_", "LANG", "LD_"))}


class Commands:
    """Runs command lines as forks of one server, which the first one starts; see `command_server`."""

    def __init__(self) -> None:
        self.control: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.started_with: dict[str, str] = {}
        self.lock = threading.Lock()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            [sys.executable, command_server.__file__, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self.started_with = of_interpreter()
        return ours

    def __call__(
        self, *words: str | Path, timeout: float = 120, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs like `subprocess.run`, with both outputs as text; in a new interpreter where a fork would not do."""
        arguments = [str(word) for word in words]
        command = [sys.executable, "-m", "kernelwright.cli", *arguments]
        request = {"words": arguments, "cwd": str(cwd or Path.cwd()), "environ": dict(os.environ)}
        data = json.dumps(request).encode()
        with self.lock:
            if self.control is None:
                self.control = self._start()
        if len(data) > LARGEST or of_interpreter() != self.started_with or any("\0" in word for word in arguments):
            return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=cwd)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
            code = self._ask(data, [nothing.fileno(), out.fileno(), err.fileno()], command, timeout)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, code, *(_text(f.read()) for f in (out, err)))

    def _ask(self, data: bytes, streams: list[int], command: list[str], timeout: float) -> int:
        assert self.control is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                socket.send_fds(self.control, [data], [*streams, theirs.fileno()])
            pid = int(ours.recv(64))
            ours.settimeout(timeout)
            try:
                return int(ours.recv(64))
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(command, timeout) from None

    def close(self) -> None:
        """Ends the server."""
        if self.control is not None and self.process is not None:
            self.control.close()
            self.process.wait(20)


def _text(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")  # as `text=True` has it
