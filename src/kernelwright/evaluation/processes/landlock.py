"""Landlock by raw system calls: bounds the files that a process may read, write and execute, and denies TCP.

Access is granted to the listed folders and files; everything else is denied, to root as well. Needs Linux 5.13; network
rules need ABI 4, and rules against signals and abstract sockets ABI 6. Rules that an older kernel does not know are
left out.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE
_ALL_V1 = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_NET = 3
_SCOPES = 3
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_OWN = "auxv cgroup cmdline limits maps mountinfo mounts stat statm status".split()
_PROC_READ = (
    *(f"/proc/self/{name}" for name in _OWN),
    *("/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/sys/devices/system/cpu"),
)
"""Files about this machine and the process itself; `mem` and `environ` are not among them, and no other process is."""
_DRIVER_READ = ("/sys/devices/system", "/sys/bus/pci", "/proc/driver/nvidia", "/proc/sys/vm", "/etc/passwd")
"""Paths that a GPU's driver, its profiler and compilers for it read."""


class _Attributes(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("access", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def abi() -> int:
    """Returns the kernel's landlock version; 0 if it has none."""
    try:
        version = ctypes.CDLL(None, use_errno=True).syscall(_CREATE, None, 0, 1)
    except (OSError, AttributeError):
        return 0
    return max(0, int(version))


def restrict(
    readable: Iterable[Path],
    writable: Iterable[Path],
    allow_exec: bool,
    openable: Iterable[Path] = (),
    devices: tuple[Path, ...] = (),
    listable: Iterable[Path] = (),
) -> int:
    """Confines the calling thread and what it starts. Returns the ABI used, or 0 when nothing was restricted.

    Files under `openable` can be read by name; its folders cannot be listed. Folders under `listable` can be listed;
    their files cannot be read. `devices` are the files of a GPU's driver, which need ioctl.
    """
    version = abi()
    if version <= 0:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    handled = _ALL_V1
    handled |= _REFER if version >= 2 else 0
    handled |= _TRUNCATE if version >= 3 else 0
    handled |= _IOCTL_DEV if version >= 5 else 0
    attributes = _Attributes(handled, _NET if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 8 if version < 4 else (16 if version < 6 else 24)
    ruleset = libc.syscall(_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return 0
    read = _READ_FILE | _READ_DIR | (_EXECUTE if allow_exec else 0)
    for path in readable:
        _allow(libc, ruleset, path, read)
    for path in openable:
        _allow(libc, ruleset, path, _READ_FILE)
    for path in (*listable, Path("/proc/self/task")):
        _allow(libc, ruleset, path, _READ_DIR)
    for name in (*_PROC_READ, f"/proc/self/task/{os.getpid()}/children"):
        _allow(libc, ruleset, Path(name), _READ_FILE | _READ_DIR)
    for path in writable:
        _allow(libc, ruleset, path, handled & ~(_EXECUTE | _IOCTL_DEV))
    for name in _DRIVER_READ if devices else ():
        _allow(libc, ruleset, Path(name), _READ_FILE | _READ_DIR)
    for path in devices:
        _allow(libc, ruleset, path, (_READ_FILE | _WRITE_FILE | _IOCTL_DEV) & handled)
    for name in _DEVICES:
        _allow(libc, ruleset, Path(name), (_READ_FILE | _WRITE_FILE) & handled)
    held = libc.syscall(_RESTRICT, ruleset, 0)
    os.close(ruleset)
    return version if held == 0 else 0


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not path.is_dir():
        access &= _FILE_RIGHTS | _TRUNCATE | _IOCTL_DEV
    rule = _Beneath(access, fd)
    libc.syscall(_ADD, ruleset, 1, ctypes.byref(rule), 0)
    os.close(fd)
