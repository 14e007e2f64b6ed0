"""A seccomp filter assembled by hand: system calls that a candidate has no use for fail with EPERM.

No sockets, no new programs, no new processes (threads are allowed), no signals to others, no tracing, no namespaces, no
kernel interfaces, nothing that outlives the process, and no change to the metadata of files (which landlock does not
cover). `clone3` fails with ENOSYS, so that the C library falls back to `clone`, whose flags the filter can read. A call
through another architecture's table kills the process. Tables for x86-64 and aarch64.
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
_CLONE_THREAD, _CLONE_NAMESPACES = 0x00010000, 0x7E020000
_X32 = 0x40000000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4

_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_Table = dict[str, tuple[int | None, int | None]]
"""Name: number on (x86-64, aarch64); None if the architecture has no such call."""
_Program = list[tuple[int, int, int, int]]

_DENIED: _Table = {
    # The network. The channel's socket exists already, and needs none of these.
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    # Other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # Mounts and namespaces.
    "mount": (165, 40),
    "umount2": (166, 39),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # The kernel and the machine.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
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
    "acct": (163, 89),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    # Identity.
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setfsuid": (122, 151),
    "setfsgid": (123, 152),
    "setgroups": (116, 159),
    "capset": (126, 91),
    # Objects that outlive the process in the kernel, and access to files that bypasses path checks.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
}
_DENIED_WITHOUT_FORK: _Table = {
    # Compilers need these, candidates and references do not.
    "fork": (57, None),
    "vfork": (58, None),
    "tkill": (200, 130),
    "setrlimit": (160, 164),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    # Memory that the address-space limit does not count.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # Locks on files that others wait for, and metadata of files anywhere.
    "flock": (73, 32),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
}
_EXEC: _Table = {"execve": (59, 221), "execveat": (322, 281)}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_KILL_CALLS = {"kill": (62, 129), "tgkill": (234, 131)}
_PRCTL, _PRLIMIT64, _FCNTL = (157, 167), (302, 261), (72, 25)
_LOCKING = (6, 7, 37, 38, 1024)
"""`fcntl` commands that set a lock or a lease: F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_SETLEASE."""

_OK = (_RET, 0, 0, _ALLOW)
_NO = (_RET, 0, 0, _ERRNO | errno.EPERM)


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction))]


def available() -> bool:
    """Tells whether a filter can be installed here. Installs none."""
    if sys.platform != "linux" or platform.machine() not in _ARCHES:
        return False
    try:
        with open("/proc/self/status") as file:
            return "Seccomp:" in file.read()
    except OSError:
        return False


def install(allow_exec: bool, allow_fork: bool, known: bool = False) -> bool:
    """Filters the calling thread and all it starts, for good. Returns False if that cannot be done.

    `known` means that a filter is in place already, so the test is skipped: a confined process may not make it.
    """
    if not known and not available():
        return False
    column = list(_ARCHES).index(platform.machine())
    code = _assemble(column, allow_exec, allow_fork, os.getpid())
    instructions = (_Instruction * len(code))(*(_Instruction(*one) for one in code))
    program = _Filter(len(code), instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # the condition for an unprivileged filter
    return int(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0)) == 0


def _argument(index: int) -> tuple[int, int, int, int]:
    """Loads the low half of an argument: enough for flags, commands and process ids, which are 32 bits wide."""
    return (_LOAD, 0, 0, _ARGS + 8 * index)


def _when(number: int, body: _Program) -> _Program:
    """Runs `body` for one system call; `body` must end the program on every path."""
    return [(_JEQ, 0, len(body), number), *body]


def _assemble(column: int, allow_exec: bool, allow_fork: bool, pid: int) -> _Program:
    """Assembles the program: each denied call is one compare and one return; the rest is allowed."""
    denied = dict(_DENIED)
    if not allow_exec:
        denied |= _EXEC
    if not allow_fork:
        denied |= _DENIED_WITHOUT_FORK
    code: _Program = [
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
            code += _when(number, [_NO])
    code += _when(_CLONE3[column], [(_RET, 0, 0, _ERRNO | errno.ENOSYS)])
    namespaces: _Program = [_argument(0), (_JSET, 0, 1, _CLONE_NAMESPACES), _NO]
    if allow_fork:
        return [*code, *_when(_CLONE[column], [*namespaces, _OK]), _OK]
    code += _when(_CLONE[column], [*namespaces, (_JSET, 1, 0, _CLONE_THREAD), _NO, _OK])
    for pair in _KILL_CALLS.values():
        # kill(pid, …) and tgkill(tgid, …): only to this very process.
        code += _when(pair[column], [_argument(0), (_JEQ, 1, 0, pid), _NO, _OK])
    kept = [(_JEQ, 0, 1, option) for option in (_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE)]
    code += _when(_PRCTL[column], [_argument(0), *(part for one in kept for part in (one, _NO)), _OK])
    locks = [(_JEQ, 0, 1, command) for command in _LOCKING]
    code += _when(_FCNTL[column], [_argument(1), *(part for one in locks for part in (one, _NO)), _OK])
    # prlimit64(pid, resource, new, old) only reads limits if `new` is null, in both halves of the address.
    halves: _Program = [
        (_LOAD, 0, 0, _ARGS + 16),
        (_JEQ, 1, 0, 0),
        _NO,
        (_LOAD, 0, 0, _ARGS + 20),
        (_JEQ, 1, 0, 0),
        _NO,
    ]
    return [*code, *_when(_PRLIMIT64[column], [*halves, _OK]), _OK]
