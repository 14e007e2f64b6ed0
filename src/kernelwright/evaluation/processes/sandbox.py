"""Confinement of a child process, applied by the child itself before it reads anything untrusted.

Layers, each recorded when it holds: a session of its own with resource limits and a scrubbed environment (`process`),
landlock (`landlock`), a seccomp filter (`seccomp`), and bubblewrap around the worker process if it is installed
(`bwrap`). A missing layer is left out, never pretended. Not covered: a candidate that reads its own process, that tests
whether a file exists and how large it is (unless under bubblewrap), kernel bugs, and access that a GPU driver allows.
Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from kernelwright.errors import SandboxError
from kernelwright.evaluation.processes import landlock, seccomp

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_CAPABILITY_VERSION = 0x20080522
_CAP_DAC_READ_SEARCH = 2

_BWRAP = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent"),
    *("--proc", "/proc", "--dev", "/dev"),
)

KEPT_ENVIRONMENT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
    "PYTHONDONTWRITEBYTECODE",
    "KERNELWRIGHT_CACHE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
)


@dataclass(frozen=True)
class Limits:
    """Resource limits of one child; 0 means no limit of that kind."""

    cpu_seconds: int
    memory_mb: int
    """Address space in MB beyond the size that the process has when the limit is set."""
    file_mb: int
    """Size of one file in MB; see `oversized` for all files together."""
    open_files: int = 256
    processes: int = 256
    """Processes and threads beyond those that the user has already. Set only if seccomp does not forbid forks."""


@dataclass(frozen=True)
class Jail:
    """The files, devices and calls that one child may use."""

    scratch: Path
    readable: tuple[Path, ...]
    writable: tuple[Path, ...]
    limits: Limits
    openable: tuple[Path, ...] = ()
    """Folders whose files may be read by name, but not listed."""
    listable: tuple[Path, ...] = ()
    """Folders that may be listed, but whose files may not be read."""
    devices: tuple[Path, ...] = ()
    """Files of a GPU's driver, for a child that works on a GPU."""
    allow_exec: bool = False
    allow_fork: bool = False


def enter(jail: Jail, level: str = "auto", keep_fds: tuple[int, ...] = ()) -> str:
    """Confines the calling process for good and returns the level reached, e.g. `landlock7+seccomp+process`.

    `level` is `auto`, `strict` (raises `SandboxError` without landlock and seccomp) or `none` (process layer only).
    """
    _process(jail, keep_fds)
    names = ["process"]
    if not jail.allow_fork and (level == "none" or not seccomp.available()):
        _limit_processes(jail.limits.processes)
    if level != "none":
        abi = landlock.restrict(
            jail.readable, jail.writable, jail.allow_exec, jail.openable, jail.devices, jail.listable
        )
        if abi:
            names.insert(0, f"landlock{abi}")
        if seccomp.install(jail.allow_exec, jail.allow_fork):
            names.insert(1 if abi else 0, "seccomp")
        if level == "strict" and len(names) < 3:
            raise SandboxError(
                f"only {'+'.join(names)} is available here", hint="use --sandbox auto, or a newer kernel"
            )
    if os.environ.get("KERNELWRIGHT_BWRAP") == "1":
        names.insert(0, "bwrap")
    return "+".join(names)


def _process(jail: Jail, keep_fds: tuple[int, ...]) -> None:
    with contextlib.suppress(OSError):
        os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.umask(0o077)
    os.chdir(jail.scratch)
    bwrap = os.environ.get("KERNELWRIGHT_BWRAP")
    for name in list(os.environ):
        if name not in KEPT_ENVIRONMENT:
            del os.environ[name]
    own = str(jail.scratch)
    os.environ.update(HOME=own, TMPDIR=own, TRITON_CACHE_DIR=f"{own}/triton", TORCHINDUCTOR_CACHE_DIR=f"{own}/inductor")
    tempfile.tempdir = None  # the parent's choice may be cached
    if bwrap:
        os.environ["KERNELWRIGHT_BWRAP"] = bwrap
    _close_descriptors(keep_fds)
    _limit(jail)
    if not jail.allow_exec:
        drop_capabilities()


def _close_descriptors(keep: tuple[int, ...]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        if fd not in keep:
            os.dup2(null, fd)
    wanted = {0, 1, 2, *keep}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in wanted:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _limit(jail: Jail) -> None:
    limits = jail.limits
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits.open_files, limits.open_files))
    if limits.cpu_seconds:
        # SIGXCPU first, then SIGKILL: the first lets the judge tell a time-out from a crash.
        resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 2))
    if limits.file_mb:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_mb << 20, limits.file_mb << 20))
    if limits.memory_mb:
        space = address_space() + (limits.memory_mb << 20)
        resource.setrlimit(resource.RLIMIT_AS, (space, space))


def drop_capabilities() -> None:
    """Drops root's capabilities, except to read: the interpreter's libraries may belong to another user."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    kept = 1 << _CAP_DAC_READ_SEARCH if os.geteuid() == 0 else 0
    libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0))


def _limit_processes(more: int) -> None:
    """Bounds a fork bomb. The kernel counts all of a user's processes and threads, and exempts root."""
    if not more:
        return
    tasks = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                tasks += len(os.listdir(f"/proc/{entry.name}/task"))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (tasks + more, tasks + more))


def address_space() -> int:
    """Returns the size of this process's address space in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def become_reaper() -> None:
    """Makes this process the reaper of its children's orphans, so that none outlives it unseen (the zygote calls
    it)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_group(pid: int) -> None:
    """Kills a child of this process that was not waited for yet, its process group, and all its descendants.

    `kill_strays` finds descendants that left the group and lost their parents, in the process that called
    `become_reaper`.
    """
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGSTOP)  # so that it starts nothing more while its descendants are listed
    family = _descendants(pid)
    for kill, target in ((os.killpg, pid), *((os.kill, member) for member in (pid, *family))):
        with contextlib.suppress(OSError):
            kill(target, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    """Returns all descendants of a process that still have their parents, itself not included."""
    found, waiting = [], [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def kill_strays(known: Collection[int], rounds: int = 20) -> int:
    """Kills and reaps children of this process that are not `known`: orphans that came to it as their reaper.

    A killed stray passes its own children on in turn, so this repeats until none is left. Returns how many there were.
    """
    killed: set[int] = set()
    for _ in range(rounds):
        strays = [pid for pid in _children() if pid not in known]
        if not strays:
            break
        for pid in strays:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in strays:
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)
        killed.update(strays)
    return len(killed)


def _children(pid: int = 0) -> list[int]:
    """Returns the process ids of a process's children (this process's own for 0), including ended ones that were not
    waited for."""
    found: list[int] = []
    folder = f"/proc/{pid or 'self'}/task"
    try:
        for thread in os.listdir(folder):
            with open(f"{folder}/{thread}/children") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:  # a kernel without this file, or the process is gone
        import psutil

        with contextlib.suppress(psutil.Error):
            found = [process.pid for process in psutil.Process(pid or None).children()]
    return found


def oversized(folder: Path, megabytes: int, files: int = 20_000) -> bool:
    """Tells whether a scratch folder exceeds its bound: `file_mb` bounds each file, this bounds all of them."""
    space, count, waiting = 0, 0, [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    with contextlib.suppress(OSError):
                        space += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(Path(entry.path))
                    if count > files or space > megabytes << 20:
                        return True
        except OSError:
            continue
    return False


def wraps() -> bool:
    """Tells whether a working bubblewrap is installed."""
    return _bwrap() is not None


def _bwrap() -> str | None:
    program = shutil.which("bwrap")
    return program if program is not None and _bwrap_works(program) else None


def wrap_command(argv: list[str], jail: Jail) -> list[str]:
    """Wraps a command in bubblewrap if that works: own process, network and IPC namespaces, a read-only system."""
    program = _bwrap()
    if program is None:
        return argv
    wrapped = [program, *_BWRAP, "--setenv", "KERNELWRIGHT_BWRAP", "1"]
    for path in jail.readable:
        wrapped += ["--ro-bind-try", str(path), str(path)]
    for path in jail.writable:
        wrapped += ["--bind", str(path), str(path)]
    return [*wrapped, "--", *argv]


def _bwrap_works(program: str) -> bool:
    import subprocess

    command = [program, "--ro-bind", "/", "/", *_BWRAP, "--", "/bin/true"]
    try:
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def probe() -> dict[str, str]:
    """Returns the available layers, each as `yes …` or `no: why`. Confines nothing."""
    facts = {"process": "yes" if sys.platform == "linux" else "no: needs Linux"}
    abi = landlock.abi()
    facts["landlock"] = f"yes (ABI {abi})" if abi else "no: the kernel has no landlock, or it is switched off"
    facts["seccomp"] = "yes" if seccomp.available() else "no: needs Linux on x86-64 or aarch64 with seccomp"
    program = shutil.which("bwrap")
    if program is None:
        facts["bwrap"] = "no: not installed (optional; package bubblewrap)"
    else:
        facts["bwrap"] = "yes" if _bwrap_works(program) else "no: user namespaces are not allowed here"
    return facts
