"""A g++ that has already read the stand-in headers and forks for every source.

Loading the precompiled header takes g++ 0.05 s, and the work that the standard library defers to the end of a
translation unit 0.06 s more; parsing a candidate's text between the two takes 0.01 s. So each builder stops one
compiler where it would open the candidate's file (`warm_compiler.c`, by LD_PRELOAD) and forks it for every source. A
text is first only parsed: static assertions after its end make g++ stop there. After some texts the compiler keeps its
header in huge pages, 90 MB of its own: mapping a file page by page takes a child twice as long.

Where this does not work (with a statically linked compiler, for example), `start` returns None and the caller runs g++
normally.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from kernelwright.backends.compiler_limits import COMPILER_SECONDS, limit_compiler

SOURCE = Path(__file__).with_suffix(".c")
MAX_ERRORS = 10
_SENTINEL = "kw-end-of-unit"
_STOP = "".join(f'\nstatic_assert(false, "{_SENTINEL} {k}");' for k in range(MAX_ERRORS + 1)) + "\n"
_START_SECONDS = 30.0


class WarmCompiler:
    """One waiting compiler. Not thread-safe."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, folder: Path) -> None:
        self._process = process
        self._control = control
        self.folder = folder

    def errors(self, text: str, timeout: float) -> tuple[int, str]:
        """Parses `text`; returns (0, "") without errors, else (status, log). Misses errors in template instances."""
        status, log = self._ask(text + _STOP, "check", timeout)
        own = _without_sentinels(log)
        return (0, "") if own is None else (status, own)

    def compile(self, text: str, assembly: Path, timeout: float) -> tuple[int, str]:
        """Compiles `text` to `assembly`; returns (status, log), with status -1 on a timeout."""
        status, log = self._ask(text, "unit", timeout)
        if status == 0:
            shutil.move(self.folder / "unit.s", assembly)  # the two may be on different mounts
        return status, log

    def _ask(self, text: str, name: str, timeout: float) -> tuple[int, str]:
        source, target, log = (self.folder / f"{name}.{end}" for end in ("cpp", "s", "log"))
        source.write_text(text, errors="replace")
        try:
            self._control.sendall(f"{source}\n{target}\n{log}\n".encode())
            answer = self._receive(timeout)
        except OSError as error:
            self.close()
            raise CompilerLost(str(error)) from None
        if answer is None:
            self.close()
            return -1, f"error: the compiler ran longer than {timeout:.0f} s and was stopped"
        status = os.waitstatus_to_exitcode(int(answer))
        told = _tidy(log.read_text(errors="replace") if log.exists() else "")
        if status == -signal.SIGXCPU:
            told += f"error: the compiler used more than {COMPILER_SECONDS:.0f} s of processor time\n"
        elif status < 0:
            told += f"error: the compiler was stopped by {signal.Signals(-status).name}\n"
        return status, told

    def _receive(self, timeout: float) -> bytes | None:
        deadline = time.monotonic() + timeout
        answer = b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            part = self._control.recv(64)
            if not part:
                raise ConnectionResetError("the waiting compiler ended")
            answer += part
        return answer

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self._control.fileno() >= 0

    def close(self) -> None:
        """Kills the waiting compiler and its children. May be called twice."""
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class CompilerLost(Exception):
    """Raised when the waiting compiler died; the caller may compile the text with a new g++."""


def start(command: Sequence[str], header: Path, folder: Path, preload: Path) -> WarmCompiler | None:
    """Starts a compiler that has read `header`, in a `folder` of its own; returns None if that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    unit = folder / "kw_unit.inc"
    (folder / "kw_main.cpp").write_text(f'#include "{header}"\n#include "{unit}"\n')
    ours, theirs = socket.socketpair()
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": str(folder), "HOME": str(folder)}
    environment |= {"LD_PRELOAD": str(preload), "KW_UNIT": str(unit)}
    process = subprocess.Popen(
        [*command, f"-fmax-errors={MAX_ERRORS}", "-S", "kw_main.cpp", "-o", "-"],
        cwd=folder,
        env=environment,
        stdin=theirs.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=limit_compiler,  # each fork has this processor time for its own source
    )
    theirs.close()
    warm = WarmCompiler(process, ours, folder)
    try:
        if warm.errors("int kw_probe = kw_undeclared;\n", _START_SECONDS)[0] == 1:
            return warm
    except CompilerLost:
        pass
    warm.close()
    return None


def _without_sentinels(log: str) -> str | None:
    """Removes the messages of the trailing assertions from a log; returns None when no other error is left."""
    lines = log.splitlines()
    first = next((k for k, line in enumerate(lines) if _SENTINEL in line), len(lines))
    kept = "\n".join(lines[:first])
    return kept + "\n" if re.search(r"\berror:", kept) else None


def _tidy(log: str) -> str:
    """Removes the mention of the including file from a log."""
    log = re.sub(r"^In file included from kw_main\.cpp:2:\n", "", log, flags=re.MULTILINE)
    return re.sub(r",\n\s+from kw_main\.cpp:2:", ":", log)
