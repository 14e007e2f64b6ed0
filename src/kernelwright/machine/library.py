"""Builds and loads the machine's C++ core.

Compiles the sources in `csrc/` with plain g++ into the cache folder on first use. The library's file name holds a
digest of sources, flags and compiler, so that a change to any of them builds a new one. Knows nothing about PTX.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from kernelwright.errors import MachineError
from kernelwright.machine.device_memory import ShadowEntry
from kernelwright.machine.texture import TextureEntry

SOURCES = Path(__file__).resolve().parent / "csrc"
INCLUDE = ("-I", str(SOURCES))
"""The sources' include path; kept out of the digest, so that checkouts with equal sources share a build."""
_LANGUAGE = ("-std=c++20", "-fno-strict-aliasing", "-fwrapv", "-fvisibility=hidden", "-fPIC", "-w")
_FLAGS = (*_LANGUAGE, "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
_V3 = ("avx2", "fma", "f16c", "bmi1", "bmi2", "movbe")
_EXTRA = {"rounding_ops.cpp": ("-frounding-math", "-ftrapping-math")}
_TIMEOUT = 600.0


class AllocationEntry(ctypes.Structure):
    """One range of memory that a launch may touch; mirrors `KwAllocation` of capi.cpp."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("shadow", ctypes.POINTER(ShadowEntry)),
    ]


class DeviceRequest(ctypes.Structure):
    """Texture objects and the print limit of a launch; mirrors `KwDevice` of memory/texture.h."""

    _fields_ = [
        ("textures", ctypes.POINTER(TextureEntry)),
        ("texture_count", ctypes.c_uint64),
        ("print_limit", ctypes.c_uint64),
    ]


class LaunchRequest(ctypes.Structure):
    """One launch; mirrors `KwLaunch` of capi.cpp."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint64),
        ("budget", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("races", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("kernel", ctypes.c_uint32),
        ("allocations", ctypes.c_uint32),
        ("allocation", ctypes.POINTER(AllocationEntry)),
        ("names", ctypes.c_char_p),
        ("params", ctypes.c_char_p),
        ("param_bytes", ctypes.c_uint64),
        ("device", ctypes.POINTER(DeviceRequest)),
        ("cluster", ctypes.c_uint32 * 3),
        ("cooperative", ctypes.c_uint32),
        ("sample", ctypes.c_uint64),
        ("watch", ctypes.c_uint32),
        ("poison", ctypes.c_uint32),
    ]


def cache_folder() -> Path:
    """Returns the cache folder: `$KERNELWRIGHT_CACHE`, `$XDG_CACHE_HOME/kernelwright` or `~/.cache/kernelwright`."""
    if own := os.environ.get("KERNELWRIGHT_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kernelwright"


def _cpu_flags() -> tuple[str, ...]:
    """Returns flags for x86-64-v3 if the processor supports it, else none (the compiler's default)."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    words = set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())
    return ("-march=x86-64-v3",) if words.issuperset(_V3) else ()


def _compiler() -> str:
    """Returns the C++ compiler's path; raises `MachineError` when there is none."""
    name = os.environ.get("CXX") or "g++"
    found = shutil.which(name)
    if not found:
        raise MachineError(
            f"the C++ compiler {name!r} was not found, which the CUDA machine is built with",
            hint="install g++ (apt-get install g++), or name a compiler in $CXX",
        )
    return found


@cache
def _version(compiler: str) -> bytes:
    """Returns the output of the compiler's `--version`."""
    return subprocess.run([compiler, "--version"], capture_output=True, timeout=30.0).stdout


def _inputs() -> tuple[list[Path], str]:
    """Returns the source files and a digest of everything the build depends on."""
    files = sorted(SOURCES.rglob("*.cpp"))
    compiler = _compiler()
    digest = hashlib.sha256(_version(compiler) + repr((_FLAGS, _EXTRA, _cpu_flags())).encode())
    for path in sorted([*files, *SOURCES.rglob("*.h")]):
        digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes())
    return files, digest.hexdigest()[:16]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds an exclusive file lock, so that one process builds at a time."""
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(command: list[str]) -> None:
    """Runs the compiler; raises `MachineError` with the first lines of its errors."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"the C++ compiler cannot be run: {error}", hint="check $CXX and free memory") from None
    if done.returncode:
        lines = "\n".join(done.stderr.strip().splitlines()[:15])
        hint = "g++ 11 or newer with C++20 is needed; set $CXX to name another compiler"
        raise MachineError(f"the CUDA machine's core does not compile:\n{lines}", hint=hint)


def _compile(files: list[Path], target: Path) -> None:
    """Compiles the files in parallel, one job per processor, and links them to `target`."""
    compiler, flags = _compiler(), [*_FLAGS, *_cpu_flags()]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        objects = [Path(folder) / (path.stem + ".o") for path in files]

        def one(pair: tuple[Path, Path]) -> None:
            source, out = pair
            _run([compiler, *flags, *_EXTRA.get(source.name, ()), *INCLUDE, "-c", str(source), "-o", str(out)])

        with ThreadPoolExecutor(min(len(files), os.cpu_count() or 1)) as pool:
            list(pool.map(one, sorted(zip(files, objects, strict=True), key=lambda p: -p[0].stat().st_size)))
        built = Path(folder) / target.name
        _run([compiler, "-shared", *(str(o) for o in objects), "-o", str(built)])
        os.replace(built, target)


def path() -> Path:
    """Returns the library's path, whether or not it is built. Raises `MachineError` without a compiler."""
    return cache_folder() / f"machine-{_inputs()[1]}.so"


def build() -> Path:
    """Builds the library if needed (about half a minute on two processors) and returns its path.

    Raises `MachineError` when there is no compiler, when it fails, or when the cache folder is not writable.
    """
    target = path()
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.with_suffix(".lock")):
            if not target.exists():
                _compile(_inputs()[0], target)
    except OSError as error:
        hint = "set KERNELWRIGHT_CACHE to a folder that can be written"
        raise MachineError(f"cannot build the CUDA machine in {target.parent}: {error}", hint=hint) from None
    return target


@cache
def load() -> ctypes.CDLL:
    """Loads the library, building it if needed, and declares its functions' types. Raises `MachineError`."""
    built = build()
    try:
        library = ctypes.CDLL(str(built))
    except OSError as error:
        raise MachineError(f"cannot load {built}: {error}", hint="delete that file; it is built again") from None
    text, handle = ctypes.c_char_p, ctypes.c_void_p
    signatures: dict[str, tuple[object, list[object]]] = {
        "kw_load_at": (handle, [text, ctypes.c_uint64, ctypes.c_uint64]),
        "kw_status": (ctypes.c_int, [handle]),
        "kw_text": (text, [handle]),
        "kw_unload": (None, [handle]),
        "kw_launch": (handle, [handle, ctypes.POINTER(LaunchRequest)]),
        "kw_result_fault": (ctypes.c_int, [handle]),
        "kw_result_text": (text, [handle]),
        "kw_result_free": (None, [handle]),
        "kw_encode_tiled": (
            ctypes.c_int,
            [handle, ctypes.c_int, ctypes.c_uint32, handle, *[handle] * 4, *[ctypes.c_int] * 4],
        ),
        "kw_heap_limit": (None, [ctypes.c_uint64]),
        "kw_result_printed": (handle, [handle, ctypes.POINTER(ctypes.c_uint64)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
