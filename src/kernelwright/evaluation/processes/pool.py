"""The judge's side of its children: starts the zygote, asks it for confined children, ends them, cleans up.

Everything here is bounded: a child that hangs is killed at its deadline, a child that dies is classified by its exit
status or signal, and closing the pool leaves no process, descriptor or file behind. It knows nothing of tasks or
verdicts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernelwright.config import cache_dir
from kernelwright.errors import HarnessError, KernelwrightError, WorkerDied
from kernelwright.evaluation.processes import sandbox, warm
from kernelwright.evaluation.processes.channel import (
    MAX_PAYLOAD,
    TRUSTED_PAYLOAD,
    Channel,
    ChannelClosed,
    ChannelTimeout,
    Frame,
    pair,
)
from kernelwright.evaluation.processes.roles import Role, library_paths
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.machine import library

START_SECONDS = 120.0
"""Seconds that the zygote may take to import torch on a busy machine."""
TRUSTED = ("referee", "baseline")
"""Roles on a GPU that run no code of a candidate."""
REFERENCES = ("oracle", *TRUSTED)
"""Roles that run no candidate."""


@dataclass(frozen=True)
class Fate:
    """The end of a child: `exit` and `signal` as from `wait`, peak memory in MB, and whether its files took too much
    space."""

    exit: int | None
    signal: int | None
    rss_mb: int
    full: bool = False

    def __str__(self) -> str:
        if self.signal is not None:
            return f"was killed by signal {self.signal}"
        return f"exited with status {self.exit}"


@dataclass(frozen=True)
class ChildLimits:
    """The limits on one child."""

    cpu_seconds: int = 0
    """0 for no limit."""
    memory_mb: int = 0
    """Address space beyond the zygote's; 0 for no limit."""
    file_mb: int = 0
    """Size of one file, and of all in the scratch folder; 0 for the limit of its role."""
    resident_mb: int = 0
    """A child that holds more memory is killed; 0 bounds only its address space."""


class Child:
    """One confined process and the channel to it."""

    def __init__(self, channel: Channel, status: socket.socket, scratch: Path, role: Role) -> None:
        self.channel = channel
        self.status = status
        self.scratch = scratch
        self.role = role
        self.level = "none"
        self.launch_ms = 0.0

    def ask(
        self, header: dict[str, Any], tensors: tuple[TensorBytes, ...] = (), deadline: float | None = None
    ) -> Frame:
        """Sends one message and waits for the answer; raises `ChannelClosed` or `ChannelTimeout`."""
        self.channel.send(header, tensors, deadline)
        return self.channel.receive(deadline)

    def fate(self, seconds: float = 5.0) -> Fate:
        """Returns the child's fate; kills it first if it still runs. Call once."""
        self.status.settimeout(seconds)
        with contextlib.suppress(OSError):
            self.status.send(b"kill")
        try:
            while True:
                data = self.status.recv(4096)
                if not data:
                    break
                for line in data.decode().replace("}{", "}\n{").splitlines():
                    facts = json.loads(line)
                    if "rss_mb" in facts:
                        return Fate(facts["exit"], facts["signal"], facts["rss_mb"], facts["full"])
        except (OSError, ValueError):
            pass
        return Fate(None, None, 0)

    def natural_fate(self, seconds: float = 2.0) -> Fate:
        """Returns the child's fate if it ends by itself within `seconds`; kills it otherwise."""
        self.status.settimeout(seconds)
        deadline = time.monotonic() + seconds
        with contextlib.suppress(OSError, ValueError):
            while time.monotonic() < deadline:
                data = self.status.recv(4096)
                if not data:
                    break
                for line in data.decode().replace("}{", "}\n{").splitlines():
                    facts = json.loads(line)
                    if "rss_mb" in facts:
                        return Fate(facts["exit"], facts["signal"], facts["rss_mb"], facts["full"])
        return self.fate()

    def end(self) -> None:
        """Kills the child if it lives and removes its scratch folder. May be called twice."""
        self.channel.close()
        self.status.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


def zygote_environment(home: Path, cache: Path) -> dict[str, str]:
    """Returns all variables of a zygote; `home` is its own folder."""
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(home),
        "TMPDIR": str(home),
        "KERNELWRIGHT_CACHE": str(cache),
        "CUDA_VISIBLE_DEVICES": "",
        # NVML answers queries for a GPU: the CUDA runtime could not be used in a fork afterwards.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
        "LC_ALL": "C.UTF-8",
        # This variable decides which card a number means, here and in the children.
        **{k: v for k, v in os.environ.items() if k == "CUDA_DEVICE_ORDER"},
    }


def zygote_command(call: str) -> list[str]:
    """Returns the command of a fresh interpreter that makes one call of `zygote` or `warm`."""
    code = f"import sys; sys.path[:0] = %r; from kernelwright.evaluation.processes import warm, zygote; {call}"
    return [sys.executable, "-I", "-c", code % [p for p in sys.path if p and Path(p).is_dir()]]


class Pool:
    """A zygote and the children it made. Threads may share one pool; each child belongs to one thread."""

    def __init__(self, sandbox_level: str = "auto") -> None:
        self.sandbox_level = sandbox_level
        self.cache = cache_dir()
        self.home = Path(tempfile.mkdtemp(prefix="kernelwright-"))
        self._lock = threading.Lock()
        self._count = 0
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | warm.Adopted | None = None
        # A process that dies with its parent (bubblewrap) dies with the thread that started it: this thread lives long
        # enough.
        self._starter = ThreadPoolExecutor(1, "zygote-starter")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _start(self) -> socket.socket:
        with contextlib.suppress(KernelwrightError):  # a failed build is reported when the library is needed
            library.build()  # the first build takes longer than a worker may take to start
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = self.home / "zygote.log"
        if self.sandbox_level != "none":
            self._process = warm.adopt(zygote_environment(self.home, self.cache), theirs, log)
        if self._process is None:
            self._process = self._launch(theirs.fileno(), log)
        theirs.close()
        ours.settimeout(START_SECONDS)
        try:
            ready = ours.recv(64)
        except OSError:
            ready = b""
        if ready != b"ready":
            ours.close()
            words = self._last_words()
            self._stop(grace=0.0)  # it does not listen yet, so it would not notice that we are gone
            raise HarnessError(
                f"the worker process did not start: {words}",
                hint="run `kernelwright doctor`; judging candidates needs torch and numpy in this environment",
            )
        ours.settimeout(None)
        return ours

    def _launch(self, control_fd: int, log: Path) -> subprocess.Popen[bytes]:
        """Starts a zygote of this pool's own."""
        argv = zygote_command(f"zygote.main({control_fd})")
        argv = sandbox.wrap_command(argv, self._outer_jail()) if self.sandbox_level != "none" else argv
        with open(log, "wb") as written:
            return subprocess.Popen(
                argv,
                pass_fds=(control_fd,),
                env=zygote_environment(self.home, self.cache),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
                cwd=self.home,
            )

    def _outer_jail(self) -> sandbox.Jail:
        limits = sandbox.Limits(cpu_seconds=0, memory_mb=0, file_mb=0)
        return sandbox.Jail(
            scratch=self.home,
            readable=(*library_paths(), *(Path(p) for p in sys.path if p and Path(p).is_dir())),
            writable=(self.home, self.cache),
            limits=limits,
            allow_exec=True,
            allow_fork=True,
        )

    def spawn(
        self,
        role: Role,
        limits: ChildLimits,
        *,
        device: dict[str, Any] | None = None,
        programs: bool = False,
        executables: tuple[Path, ...] = (),
        preload: tuple[str, ...] = (),
        link: socket.socket | None = None,
        start_seconds: float = START_SECONDS,
    ) -> Child:
        """Returns a fresh confined child; raises `WorkerDied` when it does not start within `start_seconds`.

        `device` (name and index) is for runner and referee of a GPU; with `programs` they may start compilers.
        `preload` names what the zygote imports before it forks (`zygote.PRELOADS`). `link` is the child's end of a
        record stream; it is closed here.
        """
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                self._stop()
            if self._control is None:
                self._control = self._starter.submit(self._start).result()
            self._count += 1
            scratch = self.home / f"{role}-{self._count}"
            scratch.mkdir(parents=True)
            channel, theirs = pair(TRUSTED_PAYLOAD if role in REFERENCES else MAX_PAYLOAD)
            status, status_theirs = socket.socketpair()
            order = {
                "role": role,
                "scratch": str(scratch),
                "cache": str(self.cache),
                "sandbox": self.sandbox_level,
                "cpu_seconds": limits.cpu_seconds,
                "memory_mb": limits.memory_mb,
                "device": device,
                "programs": programs,
                "executables": [str(path) for path in executables],
                "file_mb": limits.file_mb,
                "resident_mb": limits.resident_mb,
                "preload": preload,
                # Without a GPU, referee and runner share a file in place of device memory.
                "shared": [str(self.home)] if device and device["name"] != "cuda" else [],
                "kernels": self._kernels() if role in TRUSTED else "",
            }
            fds = [theirs.fileno(), status_theirs.fileno(), *([link.fileno()] if link is not None else [])]
            try:
                socket.send_fds(self._control, [json.dumps(order).encode()], fds)
            except OSError as error:
                self._stop()
                raise WorkerDied(f"the worker process is gone ({error}); {self._last_words()}") from error
            finally:
                theirs.close()
                status_theirs.close()
                if link is not None:
                    link.close()
        child = Child(channel, status, scratch, role)
        try:
            ready = channel.receive(time.monotonic() + start_seconds)
        except (ChannelClosed, ChannelTimeout) as error:
            fate = child.fate()
            child.end()
            raise WorkerDied(f"a {role} did not come up: it {fate}; {self._last_words()}") from error
        except BaseException:
            child.end()  # Ctrl-C while it starts: closing its sockets ends it
            raise
        child.level = str(ready.header.get("level", "none"))
        child.launch_ms = float(ready.header.get("launch_ms", 0.0))
        return child

    def _kernels(self) -> str:
        """Returns the folder in which children that run no candidate keep the kernels that torch compiles at an
        operator's first use (products, for one). Each compilation takes a second, while the child holds the GPU."""
        folder = self.home / "kernels"
        folder.mkdir(exist_ok=True)
        return str(folder)

    def warm(self) -> None:
        """Starts the zygote now rather than with the first child."""
        with self._lock:
            if self._control is None:
                self._control = self._starter.submit(self._start).result()

    def _last_words(self) -> str:
        """Returns the last line that the zygote or one of its children wrote to stderr."""
        try:
            lines = (self.home / "zygote.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            return "its log is gone"
        return lines[-1] if lines else "no output"

    def _stop(self, grace: float = 10.0) -> None:
        """Ends the zygote, by force after `grace` seconds; the next child gets a new one."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(grace)
            except subprocess.TimeoutExpired:
                sandbox.kill_group(self._process.pid)
                self._process.wait(10)
            self._process = None
        self.home.mkdir(exist_ok=True)

    def close(self) -> None:
        """Ends the zygote, with it every child, and removes the pool's folder. May be called twice."""
        with self._lock:
            self._stop()
        self._starter.shutdown()
        shutil.rmtree(self.home, ignore_errors=True)
