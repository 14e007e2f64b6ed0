"""A seccomp filter assembled by hand: calls that a candidate has no use for answer EPERM.

No sockets, no new programs, no new processes (threads are allowed), no signals to others, no tracing, no namespaces, no
kernel interfaces. `clone3` answers ENOSYS, so that the C library falls back to `clone`, whose flags can be read. A
call through another architecture's table kills the process. Tables for x86-64 and aarch64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys

_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGS = 0, 4, 16
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Name: (x86-64, aarch64); None where the architecture has no such call.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setgroups": (116, 159),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "sethostname": (170, 161),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "iopl": (172, None),
    "ioperm": (173, None),
    "prlimit64": (302, 261),
    "setrlimit": (160, 164),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "chown": (92, None),
    "fchownat": (260, 54),
    "mknod": (133, None),
    "mknodat": (259, 33),
}
_EXEC = {"execve": (59, 221), "execveat": (322, 281)}
_FORK = {"fork": (57, None), "vfork": (58, None)}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SIGNALS = {"kill": (62, 129), "tgkill": (234, 131)}
_TKILL = (200, 130)
_OWN_LIMITS = ("prlimit64", "setrlimit", "setpriority", "sched_setaffinity", "setsid", "setpgid")


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction))]


def available() -> bool:
    """Whether a filter can be installed here. Installs none."""
    if sys.platform != "linux" or platform.machine() not in _ARCHES:
        return False
    try:
        with open("/proc/self/status") as file:
            return "Seccomp:" in file.read()
    except OSError:
        return False


def install(allow_exec: bool, allow_fork: bool) -> bool:
    """Filters the calling thread and all it starts, for good. False where that cannot be done."""
    if not available():
        return False
    column = list(_ARCHES).index(platform.machine())
    code = _filter(column, allow_exec, allow_fork, os.getpid())
    instructions = (_Instruction * len(code))(*(_Instruction(*one) for one in code))
    program = _Program(len(code), instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges: the condition for an unprivileged filter
    return int(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0)) == 0


def _filter(column: int, allow_exec: bool, allow_fork: bool, pid: int) -> list[tuple[int, int, int, int]]:
    """The program: each denied call is one compare and one return; the rest is allowed."""
    denied = {name: pair for name, pair in _DENIED.items() if not (allow_fork and name in _OWN_LIMITS)}
    if not allow_exec:
        denied |= _EXEC
    if not allow_fork:
        denied |= _FORK
    no = (_RET, 0, 0, _ERRNO | errno.EPERM)
    code = [
        (_LOAD, 0, 0, _ARCH),
        (_JEQ, 1, 0, list(_ARCHES.values())[column]),
        (_RET, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if column == 0:
        code += [(_JGE, 0, 1, _X32), (_RET, 0, 0, _KILL)]
    for pair in denied.values():
        number = pair[column]
        if number is not None:
            code += [(_JEQ, 0, 1, number), no]
    code += [(_JEQ, 0, 1, _CLONE3[column]), (_RET, 0, 0, _ERRNO | errno.ENOSYS)]
    if not allow_fork:
        # clone(flags, …): only with CLONE_THREAD.
        code += [(_JEQ, 0, 4, _CLONE[column]), (_LOAD, 0, 0, _ARGS), (_JSET, 1, 0, _CLONE_THREAD), no]
        code += [(_RET, 0, 0, _ALLOW)]
        code += [(_JEQ, 0, 1, _TKILL[column]), no]
        for pair in _SIGNALS.values():
            # kill(pid, …) and tgkill(tgid, …): only to this very process.
            code += [(_JEQ, 0, 4, pair[column] or 0), (_LOAD, 0, 0, _ARGS), (_JEQ, 1, 0, pid), no]
            code += [(_RET, 0, 0, _ALLOW)]
    return [*code, (_RET, 0, 0, _ALLOW)]
