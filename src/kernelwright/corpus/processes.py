"""Starts and stops processes that run one of our modules: fresh interpreters that exchange JSON lines.

Not multiprocessing: a trainer that streams pairs has torch and threads in its process, which must not be forked, and
its own script need not be importable.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernelwright.errors import HarnessError


def start(module: str, first: Any, more: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Starts a process that runs one of our modules, and sends it `first`. `more` are environment variables."""
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, **(more or {}), "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    # A process that starts has SIGINT blocked until it ignores it: Ctrl-C would interrupt its imports.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    send(process, first)
    return process


def send(process: subprocess.Popen[str], value: Any) -> None:
    """Sends one JSON line to a process. Ignores a process that is gone: `receive` reports it."""
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(value) + "\n")
        process.stdin.flush()
    except (BrokenPipeError, OSError):
        return


def request() -> Any:
    """Returns the next JSON line that the parent sends. Ends the process where the parent is gone."""
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        raise SystemExit(0)
    return json.loads(line)


def receive(process: subprocess.Popen[str]) -> Any:
    """Returns the next JSON line of a process. Raises `HarnessError` where it has ended, or reports a failure."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.endswith("\n"):
        raise HarnessError(f"a process that writes pairs ended with status {process.wait()}", hint="see its messages")
    value = json.loads(line)
    if isinstance(value, dict) and "failed" in value:
        raise HarnessError(f"a process that writes pairs failed: {value['failed']}")
    return value


def stop(process: subprocess.Popen[str], seconds: float = 5.0) -> None:
    """Closes a process's input, which ends it; kills it after `seconds`."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                pass
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def ignore_interrupts() -> None:
    """Ignores Ctrl-C: the parent handles it, and its closed pipe ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
