"""Compiles the host half of an extension: g++ with a precompiled stand-in for torch's and CUDA's headers.

Two things are built once per machine and cached under a hash of the headers: the host library (`kwhost.so`, which a
candidate's code calls) and one precompiled header per set of compiler flags. A candidate then takes about 0.2 s. g++
runs with a scrubbed environment, limits on time and memory, and no include path but its own.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache as memoize
from pathlib import Path

from kernelwright.backends import warm_compiler
from kernelwright.backends.compiler_limits import limit_compiler
from kernelwright.backends.warm_compiler import CompilerLost, WarmCompiler
from kernelwright.errors import HarnessError

HERE = Path(__file__).parent
STAND_IN = HERE / "host_include"
DEVICE_INCLUDE = HERE.parent / "machine" / "include"
TENSOR_MAP = HERE.parent / "machine" / "csrc" / "copies" / "tensor_map.h"
SHARED = tuple(DEVICE_INCLUDE / f"kernelwright_{name}.h" for name in ("accessor", "complex", "float8", "philox"))
"""The headers shared by host and device; the rest of their folder must not be on the host's include path."""
LIBRARY_UNITS = (
    ("tensor", "operators"),
    ("scalars", "runtime", "launch_ex", "cublas", "gpu", "graphs"),
    ("module", "guard"),
)
"""Sources compiled as one unit each: parsing the headers takes most of the time."""
BASE_FLAGS = ("-fPIC", "-w", "-fdiagnostics-color=never", "-fmax-errors=10")
DEFAULT_FLAGS = ("-std=gnu++20", "-O0")
"""Flags for host code around kernels. It runs for microseconds, so compile time matters more than run time."""
TIMEOUT = 30.0


@dataclass(frozen=True)
class CompilerRun:
    """The result of one g++ run. `status` is the exit status, or -1 when the run was stopped."""

    status: int
    log: str

    @property
    def ok(self) -> bool:
        return self.status == 0


@memoize
def compiler() -> str:
    """Returns the path of g++. Raises `HarnessError` if it is missing."""
    path = shutil.which("g++", path="/usr/local/bin:/usr/bin:/bin") or shutil.which("g++")
    if path is None:
        raise HarnessError("g++ is not installed", "install g++ (Debian: apt install g++) to judge C++ host code")
    return path


@memoize
def _linker() -> tuple[str, ...]:
    gold = shutil.which("ld.gold", path="/usr/local/bin:/usr/bin:/bin")
    return ("-fuse-ld=gold",) if gold else ()


@memoize
def toolchain_key() -> str:
    """Returns a hash of the stand-in's sources and the compiler's version; it keys all cached builds."""
    digest = hashlib.sha256()
    version = subprocess.run([compiler(), "-v"], capture_output=True, text=True, check=False)
    digest.update(version.stderr.encode())
    for path in sorted(p for p in STAND_IN.rglob("*") if p.is_file()) + [*SHARED, TENSOR_MAP]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def run_compiler(arguments: Sequence[str], folder: Path, timeout: float = TIMEOUT) -> CompilerRun:
    """Runs g++ with `arguments` in `folder`, with a fixed environment and limits."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": str(folder), "HOME": str(folder)}
    process = subprocess.Popen(
        [compiler(), *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=limit_compiler,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return CompilerRun(-1, f"error: the compiler ran longer than {timeout:.0f} s and was stopped")
    return CompilerRun(process.returncode, output.decode(errors="replace"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file, across processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def host_library(cache: Path) -> Path:
    """Returns `kwhost.so`, built on first use. Raises `HarnessError` when our own code does not compile."""
    folder = cache / "host" / toolchain_key()
    library = folder / "kwhost.so"
    if library.exists():
        return library
    with locked(cache / "host" / f"{toolchain_key()}.lock"):
        if library.exists():
            return library
        folder.mkdir(parents=True, exist_ok=True)
        sources = []
        for number, names in enumerate(LIBRARY_UNITS):
            unit = folder / f"unit{number}.{os.getpid()}.cpp"
            unit.write_text("".join(f'#include "{STAND_IN / "kw" / "kwhost" / name}.cpp"\n' for name in names))
            sources.append(str(unit))
        target = folder / f"kwhost.{os.getpid()}.tmp"
        flags = ["-std=gnu++20", "-O1", *BASE_FLAGS, "-shared", *_linker(), "-Wl,-soname,kwhost.so", "-ldl"]
        done = run_compiler(
            [*flags, *(word for path in SHARED for word in ("-include", str(path))), *sources, "-o", str(target)],
            folder,
            timeout=300,
        )
        for path in sources:
            Path(path).unlink(missing_ok=True)
        if not done.ok:
            raise HarnessError(f"the host library does not compile: {done.log[:500]}", "is g++ 11 or newer installed?")
        target.rename(library)
    return library


def precompiled_header(cache: Path, flags: tuple[str, ...]) -> Path:
    """Returns the header to `-include`, precompiled for exactly `flags` on first use."""
    # The inline special functions (Bessel etc.) instantiate templates at the end of every unit: 0.05 s each time.
    lean = "#include <bits/c++config.h>\n#undef _GLIBCXX_USE_STD_SPEC_FUNCS\n"
    text = lean + "".join(f'#include "{path}"\n' for path in (*SHARED, STAND_IN / "kw" / "all.h"))
    name = hashlib.sha256("\0".join((*flags, text)).encode()).hexdigest()[:12]
    folder = cache / "host" / toolchain_key() / f"pch-{name}"
    header = folder / "kw_all.h"
    if (folder / "kw_all.h.gch").exists():
        return header
    with locked(cache / "host" / f"{toolchain_key()}.lock"):
        if (folder / "kw_all.h.gch").exists():
            return header
        folder.mkdir(parents=True, exist_ok=True)
        header.write_text(text)
        target = folder / f"kw_all.{os.getpid()}.tmp"
        arguments = [*flags, *BASE_FLAGS, "-x", "c++-header", str(header), "-o", str(target)]
        done = run_compiler(arguments, folder, timeout=300)
        if not done.ok:
            raise HarnessError(
                f"the stand-in header does not compile: {done.log[:500]}", "is g++ 11 or newer installed?"
            )
        target.rename(folder / "kw_all.h.gch")
    return header


def check_syntax(cache: Path, unit: str) -> CompilerRun:
    """Finds errors of one unit under the default flags before template instantiation, in 0.01 s.

    Returns ok without checking where no warm compiler is available.
    """
    warm = _warm(cache)
    if warm is None:
        return CompilerRun(0, "")
    try:
        status, log = warm.errors(unit, TIMEOUT)
    except CompilerLost:
        return CompilerRun(0, "")
    return CompilerRun(status, _own_names(log, warm.folder, precompiled_header(cache, DEFAULT_FLAGS)))


def compile_library(cache: Path, units: Sequence[str], target: Path, flags: tuple[str, ...] = ()) -> CompilerRun:
    """Compiles translation units (C++ text) to a shared object at `target`; the log uses the names of `#line`."""
    flags = flags or DEFAULT_FLAGS
    library = host_library(cache)
    header = precompiled_header(cache, flags)
    folder = Path(tempfile.mkdtemp(prefix="build-", dir=scratch(cache)))
    try:
        done = _compile_units(cache, units, folder, header, flags)
        if not done.ok:
            return CompilerRun(done.status, _own_names(done.log, folder, header))
        names = [f"unit{number}.s" for number in range(len(units))]
        openmp = [flag for flag in flags if flag == "-fopenmp"]
        link = ["-shared", *_linker(), "-Wl,-z,defs", "-Wl,-O0", *openmp, str(library), f"-Wl,-rpath,{library.parent}"]
        done = run_compiler([*names, *link, "-o", "out.so"], folder)
        if done.ok:
            target.parent.mkdir(parents=True, exist_ok=True)
            (folder / "out.so").replace(target)
        return CompilerRun(done.status, _own_names(done.log, folder, header))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compile_units(
    cache: Path, units: Sequence[str], folder: Path, header: Path, flags: tuple[str, ...]
) -> CompilerRun:
    """Compiles each unit to `unitN.s` in `folder`; stops at the first with errors."""
    for number, text in enumerate(units):
        warm = _warm(cache) if flags == DEFAULT_FLAGS else None
        try:
            if warm is None:
                raise CompilerLost("none is waiting for these flags")
            done = CompilerRun(*warm.compile(text, folder / f"unit{number}.s", TIMEOUT))
        except CompilerLost:
            name = f"unit{number}.cpp"
            (folder / name).write_text(text, errors="replace")
            done = run_compiler([*flags, *BASE_FLAGS, "-S", "-include", str(header), name], folder)
        if not done.ok:
            return done
    return CompilerRun(0, "")


_waiting: list[WarmCompiler | None] = []


def _warm(cache: Path) -> WarmCompiler | None:
    """Returns this process's warm compiler for the default flags; starts it on first use and after a loss."""
    if _waiting and (_waiting[0] is None or _waiting[0].alive):
        return _waiting[0]
    _waiting.clear()
    header = precompiled_header(cache, DEFAULT_FLAGS)
    folder = Path(tempfile.mkdtemp(prefix="warm-"))  # inside a builder's scratch folder, which is removed with it
    command = [compiler(), *DEFAULT_FLAGS, *BASE_FLAGS]
    preload = _preload(cache)
    warm = warm_compiler.start(command, header, folder, preload) if preload else None
    _waiting.append(warm)
    if warm is not None:
        atexit.register(_end_waiting)
    return warm


def _end_waiting() -> None:
    for warm in _waiting:
        if warm is not None:
            warm.close()
            shutil.rmtree(warm.folder, ignore_errors=True)
    _waiting.clear()


def _preload(cache: Path) -> Path | None:
    """Returns the preload library of the warm compiler, built on first use; None if it does not compile."""
    key = hashlib.sha256(warm_compiler.SOURCE.read_bytes()).hexdigest()[:12]
    target = cache / "host" / f"warm-{key}.so"
    if target.exists():
        return target
    with locked(cache / "host" / "warm.lock"):
        if not target.exists():
            draft = target.with_suffix(".tmp")
            arguments = ["-x", "c", "-O1", "-fPIC", "-shared", str(warm_compiler.SOURCE), "-o", str(draft), "-ldl"]
            if not run_compiler(arguments, target.parent).ok:
                return None
            draft.rename(target)
    return target


def scratch(cache: Path) -> Path:
    """Returns a folder for temporary files on the cache's file system."""
    folder = cache / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _own_names(log: str, folder: Path, header: Path) -> str:
    """Removes this machine's folders from a log."""
    text = log.replace(f"{folder}/", "").replace(f"{STAND_IN}/", "/kw-include/").replace(f"{header.parent}/", "")
    return re.sub(r"/tmp/\S*?/", "", text)
