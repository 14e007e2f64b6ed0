"""The child that runs a whole program and the scripts around it, in one scratch folder.

It is confined as the others are, but starts processes: each step is a fork of its own that can start none itself. A
script runs in a fork of this interpreter, which has numpy and torch loaded; a program replaces its fork. When a step
ends, in time or not, none of its processes is left running.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import selectors
import signal
import sys
import time
import traceback
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.evaluation.candidate import fake_cuda, hidden_package
from kernelwright.evaluation.processes import sandbox, seccomp
from kernelwright.evaluation.processes.channel import Channel, ChannelClosed

MAX_OUTPUT = 1 << 20
"""Bytes of a step's output that are kept; the rest is read and dropped."""
FINDINGS = ".findings"
MAX_FINDINGS = 1 << 20
_PR_SET_PDEATHSIG = 1


def serve(channel: Channel, level: str) -> None:
    """Answers `script` and `program` messages until the judge closes the channel."""
    sandbox.become_reaper()
    channel.send({"kind": "ready", "level": level})
    while True:
        try:
            header = channel.receive().header
        except ChannelClosed:
            return
        channel.send(_step(header, level))


@dataclass
class _Ended:
    """The end of a step. `status` is the exit status, or minus the signal's number."""

    status: int
    timeout: bool
    out: bytes
    err: bytes
    seconds: float
    cpu: float


def _step(header: dict[str, Any], level: str) -> dict[str, Any]:
    found = Path(FINDINGS)
    found.unlink(missing_ok=True)
    ended = _run(header, "seccomp" in level)
    text = ""
    with contextlib.suppress(OSError):
        with open(found, errors="replace") as file:
            text = file.read(MAX_FINDINGS)
    found.unlink(missing_ok=True)
    return {
        "kind": "ended",
        "status": ended.status,
        "timeout": ended.timeout,
        "stdout": ended.out.decode(errors="replace"),
        "stderr": ended.err.decode(errors="replace"),
        "seconds": ended.seconds,
        "cpu": ended.cpu,
        "findings": text,
    }


def _run(header: dict[str, Any], filtered: bool) -> _Ended:
    """Runs one fork, from its start to the end of all processes that it left behind."""
    pipes = [os.pipe(), os.pipe()]
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            _become(header, [write for _, write in pipes], filtered)
        except BaseException:
            with contextlib.suppress(BaseException):
                os.write(2, traceback.format_exc(limit=-4).encode(errors="replace"))
        os._exit(70)
    for _, write in pipes:
        os.close(write)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    deadline = started + float(header["timeout"])
    outputs = _collect([read for read, _ in pipes], pid, deadline)
    timeout = time.monotonic() >= deadline
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    sandbox.kill_strays(())
    code = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - started
    return _Ended(code, timeout, outputs[0], outputs[1], seconds, usage.ru_utime + usage.ru_stime)


def _collect(reads: list[int], pid: int, deadline: float) -> list[bytes]:
    """Reads both pipes until the process is gone or the deadline has passed."""
    kept = {read: bytearray() for read in reads}
    selector = selectors.DefaultSelector()
    for read in reads:
        os.set_blocking(read, False)
        selector.register(read, selectors.EVENT_READ)
    gone = False
    while time.monotonic() < deadline:
        if not selector.get_map():
            time.sleep(0.0 if gone else 0.02)
        ready = selector.select(0.0 if gone else 0.05) if selector.get_map() else []
        for key, _ in ready:
            data = os.read(key.fd, 1 << 16)
            if not data:
                selector.unregister(key.fd)
            kept[key.fd] += data[: max(0, MAX_OUTPUT - len(kept[key.fd]))]
        if gone and not ready:
            break
        if not gone and (not ready or not selector.get_map()):
            gone = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    selector.close()
    for read in reads:
        os.close(read)
    return [bytes(kept[read]) for read in reads]


def _become(header: dict[str, Any], outputs: list[int], filtered: bool) -> None:
    """Runs in the fork: sets the step's own limits and outputs, then runs the script or the program. Does not
    return."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, wanted in ((null, 0), (outputs[0], 1), (outputs[1], 2)):
        os.dup2(fd, wanted)
    os.closerange(3, 256)
    program = header["kind"] == "program"
    if not program:
        sandbox.drop_capabilities()
    if filtered and not seccomp.install(allow_exec=program, allow_fork=False, known=True):
        os._exit(71)
    if program:
        environment = {**os.environ, **header["environment"], "KERNELWRIGHT_FINDINGS": os.path.abspath(FINDINGS)}
        os.execve(header["path"], [header["name"], *header["arguments"]], environment)
    _script(header["name"], header["source"])


def _pretended_gpu(source: str) -> AbstractContextManager[Any]:
    """Makes torch put `cuda` tensors into plain memory, for a script that uses them."""
    if "cuda" not in source:
        return contextlib.nullcontext()
    return fake_cuda.FakeCuda(lambda _tensor: None)


def _script(name: str, source: str) -> None:
    """Runs a script as `python NAME` does, and exits as it does."""
    Path(name).write_text(source)
    sys.argv, sys.path[0:0] = [name], [os.getcwd()]
    status = 0
    try:
        hidden_package.hide([])
        with _pretended_gpu(source):
            runpy.run_path(name, run_name="__main__")
    except SystemExit as done:
        status = done.code if isinstance(done.code, int) else int(done.code is not None)
        if isinstance(done.code, str):
            print(done.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc(limit=-8)
        status = 1
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status & 0xFF)
