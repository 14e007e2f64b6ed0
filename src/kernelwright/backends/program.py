"""Builds whole programs: a `.cu` file with `main` becomes an executable whose kernels run on the functional machine.

g++ compiles the host half with NVIDIA's own runtime headers and links it with our runtime (`program_host/`); NVRTC
compiles the device half. The instances of kernel templates are read from the compiled host half, so that all device
code is one module and shares its variables. A table next to the executable maps the host's addresses of kernels and
variables, and holds the PTX.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache as memoize
from pathlib import Path

from kernelwright.backends import host_build
from kernelwright.backends.host_build import CompilerRun, compiler, run_compiler
from kernelwright.backends.source_text import diagnose, includes, lambdas
from kernelwright.backends.source_text.launches import RefusedSource
from kernelwright.backends.source_text.split import THRUST, Split, UnsupportedSource, split
from kernelwright.backends.source_text.tokens import tokenize
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.errors import HarnessError
from kernelwright.machine import nvrtc

HOST = Path(__file__).parent / "program_host"
STANDARD = "-std=gnu++17"
HOST_FLAGS = ("-O1", "-fPIE", "-fno-gnu-unique", "-w", "-fdiagnostics-color=never", "-fmax-errors=10")
LIBRARY_FLAGS = ("-std=gnu++20", "-O2", "-fPIC", "-fvisibility=default", "-shared", "-w")
TABLE = ".device"
"""The suffix of the table's file name after the executable's."""
LIBRARY_TIMEOUT = 300.0
HOST_TIMEOUT = 120.0


@memoize
def key() -> str:
    """Returns a hash of our runtime, its headers and the compiler's version."""
    digest = hashlib.sha256()
    version = subprocess.run([compiler(), "-v"], capture_output=True, text=True, check=False)
    digest.update(version.stderr.encode())
    for path in sorted(p for p in HOST.rglob("*") if p.is_file()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update("\0".join(_include_flags()).encode())
    return digest.hexdigest()[:20]


def _include_flags() -> list[str]:
    """Returns the include flags: our library stand-ins, then NVIDIA's headers, without the device-only stand-ins."""
    folders = [str(HOST / "include")] + [f for f in nvrtc.include_folders() if Path(f) != nvrtc.INCLUDE]
    return [flag for folder in folders for flag in ("-isystem", folder)]


def runtime_library(cache: Path) -> Path:
    """Returns our runtime as a shared library, built on first use. Raises `HarnessError` when it does not compile."""
    folder = cache / "programs" / key()
    library = folder / "libkwcudart.so"
    if library.exists():
        return library
    with host_build.locked(cache / "programs" / f"{key()}.lock"):
        if library.exists():
            return library
        folder.mkdir(parents=True, exist_ok=True)
        sources = [str(path) for path in sorted(HOST.glob("*.cpp"))]
        draft = folder / "draft.so"
        arguments = [*LIBRARY_FLAGS, *_include_flags(), *sources, "-o", str(draft), "-ldl", "-lpthread"]
        done = run_compiler(arguments, folder, LIBRARY_TIMEOUT)
        if not done.ok:
            raise HarnessError(
                f"the program runtime does not compile: {done.log[:500]}", "is g++ 11 or newer installed?"
            )
        draft.rename(library)
    return library


def build(request: BuildRequest, cache: Path, target: Path) -> BuildResult:
    """Builds the executable at `target` and its table. Never raises for bad source."""
    started = time.perf_counter()
    try:
        includes.check(request.cuda_source, "cuda.cu")
        parts = split(request.cuda_source, whole=True)
    except (includes.RefusedInclude, RefusedSource) as refused:
        return BuildResult("compile_error", log=str(refused))
    except UnsupportedSource as problem:
        return BuildResult("unsupported", log=f"cuda.cu: {problem}", missing=(f"source: {problem.what}",))
    except RecursionError:
        return BuildResult("compile_error", log="error: the source is nested too deeply")
    seconds = {"split": time.perf_counter() - started}
    folder = Path(tempfile.mkdtemp(prefix="program-", dir=host_build.scratch(cache)))
    try:
        return _build(request, parts, cache, folder, target, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(
    request: BuildRequest, parts: Split, cache: Path, folder: Path, target: Path, seconds: dict[str, float]
) -> BuildResult:
    started = time.perf_counter()
    host = _compile_host(request, parts, cache, folder)
    seconds["host"] = time.perf_counter() - started
    if not host.ok:
        return _blame(request, parts, host, seconds)
    started = time.perf_counter()
    linked = _link(request, cache, folder)
    seconds["host"] += time.perf_counter() - started
    if not linked.ok:
        missing = diagnose.link_missing(linked.log)
        return BuildResult("unsupported" if missing else "compile_error", linked.log, missing, seconds=seconds)
    started = time.perf_counter()
    try:
        rows = [row for row in _symbols(folder / "program") if row[1].endswith("E5kw_id")]
        kernels = [_kernel_symbol(request.cuda_source, *row) for row in rows]
    except UnsupportedSource as problem:
        return BuildResult("unsupported", f"cuda.cu: {problem}", (f"source: {problem.what}",), seconds=seconds)
    expressions = tuple(dict.fromkeys(k.expression for k in kernels if k.expression))
    device = _compile_device(request, parts, expressions)
    seconds["nvrtc"] = time.perf_counter() - started
    if device.status != "ok":
        return BuildResult(device.status, device.log, device.missing, seconds=seconds)
    table = _table(kernels, _symbols(folder / "program"), device)
    _place(folder / "program", table, target)
    return BuildResult(
        "ok", device.log, library=str(target), ptx=device.ptx, device_source=parts.device, seconds=seconds
    )


def _place(made: Path, table: str, target: Path) -> None:
    """Moves a program and its table to `target`, unless another process already has: a sandboxed child that may run
    only that very file may be starting."""
    with host_build.locked(target.parent / "programs.lock"):
        if not target.exists():
            Path(str(target) + TABLE).write_text(table)
            made.rename(target)


def _host_unit(parts: Split) -> str:
    header = f'#include "{nvrtc.INCLUDE / lambdas.HEADER}"\n' if parts.device_lambdas else ""
    return f'#include "{HOST / "prelude.h"}"\n{header}#line 1 "cuda.cu"\n{parts.host}'


def _compile_host(request: BuildRequest, parts: Split, cache: Path, folder: Path) -> CompilerRun:
    (folder / "unit.cpp").write_text(_host_unit(parts), errors="replace")
    standard = next((f for f in request.cuda_flags if re.fullmatch(r"-std=(?:gnu|c)\+\+(?:14|17|20|23)", f)), STANDARD)
    thrust = ["-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP"] if THRUST.search(request.cuda_source) else []
    flags = [standard, *HOST_FLAGS, *thrust, *_defines(request), *_include_flags(), *_openmp(request)]
    done = run_compiler([*flags, "-c", "unit.cpp", "-o", "unit.o"], folder, HOST_TIMEOUT)
    return CompilerRun(done.status, _own_names(done.log, folder))


def _defines(request: BuildRequest) -> list[str]:
    return [flag for flag in request.cuda_flags if re.fullmatch(r"-[DU]\w+(?:=[\w.+-]*)?", flag)]


def _openmp(request: BuildRequest) -> list[str]:
    wanted = re.search(r"#\s*include\s*<omp\.h>|#\s*pragma\s+omp\b", request.cuda_source)
    return ["-fopenmp"] if wanted else []


def _link(request: BuildRequest, cache: Path, folder: Path) -> CompilerRun:
    library = runtime_library(cache)
    where = [str(library), f"-Wl,-rpath,{library.parent}", "-lm", "-lpthread"]
    done = run_compiler(["-pie", "unit.o", *where, *_openmp(request), "-o", "program"], folder, HOST_TIMEOUT)
    return CompilerRun(done.status, _own_names(done.log, folder))


def _own_names(log: str, folder: Path) -> str:
    """Removes this machine's folders from a log."""
    text = log.replace(f"{folder}/", "").replace(f"{HOST}/", "/kw/")
    for place in nvrtc.include_folders():
        text = text.replace(f"{place}/", "/cuda/")
    return re.sub(r"/tmp/\S*?/", "", text)


def _blame(request: BuildRequest, parts: Split, host: CompilerRun, seconds: dict[str, float]) -> BuildResult:
    """Reports a host compilation failure; errors of the device compiler take precedence."""
    device = _compile_device(request, parts, ())
    if device.status != "ok":
        return BuildResult(device.status, device.log, device.missing, seconds=seconds)
    missing = diagnose.host_missing(host.log) or _library_names(host.log)
    return BuildResult("unsupported" if missing else "compile_error", host.log, missing, seconds=seconds)


def _library_names(log: str) -> tuple[str, ...]:
    """Returns CUB or Thrust algorithms named in the first error: our stand-ins lack some overloads."""
    first = next((line for line in log.splitlines() if "error:" in line), "")
    return tuple(dict.fromkeys(re.findall(r"\b(?:cub|thrust)::\w+(?:::\w+)?", first)))[:4]


def _compile_device(request: BuildRequest, parts: Split, expressions: tuple[str, ...]) -> BuildResult:
    device = parts.device_for(" ".join(expressions))
    if not re.search(r"\b(?:__global__|__device__|__constant__|__managed__)\b", device):
        return BuildResult("ok", ptx="")
    if (copy := _copy_in_kernel(device)) is not None:
        return BuildResult("unsupported", f"cuda.cu: {copy}", (f"source: {copy}",))
    # Kernels can launch kernels only in relocatable code, as with nvcc.
    launches = any(token.text == "<<<" for token in tokenize(device))
    flags = (*request.cuda_flags, *([nvrtc.RELOCATABLE] if launches else []))
    done = nvrtc.compile_ptx(device, flags=flags, expressions=expressions)
    if not done.ok and re.match(r"__nv_name_map\(", done.log.lstrip()):
        if (local := _local_type(expressions)) is None:
            return BuildResult("unsupported", done.log, ("source: an instance of a kernel that has no name",))
        log = f"cuda.cu: error: {local} is local to a function: no kernel can be instantiated for it"
        return BuildResult("compile_error", log)
    if not done.ok:
        missing = _unnamed(parts, done.log) or diagnose.device_missing(done.log)
        return BuildResult("unsupported" if missing else "compile_error", done.log, missing)
    return BuildResult("ok", log=done.log, ptx=done.ptx, lowered=done.lowered)


def _unnamed(parts: Split, log: str) -> tuple[str, ...]:
    """Returns the name in host code that a device lambda cannot use, if that is the error."""
    name = lambdas.unknown_name(parts.device_lambdas, log, parts.host, parts.host_functions)
    return (f"source: {name}",) if name else ()


def _local_type(expressions: tuple[str, ...]) -> str | None:
    """Returns a function-local type among the template arguments of kernel instances."""
    found = (re.search(r"\bmain::\w+|\b[\w:]+\([^()]*\)::\w+", expression) for expression in expressions)
    return next((match.group() for match in found if match), None)


_COPIES = re.compile(r"cuda(?:Memcpy|Memset)\w*Async")


def _copy_in_kernel(device: str) -> str | None:
    """Returns a description of a copy or fill issued by a kernel, which the machine does not support; else None."""
    for token in tokenize(device):
        if token.kind == "word" and _COPIES.fullmatch(token.text):
            return f"{token.text} in a kernel (line {device.count(chr(10), 0, token.start) + 1})"
    return None


# --- what the host's addresses mean ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _HostKernel:
    """One kernel or template instance: the offset of its identity variable, and its entry or name expression."""

    offset: int
    entry: str
    expression: str = ""


_Symbol = tuple[int, str, str, int]


def _symbols(program: Path) -> list[_Symbol]:
    """Returns offset, mangled name, demangled name and size of each data symbol of an executable."""
    rows = []
    for flags in ("-pS", "-pSC"):
        command = ["nm", flags, "--defined-only", str(program)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
        if done.returncode:
            raise HarnessError(f"nm failed: {done.stderr[:200]}", "install binutils, which g++ needs as well")
        rows.append([re.match(r"(\w+) (\w+) [bBdDrRuVvgG] (.+)$", line) for line in done.stdout.splitlines()])
    found = []
    for plain, written in zip(*rows, strict=True):
        if plain and written:
            found.append((int(plain.group(1), 16), plain.group(3), written.group(3), int(plain.group(2), 16)))
    return found


_ANONYMOUS = "(anonymous namespace)::"


def _kernel_symbol(source: str, offset: int, mangled: str, written: str, _size: int) -> _HostKernel:
    """Returns the kernel to which a symbol `kernel(...)::kw_id` belongs. Raises `UnsupportedSource`."""
    encoding = mangled.removeprefix("_ZZ").removesuffix("E5kw_id")
    name = written.removesuffix("::kw_id")
    opening = _parameter_list(name.replace(_ANONYMOUS, " " * len(_ANONYMOUS)))
    if opening is None:
        return _HostKernel(offset, name)  # extern "C"
    if "{lambda" in name or "{unnamed" in name:
        kernel = re.split(r"[<(]", name.removeprefix("void "))[0].split("::")[-1]
        launch = re.search(rf"\b{kernel}\b\s*(?:<[^;{{}}]*?>\s*)?<<<", source)
        line = source.count("\n", 0, launch.start()) + 1 if launch else 0
        raise UnsupportedSource("a kernel instance for a lambda or an unnamed type of host code", line)
    head = name[:opening]
    if head.endswith(">") or _ANONYMOUS in head:
        return _HostKernel(offset, "", head.removeprefix("void ").replace(_ANONYMOUS, ""))
    return _HostKernel(offset, "_Z" + encoding)


def _parameter_list(name: str) -> int | None:
    """Returns the index of the `(` that opens the parameters: the first outside `<...>`."""
    depth = 0
    for k, c in enumerate(name):
        if c == "<":
            depth += 1
        elif c == ">" and name[k - 1] != "-":
            depth -= 1
        elif c == "(" and depth == 0:
            return k
    return None


def _table(kernels: list[_HostKernel], symbols: list[_Symbol], device: BuildResult) -> str:
    lines = []
    for kernel in kernels:
        entry = device.lowered.get(kernel.expression, "") if kernel.expression else kernel.entry
        lines.append(f"kernel\t{kernel.offset:x}\t{entry}")
    managed = {name.removeprefix("kw_managed_") for _, name, _, _ in symbols if name.startswith("kw_managed_")}
    known = set(_VARIABLE.findall(device.ptx or ""))
    for offset, name, written, size in symbols:
        if name in known:
            kind = "managed" if written.split("::")[-1] in managed else "variable"
            lines.append(f"{kind}\t{offset:x}\t{size}\t{name}")
    return "\n".join([*lines, "ptx", device.ptx or ""])


_VARIABLE = re.compile(
    r"^(?:\.visible |\.weak |\.extern )?\.(?:global|const)\b[^;={]*?([\w$]+)(?:\[\d*\])*\s*(?:=|;)", re.M
)
