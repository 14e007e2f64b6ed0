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

from kernelwright.backends import device_link, host_build, program_symbols
from kernelwright.backends.host_build import CompilerRun, compiler, run_compiler
from kernelwright.backends.program_symbols import DeviceModule, symbols
from kernelwright.backends.source_text import diagnose, includes, lambdas
from kernelwright.backends.source_text.launches import RefusedSource
from kernelwright.backends.source_text.split import THRUST, Split, UnsupportedSource, split
from kernelwright.backends.source_text.tokens import line_at, tokenize
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.errors import HarnessError
from kernelwright.machine import nvrtc

HOST = Path(__file__).parent / "program_host"
OWN_HEADERS = (HOST / "include", nvrtc.BOTH)
"""Folders of our own headers, among them the samples' helpers."""
STANDARD = "-std=gnu++17"
HOST_FLAGS = ("-O1", "-fPIE", "-fno-gnu-unique", "-w", "-fdiagnostics-color=never", "-fmax-errors=10")
LIBRARY_FLAGS = ("-std=gnu++20", "-O2", "-fPIC", "-fvisibility=default", "-shared", "-w")
MAIN = "cuda.cu"
"""The name under which a program's main file is compiled."""
RELOCATABLE = ("-rdc=true", "--rdc=true", "-dc", "--device-c", "--relocatable-device-code=true", "-rdc", "--rdc")
"""Flags with which nvcc links the device code of several files."""
_HEADER_GONE = re.compile(r"fatal error: [^:\n]+: No such file or directory")
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


@dataclass(frozen=True)
class _Unit:
    """One file of a program that is compiled for itself; `parts` is None for a file without CUDA."""

    name: str
    source: str
    parts: Split | None


def build(request: BuildRequest, cache: Path, target: Path) -> BuildResult:
    """Builds the executable at `target` and its table. Never raises for bad source."""
    started = time.perf_counter()
    units: list[_Unit] = []
    name = MAIN
    try:
        for name, source in _files(request):
            includes.check(source, name)
            cuda = name.endswith(".cu")
            parts = split(source, whole=True, relocatable=_relocatable(request)) if cuda else None
            units.append(_Unit(name, source, parts))
    except (includes.RefusedInclude, RefusedSource) as refused:
        return BuildResult("compile_error", log=str(refused))
    except UnsupportedSource as problem:
        return BuildResult("unsupported", log=f"{name}: {problem}", missing=(f"source: {problem.what}",))
    except RecursionError:
        return BuildResult("compile_error", log="error: the source is nested too deeply")
    seconds = {"split": time.perf_counter() - started}
    folder = Path(tempfile.mkdtemp(prefix="program-", dir=host_build.scratch(cache)))
    try:
        return _build(request, units, cache, folder, target, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _files(request: BuildRequest) -> list[tuple[str, str]]:
    """Returns names and texts of all files that are compiled for themselves."""
    more = list(zip(request.unit_names, request.unit_sources, strict=True))
    return [(MAIN, request.cuda_source), *more] if request.cuda_source.strip() or not more else more


def _relocatable(request: BuildRequest) -> bool:
    """Tells whether device code of one file may use that of others (`nvcc -rdc=true`)."""
    return any(flag in RELOCATABLE for flag in request.cuda_flags)


def _build(
    request: BuildRequest, units: list[_Unit], cache: Path, folder: Path, target: Path, seconds: dict[str, float]
) -> BuildResult:
    started = time.perf_counter()
    for number, unit in enumerate(units):
        host = _compile_host(request, unit, number, cache, folder)
        if not host.ok:
            return _blame(request, unit, host, {**seconds, "host": time.perf_counter() - started})
    objects = [folder / f"unit{number}.o" for number in range(len(units))]
    linked = _link(request, units, cache, folder)
    seconds["host"] = time.perf_counter() - started
    if not linked.ok:
        missing = diagnose.link_missing(linked.log)
        return BuildResult("unsupported" if missing else "compile_error", linked.log, missing, seconds=seconds)
    started = time.perf_counter()
    modules: list[DeviceModule] = []
    local: list[dict[str, str]] = []
    for unit, made in zip(units, objects, strict=True):
        try:
            found = symbols(made)
            kernels = [program_symbols.kernel(unit.source, s) for s in found if program_symbols.is_kernel(s)]
        except UnsupportedSource as problem:
            return BuildResult("unsupported", f"{unit.name}: {problem}", (f"source: {problem.what}",), seconds=seconds)
        expressions = tuple(dict.fromkeys(kernel.expression for kernel in kernels if kernel.expression))
        device = _compile_device(request, unit, expressions)
        if device.status != "ok":
            return BuildResult(device.status, device.log, device.missing, seconds=seconds)
        modules.append(DeviceModule(device.ptx or "", device.lowered))
        local.append(program_symbols.local_names(unit.source, found, modules[-1]))
    seconds["nvrtc"] = time.perf_counter() - started
    ptx = ""
    if _relocatable(request) and len(modules) > 1:
        try:
            ptx, modules = _linked(modules, local)
        except device_link.DoubleDefinition as name:
            return BuildResult("compile_error", f"error: two files define the device code of {name}", seconds=seconds)
    table = program_symbols.table(folder / "program", objects, [unit.source for unit in units], modules, ptx)
    _place(folder / "program", table, target)
    device_source = units[0].parts.device if units[0].parts else ""
    ptx = ptx or "".join(module.ptx for module in modules)
    return BuildResult("ok", "", library=str(target), ptx=ptx, device_source=device_source, seconds=seconds)


def _linked(modules: list[DeviceModule], local: list[dict[str, str]]) -> tuple[str, list[DeviceModule]]:
    """Returns the PTX of all files, and each file's module with the names that its own kernels have there."""
    ptx = device_link.linked([module.ptx for module in modules], [set(own.values()) for own in local])
    renamed = [
        {name: device_link.local_name(entry, number) for name, entry in own.items()} for number, own in enumerate(local)
    ]
    return ptx, [DeviceModule(m.ptx, {**m.entries, **own}) for m, own in zip(modules, renamed, strict=True)]


def _place(made: Path, table: str, target: Path) -> None:
    """Moves a program and its table to `target`, unless another process already has: a sandboxed child that may run
    only that very file may be starting."""
    with host_build.locked(target.parent / "programs.lock"):
        if not target.exists():
            Path(str(target) + TABLE).write_text(table)
            made.rename(target)


def _host_unit(unit: _Unit) -> str:
    if unit.parts is None:
        return f'#line 1 "{unit.name}"\n{unit.source}'
    header = f'#include "{nvrtc.INCLUDE / lambdas.HEADER}"\n' if unit.parts.device_lambdas else ""
    return f'#include "{HOST / "prelude.h"}"\n{header}#line 1 "{unit.name}"\n{unit.parts.host}'


def _compile_host(request: BuildRequest, unit: _Unit, number: int, cache: Path, folder: Path) -> CompilerRun:
    c = unit.name.endswith(".c")
    file = folder / f"unit{number}.{'c' if c else 'cpp'}"
    file.write_text(_host_unit(unit), errors="replace")
    wanted = (f for f in request.cuda_flags if re.fullmatch(r"-std=(?:gnu|c)\+\+(?:14|17|20|23)", f))
    standard = ["-x", "c", "-std=gnu17"] if c else [next(wanted, STANDARD)]
    thrust = ["-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP"] if THRUST.search(unit.source) else []
    flags = [*standard, *HOST_FLAGS, *thrust, *_defines(request), *_include_flags(), *_openmp(request)]
    done = run_compiler([*flags, "-c", file.name, "-o", f"unit{number}.o"], folder, HOST_TIMEOUT)
    return CompilerRun(done.status, _own_names(done.log, folder))


def _defines(request: BuildRequest) -> list[str]:
    return [flag for flag in request.cuda_flags if re.fullmatch(r"-[DU]\w+(?:=[\w.+-]*)?", flag)]


def _openmp(request: BuildRequest) -> list[str]:
    wanted = any(re.search(r"#\s*include\s*<omp\.h>|#\s*pragma\s+omp\b", source) for _, source in _files(request))
    return ["-fopenmp"] if wanted else []


def _link(request: BuildRequest, units: list[_Unit], cache: Path, folder: Path) -> CompilerRun:
    library = runtime_library(cache)
    where = [str(library), f"-Wl,-rpath,{library.parent}", "-lm", "-lpthread"]
    done = run_compiler(
        ["-pie", *(f"unit{k}.o" for k in range(len(units))), *where, *_openmp(request), "-o", "program"],
        folder,
        HOST_TIMEOUT,
    )
    return CompilerRun(done.status, _own_names(done.log, folder))


def _own_names(log: str, folder: Path) -> str:
    """Removes this machine's folders from a log."""
    text = log.replace(f"{folder}/", "").replace(f"{HOST}/", "/kw/")
    for place in nvrtc.include_folders():
        text = text.replace(f"{place}/", "/cuda/")
    return re.sub(r"/tmp/\S*?/", "", text)


def _blame(request: BuildRequest, unit: _Unit, host: CompilerRun, seconds: dict[str, float]) -> BuildResult:
    """Reports a host compilation failure; errors of the device compiler take precedence, but for a missing header."""
    device = _compile_device(request, unit, ())
    if device.status != "ok" and not _HEADER_GONE.search(host.log):
        return BuildResult(device.status, device.log, device.missing, seconds=seconds)
    missing = diagnose.host_missing(host.log) or _library_names(host.log)
    return BuildResult("unsupported" if missing else "compile_error", host.log, missing, seconds=seconds)


def _library_names(log: str) -> tuple[str, ...]:
    """Returns CUB or Thrust algorithms named in the first error: our stand-ins lack some overloads."""
    first = next((line for line in log.splitlines() if "error:" in line), "")
    return tuple(dict.fromkeys(re.findall(r"\b(?:cub|thrust)::\w+(?:::\w+)?", first)))[:4]


def _compile_device(request: BuildRequest, unit: _Unit, expressions: tuple[str, ...]) -> BuildResult:
    parts = unit.parts
    device = parts.device_for(" ".join(expressions)) if parts else ""
    if parts is None or not re.search(r"\b(?:__global__|__device__|__constant__|__managed__)\b", device):
        return BuildResult("ok", ptx="")
    if (copy := _copy_in_kernel(device)) is not None:
        return BuildResult("unsupported", f"{unit.name}: {copy}", (f"source: {copy}",))
    # Kernels can launch kernels only in relocatable code, as with nvcc.
    launches = any(token.text == "<<<" for token in tokenize(device))
    flags = (*request.cuda_flags, *([nvrtc.RELOCATABLE] if launches or _relocatable(request) else []))
    done = nvrtc.compile_ptx(device, flags=flags, expressions=expressions, name=unit.name)
    if not done.ok and re.match(r"__nv_name_map\(", done.log.lstrip()):
        if (local := _local_type(expressions)) is None:
            return BuildResult("unsupported", done.log, ("source: an instance of a kernel that has no name",))
        log = f"{unit.name}: error: {local} is local to a function: no kernel can be instantiated for it"
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
            return f"{token.text} in a kernel (line {line_at(device, token.start)})"
    return None
