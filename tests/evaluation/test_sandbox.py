"""The sandbox attacked from inside, one property per test, in real forked children.

Most tests do an action twice: unconfined, where it must work, then confined, where it must be refused. Run as root,
they also run as an ordinary user.
"""

from __future__ import annotations

import contextlib
import ctypes
import encodings.idna  # noqa: F401  (an ordinary user may be unable to import what root's interpreter loads late)
import fcntl
import functools
import mmap
import os
import platform
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confined import LIBC, NOBODY, Outcome, Place, attempt, become, bystander, call, gone

from kernelwright.errors import SandboxError
from kernelwright.evaluation.processes import landlock, sandbox, seccomp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
needs_landlock = pytest.mark.skipif(not landlock.abi(), reason="this kernel has no landlock")
needs_seccomp = pytest.mark.skipif(not seccomp.available(), reason="no seccomp here")
X86 = platform.machine() == "x86_64"


@pytest.fixture(params=["own", "nobody"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "nobody" and os.getuid() != 0:
        pytest.skip("only root can become another user")
    base = Path(tempfile.mkdtemp(prefix="sandbox-test-"))
    base.chmod(0o755)
    uid = NOBODY if request.param == "nobody" else None
    made = Place(base / "scratch", base / "outside", uid)
    for folder in (made.scratch, made.outside):
        folder.mkdir()
    made.secret.write_text("the answer")
    made.secret.chmod(0o644)
    if uid is not None:
        for path in (made.scratch, made.outside, made.secret):
            os.chown(path, uid, uid)
    yield made
    shutil.rmtree(base)


def refused(action: Callable[[], object], place: Place) -> Outcome:
    """Asserts that an action works in an unconfined process and is refused in a confined one."""
    free = attempt(action, place, level=None)
    if not free.worked:
        pytest.skip(f"the attack itself does not work here: {free}")
    confined = attempt(action, place)
    assert confined.refused, confined
    return confined


# Reachable resources, and the errors for the others.


def test_level_is_what_the_probe_promises(place: Place) -> None:
    facts = sandbox.probe()
    level = attempt(lambda: None, place).level
    for layer in ("process", "landlock", "seccomp"):
        assert (layer in level) == facts[layer].startswith("yes"), (level, facts)
    assert "bwrap" not in level
    assert attempt(lambda: None, place, level="none").level == "process"


@needs_landlock
@needs_seccomp
def test_a_missing_layer_is_named_and_strict_refuses(place: Place) -> None:
    without = attempt(lambda: None, place, before=lambda: forbid(444))
    assert without.worked and without.level == "seccomp+process"
    strict = attempt(lambda: None, place, level="strict", before=lambda: forbid(444))
    assert strict.error == SandboxError.__name__ and "seccomp+process" in strict.text
    assert attempt(lambda: None, place, level="strict").level.endswith("seccomp+process")


def forbid(number: int) -> None:
    """Makes one system call answer ENOSYS in this process, as on an older kernel."""
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
    instructions = (seccomp._Instruction * len(code))(*(seccomp._Instruction(*one) for one in code))
    program = seccomp._Filter(len(code), instructions)
    assert LIBC.prctl(38, 1, 0, 0, 0) == 0 and LIBC.prctl(22, 2, ctypes.byref(program), 0, 0) == 0


# Network and other programs.


@needs_seccomp
@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (socket.AF_INET, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_DGRAM),
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_NETLINK, socket.SOCK_RAW),
    ],
    ids=["tcp", "udp", "unix", "netlink"],
)
def test_no_socket(place: Place, family: int, kind: int) -> None:
    refused(lambda: socket.socket(family, kind).close(), place)


def landlock_alone(place: Place) -> None:
    """Enters Landlock without the other layers; an unprivileged user must first give up new privileges."""
    LIBC.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    assert landlock.restrict((Path("/usr"),), (place.scratch,), False) == landlock.abi()


@pytest.mark.skipif(landlock.abi() < 4, reason="landlock here knows no network rules")
def test_landlock_alone_stops_tcp(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def connect() -> None:
            socket.create_connection(address, timeout=5).close()

        assert attempt(connect, place, level=None).worked
        confine = functools.partial(landlock_alone, place)
        assert attempt(connect, place, level=None, before=confine).refused


@pytest.mark.skipif(landlock.abi() < 6, reason="landlock here has no scopes")
def test_landlock_alone_stops_signals_and_abstract_sockets(place: Place) -> None:
    confine = functools.partial(landlock_alone, place)
    with bystander(place.uid) as pid:
        assert attempt(lambda: os.kill(pid, 0), place, level=None).worked
        assert attempt(lambda: os.kill(pid, 0), place, level=None, before=confine).refused
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0kernelwright-test-{os.getpid()}")
        server.listen()

        def connect() -> None:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(server.getsockname())

        assert attempt(connect, place, level=None).worked
        assert attempt(connect, place, level=None, before=confine).refused


@needs_seccomp
def test_no_program_is_started(place: Place) -> None:
    refused(lambda: subprocess.run(["/bin/true"], check=True), place)
    assert attempt(lambda: os.execv("/bin/true", ["true"]), place).refused


@needs_seccomp
def test_no_fork(place: Place) -> None:
    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    refused(fork, place)


@needs_seccomp
def test_a_builder_may_start_programs_that_stay_confined(place: Place) -> None:
    jail = place.jail(allow_exec=True, allow_fork=True)
    read = f"import sys; open({str(place.secret)!r}).read()"
    make = f"open('made', 'w').write('x'); import os; os.chmod({str(place.scratch / 'made')!r}, 0o700)"
    own = Place(place.scratch, place.outside, None)  # the interpreter may be out of an ordinary user's reach
    for program, worked in ((make, True), (read, not landlock.abi())):
        argv = ["/usr/bin/env", sys.executable, "-I", "-S", "-c", program]
        done = attempt(lambda: subprocess.run(argv, check=True), own, jail=jail)  # noqa: B023
        assert done.worked == worked, done


# Other processes.


@needs_seccomp
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_no_signal_to_another(place: Place, name: str) -> None:
    with bystander(place.uid) as pid:
        assert attempt(lambda: os.kill(pid, 0), place, level=None).worked
        assert attempt(lambda: os.kill(pid, getattr(signal, name)), place).refused
        for everyone in (0, -1):
            assert attempt(lambda: os.kill(everyone, getattr(signal, name)), place).refused  # noqa: B023


@needs_seccomp
@pytest.mark.skipif(not X86, reason="numbers are those of x86-64")
def test_no_queued_signal_to_another(place: Place) -> None:
    with bystander(place.uid) as pid:
        information = ctypes.create_string_buffer(128)
        ctypes.c_int.from_buffer(information, 8).value = -1  # as sigqueue does
        assert attempt(lambda: call(129, pid, 0, information), place, level=None).worked
        assert attempt(lambda: call(129, pid, 0, information), place).refused


@needs_seccomp
@pytest.mark.skipif(not X86, reason="numbers are those of x86-64")
@pytest.mark.parametrize(
    "action",
    [
        lambda: call(101, 0, 0, 0, 0),
        lambda: call(310, os.getpid(), None, 0, None, 0, 0),
        lambda: call(311, os.getpid(), None, 0, None, 0, 0),
        lambda: call(434, os.getpid(), 0),
        lambda: call(312, os.getpid(), os.getpid(), 1, 0, 0),
    ],
    ids=["ptrace", "process_vm_readv", "process_vm_writev", "pidfd_open", "kcmp"],
)
def test_no_access_to_processes_by_number(place: Place, action: Callable[[], object]) -> None:
    refused(action, place)


@needs_landlock
@pytest.mark.parametrize("name", ["environ", "cmdline", "mem", "maps", "fd", "root", "cwd"])
def test_nothing_of_the_parent_in_proc(place: Place, name: str) -> None:
    path = f"/proc/{os.getpid()}/{name}"

    def look() -> None:
        if name in ("fd", "root", "cwd"):
            os.listdir(path)
        else:
            os.close(os.open(path, os.O_RDONLY))

    own = Place(place.scratch, place.outside, None)  # as the parent's user, which may read these files
    refused(look, own)


# Files.


@needs_landlock
@pytest.mark.parametrize(
    "action",
    [
        lambda p: p.secret.read_text(),
        lambda p: os.listdir(p.outside),
        lambda p: p.secret.write_text("forged"),
        lambda p: (p.outside / "new").touch(exist_ok=False) or (p.outside / "new").unlink(),
        lambda p: (p.outside / "folder").mkdir() or (p.outside / "folder").rmdir(),
        lambda p: os.truncate(p.secret, 10),
        lambda p: os.rename(p.secret, p.outside / "moved") or os.rename(p.outside / "moved", p.secret),
        lambda p: os.link(p.secret, p.scratch / "link") or os.unlink(p.scratch / "link"),
        lambda p: os.symlink(p.secret, f"{p.scratch}/s{os.getpid()}") or open(f"{p.scratch}/s{os.getpid()}").read(),
        lambda p: open(p.scratch / ".." / "outside" / "secret").read(),
        lambda p: open(f"/proc/self/root{p.secret}").read(),
        lambda p: open("/etc/passwd").read(),
        lambda p: os.close(os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR, 0o600)),
        lambda p: os.listdir("/proc"),
    ],
    ids="read list write create mkdir truncate rename hardlink symlink dots proc-root passwd shm processes".split(),
)
def test_no_file_outside(place: Place, action: Callable[[Place], object]) -> None:
    refused(lambda: action(place), place)
    assert place.secret.read_text() in ("the answer", "forged")


def test_unlinking_outside_is_refused(place: Place) -> None:
    if not landlock.abi():
        pytest.skip("this kernel has no landlock")
    assert attempt(lambda: os.unlink(place.secret), place).refused and place.secret.exists()


@needs_seccomp
@pytest.mark.parametrize(
    "action",
    [
        lambda p: os.chmod(p.secret, 0o644),
        lambda p: os.chown(p.secret, -1, -1),
        lambda p: os.lchown(p.secret, -1, -1),
        lambda p: os.utime(p.secret, (1, 1)),
    ],
    ids=["chmod", "chown", "lchown", "utime"],
)
def test_no_metadata_outside(place: Place, action: Callable[[Place], object]) -> None:
    """Landlock does not watch these calls; with the user's own id they would reach all of the user's files."""
    refused(lambda: action(place), place)


@needs_seccomp
def test_no_attributes_outside(place: Place) -> None:
    def mark() -> None:
        os.setxattr(place.secret, "user.note", b"x")

    if not attempt(mark, place, level=None).worked:
        pytest.skip("this file system has no extended attributes")
    refused(mark, place)


@needs_landlock
def test_files_that_may_be_opened_cannot_be_found(place: Place) -> None:
    jail = place.jail(openable=(place.outside,))
    assert attempt(place.secret.read_text, place, jail=jail).value == "'the answer'"
    assert attempt(lambda: os.listdir(place.outside), place, jail=jail).refused
    assert attempt(lambda: place.secret.write_text("x"), place, jail=jail).refused


@needs_seccomp
def test_no_lock_on_a_file_that_others_lock(place: Place) -> None:
    jail = place.jail(openable=(place.outside,))
    for lock in (lambda f: fcntl.flock(f, fcntl.LOCK_EX), lambda f: fcntl.lockf(f, fcntl.LOCK_SH)):
        with open(place.secret) as file:
            os.set_inheritable(file.fileno(), True)
            keep = (file.fileno(),)
            assert attempt(lambda: lock(file), place, level=None).worked  # noqa: B023
            assert attempt(lambda: lock(file), place, jail=jail, keep=keep).refused  # noqa: B023


def test_scratch_is_for_everything(place: Place) -> None:
    def work() -> str:
        os.makedirs("a/b")
        Path("a/b/c").write_text("x" * 1000)
        os.rename("a/b/c", "a/c")
        os.symlink("c", "a/d")
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write("y")
            inside = Path(file.name).is_relative_to(place.scratch)
        shutil.copyfile("a/d", "e")
        os.truncate("e", 5)
        shutil.rmtree("a")
        return f"{Path('e').read_text()} {inside} {os.getcwd() == str(place.scratch)}"

    done = attempt(work, place)
    assert done.value == "'xxxxx True True'", done


# Limits.


def test_processor_time_ends(place: Place) -> None:
    def spin() -> None:
        while True:
            pass

    limits = sandbox.Limits(cpu_seconds=1, memory_mb=64, file_mb=1)
    done = attempt(spin, place, jail=place.jail(limits=limits))
    assert os.WTERMSIG(done.status) == signal.SIGXCPU


def test_processor_time_ends_even_if_the_warning_is_ignored(place: Place) -> None:
    def spin() -> None:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        while True:
            pass

    limits = sandbox.Limits(cpu_seconds=1, memory_mb=64, file_mb=1)
    assert os.WTERMSIG(attempt(spin, place, jail=place.jail(limits=limits)).status) == signal.SIGKILL


@pytest.mark.parametrize(
    "hoard",
    [
        lambda: [bytearray(1 << 24) for _ in range(1000)],
        lambda: [mmap.mmap(-1, 1 << 26) for _ in range(1000)],
        lambda: [LIBC.malloc(ctypes.c_size_t(1 << 26)) or int("no memory") for _ in range(1000)],
    ],
    ids=["python", "mmap", "malloc"],
)
def test_memory_ends(place: Place, hoard: Callable[[], object]) -> None:
    done = attempt(hoard, place)
    assert done.error in ("MemoryError", "OSError", "ValueError") and done.status == 0, done


@needs_seccomp
@pytest.mark.parametrize(
    "action",
    [lambda: os.close(os.memfd_create("x")), lambda: call(29, 0, 4096, 0o600)],
    ids=["memfd", "system-v"],
)
def test_no_memory_beside_the_limit(place: Place, action: Callable[[], object]) -> None:
    if not X86:
        pytest.skip("numbers are those of x86-64")
    free = attempt(action, place, level=None)
    assert free.worked
    if free.value not in ("None", ""):
        call(31, int(free.value), 0, None)  # shmctl(IPC_RMID): a free process leaves its segment behind
    assert attempt(action, place).refused


def test_file_size_ends(place: Place) -> None:
    done = attempt(lambda: Path("big").write_bytes(b"x" * (3 << 20)), place)
    assert done.error == "OSError" and (place.scratch / "big").stat().st_size == 1 << 20


def test_open_files_end(place: Place) -> None:
    done = attempt(lambda: [open("/dev/null") for _ in range(300)], place)
    assert done.error == "OSError" and "Too many open files" in done.text


def test_forks_end_without_seccomp(place: Place) -> None:
    if place.uid is None and os.getuid() == 0:
        pytest.skip("the kernel sets root no such limit")

    def bomb() -> int:
        for count in range(200):
            try:
                pid = os.fork()
            except OSError:
                os.killpg(0, signal.SIGCONT)
                return count
            if pid == 0:
                time.sleep(3)
                os._exit(0)
        return 200

    limits = sandbox.Limits(cpu_seconds=5, memory_mb=64, file_mb=1, processes=20)
    done = attempt(bomb, place, level="none", jail=place.jail(limits=limits))
    assert done.worked and 1 <= int(done.value) <= 20


@pytest.mark.skipif(not seccomp.available(), reason="no seccomp here")
@pytest.mark.parametrize(
    "action",
    [
        lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
        lambda: os.sched_setaffinity(0, {next(iter(os.sched_getaffinity(0)))}),
        lambda: os.nice(1),
        lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)),
    ],
    ids=["scheduler", "affinity", "nice", "limit"],
)
def test_no_change_of_priority_or_limits(place: Place, action: Callable[[], object]) -> None:
    free = attempt(action, place, level=None)
    confined = attempt(action, place)
    assert free.worked and confined.error in ("PermissionError", "ValueError"), confined


def test_folder_that_grows_is_seen(tmp_path: Path) -> None:
    assert not sandbox.oversized(tmp_path, 1)
    (tmp_path / "deep").mkdir()
    for number in range(3):
        (tmp_path / "deep" / str(number)).write_bytes(os.urandom(500_000))
    assert sandbox.oversized(tmp_path, 1) and not sandbox.oversized(tmp_path, 10)
    assert sandbox.oversized(tmp_path, 10, files=3)
    assert not sandbox.oversized(tmp_path / "missing", 1)


# State that the process inherits from its parent.


OWN_FOLDERS = ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def test_environment_is_scrubbed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "secret")
    free = attempt(lambda: os.environ.get("API_TOKEN"), place, level=None)
    confined = attempt(lambda: sorted(os.environ), place)
    assert free.value == "'secret'"
    assert set(eval(confined.value)) <= {*sandbox.KEPT_ENVIRONMENT, *OWN_FOLDERS}


def open_descriptors() -> int:
    count = 0
    for fd in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
        with contextlib.suppress(OSError):
            os.fstat(fd)
            count += 1
    return count


def test_only_the_given_descriptors_are_open(place: Place) -> None:
    read, write = os.pipe()
    os.write(write, b"for the parent's eyes")
    secret = os.open(place.secret, os.O_RDONLY)
    try:
        assert attempt(lambda: os.read(secret, 3), place, level=None).value == "b'the'"
        for fd in (read, write, secret):
            assert attempt(lambda: os.fstat(fd), place).number == 9  # noqa: B023
        kept = attempt(lambda: (os.read(read, 3), open_descriptors()), place, keep=(read,))
        # Standard streams, the test's own pipe, the kept one, and the folder being listed.
        assert kept.value == "(b'for', 5)"
    finally:
        for fd in (read, write, secret):
            os.close(fd)


def test_standard_streams_lead_nowhere(place: Place) -> None:
    def streams() -> tuple[bytes, int, list[bool]]:
        null = os.stat("/dev/null").st_rdev
        return os.read(0, 1), os.write(1, b"forged"), [os.fstat(fd).st_rdev == null for fd in (0, 1, 2)]

    assert attempt(streams, place).value == "(b'', 6, [True, True, True])"


def test_no_privileges_are_left(place: Place) -> None:
    def status() -> dict[str, str]:
        lines = Path("/proc/self/status").read_text().splitlines()
        return {k: v.strip() for k, v in (line.split(":", 1) for line in lines)}

    facts = eval(attempt(status, place).value)
    assert facts["NoNewPrivs"] == "1"
    # To read, and nothing else; nothing at all for an ordinary user.
    assert int(facts["CapEff"], 16) in ((0,) if place.uid else (0, 1 << 2))
    assert int(facts["CapPrm"], 16) == int(facts["CapEff"], 16)


def test_it_has_a_session_of_its_own_and_leaves_no_core(place: Place) -> None:
    facts = attempt(lambda: (os.getsid(0) == os.getpid(), resource.getrlimit(resource.RLIMIT_CORE)), place)
    assert facts.value == "(True, (0, 0))"


@needs_seccomp
def test_it_dies_with_its_parent_and_cannot_change_that(place: Place) -> None:
    def undo() -> int:
        return int(LIBC.prctl(1, 0, 0, 0, 0))

    assert attempt(undo, place, level=None).value == "0" and attempt(undo, place).value == "-1"
    jail = place.jail()
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        child = os.fork()
        if child == 0:
            try:
                become(place.uid)
                sandbox.enter(jail, "auto", (write,))
                undo()
                os.write(write, b"%d" % os.getpid())
                time.sleep(60)
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        os._exit(0)
    os.close(write)
    child = int(os.read(read, 32))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    os.close(read)
    assert gone(child)


@needs_seccomp
@pytest.mark.skipif(not X86, reason="x32 is a matter of x86-64")
def test_calls_through_another_table_kill(place: Place) -> None:
    done = attempt(lambda: call(39 | 0x40000000), place)
    assert os.WTERMSIG(done.status) == signal.SIGSYS


# Calls that must still work.


def test_threads_work(place: Place) -> None:
    def work() -> list[int]:
        found: list[int] = []
        threads = [threading.Thread(target=found.append, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(found)

    assert attempt(work, place).value == str(list(range(8)))


def test_signals_to_itself_and_reading_limits_work(place: Place) -> None:
    def work() -> tuple[list[int], tuple[int, int]]:
        seen: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, _frame: seen.append(number))
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        return seen, resource.getrlimit(resource.RLIMIT_NOFILE)

    assert attempt(work, place).value == f"({[int(signal.SIGUSR1)] * 2}, (256, 256))"


def test_abort_ends_only_itself(place: Place) -> None:
    assert os.WTERMSIG(attempt(os.abort, place).status) == signal.SIGABRT


@pytest.mark.slow
def test_torch_is_imported_and_multiplies_inside(place: Place) -> None:
    own = Place(place.scratch, place.outside, None)
    limits = sandbox.Limits(cpu_seconds=120, memory_mb=4096, file_mb=64)

    def work() -> float:
        import numpy
        import torch

        a = numpy.ones((64, 64), dtype=numpy.float32)
        torch.save(torch.from_numpy(a) @ torch.from_numpy(a), "product.pt")
        return float(torch.load("product.pt").sum())

    if place.uid is not None:
        pytest.skip("the interpreter may lie in a folder that only its owner can enter")
    done = attempt(work, own, jail=place.jail(limits=limits))
    assert done.value == str(64.0**3), done


# The end of started processes.


def test_descendants_die_with_the_child(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            os.setsid()  # out of the group
            marker.write_text(str(os.getpid()))
        while True:
            time.sleep(60)
    while not (marker.exists() and marker.read_text()):
        time.sleep(0.01)
    sandbox.kill_group(pid)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert gone(int(marker.read_text()))


def test_daemons_come_to_their_reaper_and_die(tmp_path: Path) -> None:
    """Runs in a process of its own, because becoming a reaper cannot be undone."""
    program = f"""
import os, time
from pathlib import Path
from kernelwright.evaluation.processes import sandbox
sandbox.become_reaper()
known = os.fork()
if known == 0:
    time.sleep(60)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
        while os.fork() >= 0:
            time.sleep(0.2)
    os._exit(0)
while not Path({str(tmp_path / "pid")!r}).exists():
    time.sleep(0.05)
time.sleep(0.7)
killed = sandbox.kill_strays({{known}})
print(killed >= 2, sorted(sandbox._children()) == [known])
os.kill(known, 9)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == "True True", done.stderr
    assert gone(int((tmp_path / "pid").read_text()))


needs_bwrap = pytest.mark.skipif(
    not sandbox.probe()["bwrap"].startswith("yes"), reason=f"bubblewrap: {sandbox.probe()['bwrap']}"
)


@needs_bwrap
def test_bubblewrap_shows_only_what_the_jail_names(tmp_path: Path) -> None:
    scratch, secret = tmp_path / "scratch", tmp_path / "secret"
    scratch.mkdir()
    secret.write_text("x")
    limits = sandbox.Limits(cpu_seconds=0, memory_mb=0, file_mb=0)
    jail = sandbox.Jail(scratch, (Path("/usr"), Path("/lib"), Path("/lib64"), Path("/bin")), (scratch,), limits)
    shown = "ls /proc | grep -c '^[0-9]'; ls /sys/class/net 2>/dev/null; cat /proc/net/dev | grep -c :; ls / ; echo $$"
    argv = sandbox.wrap_command(["/bin/sh", "-c", f"{shown}; touch {scratch}/made /usr/made; ls {secret}"], jail)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    lines = done.stdout.split()
    assert int(lines[0]) <= 4 and lines[1] == "1"  # a handful of processes; only the loop-back interface
    assert "etc" not in lines and "home" not in lines
    assert (scratch / "made").exists() and not Path("/usr/made").exists()
    assert "made" in done.stderr and "secret" in done.stderr


def test_without_bubblewrap_the_command_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    limits = sandbox.Limits(cpu_seconds=0, memory_mb=0, file_mb=0)
    assert sandbox.wrap_command(["/bin/true"], sandbox.Jail(tmp_path, (), (), limits)) == ["/bin/true"]
    assert sandbox.probe()["bwrap"].startswith("no")
