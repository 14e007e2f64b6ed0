"""Builds source text into a `BuildResult`. Runs compilers, never the candidate.

Models `torch.utils.cpp_extension.load_inline` with nvcc and torch's headers: one C++ file with the C++ sources and the
bindings, and one CUDA file. NVRTC compiles device code first, because it finds errors in milliseconds; g++ compiles
host code with the stand-in headers. Results are cached by content, including failures.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from dataclasses import asdict, replace
from functools import cache as memoize
from pathlib import Path
from typing import Any

from kernelwright.backends import host_build, program, torch_build
from kernelwright.backends.source_text import conditionals, diagnose, includes, lambdas, tracing
from kernelwright.backends.source_text.launches import RefusedSource
from kernelwright.backends.source_text.split import Split, UnsupportedSource, split
from kernelwright.backends.source_text.tokens import tokenize
from kernelwright.backends.triton import ptxas
from kernelwright.builds import DYNAMIC_PARALLELISM, BuildRequest, BuildResult, needs_torch
from kernelwright.device import UnknownHeader, inlined
from kernelwright.machine import nvrtc

NAME_ERROR = "__nv_name_map"
"""Marks, in NVRTC's log, an error in a name expression rather than in the source."""

NVCC_DEFINES = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)
"""Flags that load_inline always passes to nvcc. They disable operators on __half in favour of named functions."""


def build(request: BuildRequest, cache: Path, by_torch: bool = True) -> BuildResult:
    """Builds `request`, or reads the result from `cache`. Raises only `HarnessError`, if our tools fail.

    Without `by_torch`, features that the stand-in lacks give `unsupported`, and that result is not cached, since
    torch's own build may follow (`build_by_torch`) under a time limit of its own.
    """
    try:
        request = _cleaned(request)
    except UnknownHeader as error:
        return _failed(str(error))
    path = _place(request, cache)
    known = _read(path)
    if known is not None:
        return replace(known, seconds={**known.seconds, "cached": 1.0})
    if request.kind == "ptxas":
        result = ptxas.assemble(request)
    elif request.kind == "extension":
        result = _extension(request, cache, path.with_suffix(".so"))
        if needs_torch(request, result):
            return build_by_torch(request, cache, result) if by_torch else result
    elif request.kind == "program":
        result = program.build(request, cache, path.with_suffix(".exe"))
    else:
        result = _device(request)
    return _kept(path, result)


def build_by_torch(request: BuildRequest, cache: Path, first: BuildResult) -> BuildResult:
    """Builds an extension with nvcc and torch's headers, which is slow. Without nvcc, returns `first`, our own build's
    result."""
    request = _cleaned(request)
    path = _place(request, cache)
    started = time.perf_counter()
    try:
        slow = torch_build.build(request, path.with_suffix(""))
    except torch_build.Unfinished as error:
        return BuildResult("compile_error", log=str(error))
    if slow is not None:
        first = replace(slow, seconds={**first.seconds, "nvcc": time.perf_counter() - started})
    return _kept(path, first)


def _place(request: BuildRequest, cache: Path) -> Path:
    return cache / "builds" / f"{_key(request)}.json"


def _kept(path: Path, result: BuildResult) -> BuildResult:
    result = replace(result, log=diagnose.truncate(result.log))
    _write(path, result)
    return result


def _cleaned(request: BuildRequest) -> BuildRequest:
    """Replaces lone surrogates and NUL, which compilers reject, joins `-D X` into one flag, and puts the headers of
    the tile library into the texts. Raises `UnknownHeader`."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode().replace("\0", " ")
        return tuple(clean(item) for item in value)

    fields = {name: clean(value) for name, value in asdict(request).items()}
    fields |= {name: _joined(fields[name]) for name in ("cpp_flags", "cuda_flags")}
    if request.kind != "ptxas":
        fields["cuda_source"] = inlined(fields["cuda_source"])
    if request.kind == "program":
        units = zip(fields["unit_names"], fields["unit_sources"], strict=True)
        fields["unit_sources"] = tuple(inlined(text, name) for name, text in units)
    return BuildRequest(**fields)


def _joined(flags: tuple[str, ...]) -> tuple[str, ...]:
    out: list[str] = []
    for flag in flags:
        if out and out[-1] in ("-D", "-U"):
            out[-1] += flag
        else:
            out.append(flag)
    return tuple(out)


def _key(request: BuildRequest) -> str:
    toolchain = program.key() if request.kind == "program" else host_build.toolchain_key()
    parts = [_builder_hash(), toolchain, json.dumps(asdict(request))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@memoize
def _builder_hash() -> str:
    """Returns a hash of the builder's code and the device headers, so that other versions' results are not used."""
    ours = [*Path(__file__).parent.rglob("*.py"), *includes.MORE.iterdir(), *host_build.DEVICE_INCLUDE.rglob("*")]
    ours.append(host_build.DEVICE_INCLUDE.parent / "nvrtc.py")
    return hashlib.sha256(b"\0".join(p.read_bytes() for p in sorted(ours) if p.is_file())).hexdigest()


def _read(path: Path) -> BuildResult | None:
    try:
        fields: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    library = fields.get("library")
    if library and not Path(library).exists():
        return None
    plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return BuildResult(**plain)


def _write(path: Path, result: BuildResult) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not the process id: two builders in separate PID namespaces may have the same one.
    temporary = path.with_suffix(f".{secrets.token_hex(8)}.tmp")
    temporary.write_text(json.dumps(asdict(result)))
    temporary.rename(path)


def _failed(log: str, missing: tuple[str, ...] = (), seconds: dict[str, float] | None = None) -> BuildResult:
    status = "unsupported" if missing else "compile_error"
    return BuildResult(status=status, log=log, missing=missing, seconds=seconds or {})  # type: ignore[arg-type]


# --- device code ---------------------------------------------------------------------------------------------------


def _device(request: BuildRequest) -> BuildResult:
    """Compiles device code only: the plain form, or more template instances of a device text."""
    try:
        includes.check(request.cuda_source, "cuda.cu")
    except includes.RefusedInclude as refused:
        return _failed(str(refused))
    flags = request.cuda_flags
    if request.kind == "instances":
        flags += tuple(re.findall(r"^// flag: (\S+)$", request.cuda_source, re.MULTILINE))
    return _nvrtc(request.cuda_source, flags, request.expressions, request.arch)


def _nvrtc(source: str, flags: tuple[str, ...], expressions: tuple[str, ...], arch: str) -> BuildResult:
    start = time.perf_counter()
    done = nvrtc.compile_ptx(source, arch=arch or nvrtc.ARCH, flags=device_flags(flags), expressions=expressions)
    seconds = {"nvrtc": time.perf_counter() - start}
    if not done.ok:
        log = _DELETED.sub(_HOST_FUNCTION, done.log)  # `members` deletes host functions
        return _failed(log, diagnose.device_missing(done.log), seconds)
    if (size := constant_bytes(done.ptx or "")) > MOST_CONSTANTS:
        most = f"(0x{size:x} bytes, 0x{MOST_CONSTANTS:x} max)"
        return _failed(f"ptxas error   : File uses too much global constant data {most}", (), seconds)
    cubin = base64.b64encode(done.cubin).decode() if done.cubin else None
    made = {"ptx": done.ptx, "cubin": cubin, "device_source": source, "lowered": done.lowered}
    return BuildResult("ok", log=done.log, seconds=seconds, **made)  # type: ignore[arg-type]


MOST_CONSTANTS = 65536
"""The bound on bytes of `__constant__` variables per file; ptxas enforces it, NVRTC does not."""
_CONSTANT = re.compile(r"^[ \t]*(?:\.\w+ )*\.const \.align \d+ \.[a-z]+(\d+) \w+(?:\[(\d+)\])?", re.MULTILINE)


def constant_bytes(ptx: str) -> int:
    """Returns the bytes of a module's constant variables."""
    return sum(int(bits) // 8 * int(count or 1) for bits, count in _CONSTANT.findall(ptx))


def device_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the author's nvcc flags that change the meaning of device code."""
    return tuple(flag for flag in nvrtc.device_flags(flags) if flag != nvrtc.RELOCATABLE)


# --- extensions ----------------------------------------------------------------------------------------------------


def _extension(request: BuildRequest, cache: Path, target: Path) -> BuildResult:
    start = time.perf_counter()
    try:
        request = _without_untaken(request)
        problem = _check_sources(request) or _lambda_without_flag(request)
        if problem:
            return _failed(problem)
        parts = split(request.cuda_source, macros=_macros(request)) if request.cuda_source.strip() else Split("", "")
    except (includes.RefusedInclude, RefusedSource) as refused:
        return _failed(str(refused))
    except UnsupportedSource as unsupported:
        return _failed(f"cuda.cu: {unsupported}", (f"source: {unsupported.what}",))
    except RecursionError:
        return _failed("error: the source is nested too deeply")
    seconds = {"split": time.perf_counter() - start}
    if request.arch and (used := re.search(r"\bcu(?:blas|dnn)\w+", request.cuda_source + request.cpp_source)):
        return _failed("cuBLAS and cuDNN are bridged on the functional machine only", (used.group(),), seconds)
    if request.arch and parts.device_lambdas:
        return _failed("lambdas that kernels are called with are nvcc's", ("source: a __device__ lambda",), seconds)
    units = _host_units(request, parts)
    early = _syntax(request, units, cache)
    seconds["host"] = time.perf_counter() - start - seconds["split"]
    if early.status == "compile_error":
        return replace(early, seconds=seconds)
    device = _as_nvcc(_device_part(request, parts), parts, request) if parts.kernels else BuildResult("ok")
    seconds |= device.seconds
    if device.status != "ok":
        return replace(device, seconds=seconds)
    start = time.perf_counter()
    host = early if early.status != "ok" else _host_part(request, units, cache, target)
    seconds["host"] += time.perf_counter() - start
    if host.status != "ok":
        return replace(host, seconds=seconds)
    return replace(
        host,
        ptx=device.ptx,
        cubin=device.cubin,
        device_source=device.device_source,
        lowered=device.lowered,
        log=device.log,
        seconds=seconds,
    )


def _without_untaken(request: BuildRequest) -> BuildRequest:
    """Removes the branches that no compiler would see, so that names in them do not count as the author's."""
    cuda = {"__CUDACC__": "1", "__NVCC__": "1", **_macros(request)}
    return replace(
        request,
        cuda_source=conditionals.without_untaken(request.cuda_source, cuda),
        cpp_source=conditionals.without_untaken(request.cpp_source, _macros(request, cuda=False)),
    )


def _as_nvcc(result: BuildResult, parts: Split, request: BuildRequest) -> BuildResult:
    """Corrects NVRTC's result where nvcc's differs. An error for a type that the splitter left out of device code is
    not the author's fault. Device code that reads a host array is an error, though NVRTC accepts it. Nothing here
    links relocatable code, which kernels that launch kernels need.
    """
    if result.status == "ok" and (log := _host_tables(result.ptx or "", parts)):
        return _failed(log, (), result.seconds)
    if result.status == "compile_error" and (cut := _cut(request.cuda_source, result.log)):
        return _failed(result.log, cut, result.seconds)
    if result.status == "compile_error" and _relocatable(request.cuda_flags) and _NESTED.search(result.log):
        return _failed(result.log, (DYNAMIC_PARALLELISM,), result.seconds)
    unknown = re.findall(r"identifier \"(\w+)\" is undefined", result.log) if result.status == "compile_error" else []
    missing = tuple(dict.fromkeys(f"{n} in device code" for n in unknown if n in parts.left_out))
    if result.status == "compile_error" and not missing:
        missing = _traced(request, result.log)
    return _failed(result.log, missing, result.seconds) if missing else result


_NESTED = re.compile(r'device-side kernel launch could not be processed|error: identifier "cuda[A-Z]\w*" is undefined')
"""NVRTC's errors where device code uses CUDA's runtime."""


def _relocatable(flags: tuple[str, ...]) -> bool:
    """Tells whether nvcc's flags ask for relocatable device code."""
    text = " ".join(flags)
    return re.search(r"(?:^| )--?(?:dc|device-c|(?:rdc|relocatable-device-code)[= ]true)(?: |$)", text) is not None


_DELETED = re.compile(
    r"(?:function|the default constructor of) \"(.*?)\"(?: \(declared at line \d+\))? cannot be referenced -- it is a"
    r" deleted function"
)
_HOST_FUNCTION = r'calling a __host__ function("\1") from device code is not allowed'


def _host_tables(ptx: str, parts: Split) -> str:
    """Returns nvcc's errors for host constant arrays that instructions read; folded elements do not count."""
    code = "\n".join(line for line in ptx.splitlines() if not re.match(r"\s*\.(?:visible|weak|global|const)\b", line))
    used = [(n, line) for n, line in parts.host_tables if re.search(rf"(?:\b|{len(n)}){re.escape(n)}E?\b", code)]
    return "\n".join(f'cuda.cu({line}): error: identifier "{n}" is undefined in device code' for n, line in used)


def _device_part(request: BuildRequest, parts: Split) -> BuildResult:
    """Compiles device code with the template instances that host code probably launches.

    nvcc instantiates every template that host code launches, so an error inside an instance is a build error. An error
    in naming the instance is only a wrong guess, and the text is compiled without it.
    """
    flags = NVCC_DEFINES + device_flags(request.cuda_flags)
    if not any("std=" in flag for flag in flags):
        flags += ("--std=c++20",)  # torch passes this to nvcc; a newer NVRTC's own default is C++17
    # A later request for instances carries only this text, so the flags are stored in it.
    source = parts.device + "".join(f"// flag: {flag}\n" for flag in flags)
    if parts.more_guesses:
        result = _nvrtc(source, flags, parts.guesses + parts.more_guesses, request.arch)
        if result.status == "ok" or (NAME_ERROR not in result.log and _SURE.search(result.log)):
            return result
    if parts.guesses:
        result = _nvrtc(source, flags, parts.guesses, request.arch)
        if result.status == "ok" or NAME_ERROR not in result.log:
            return result
    return _nvrtc(source, flags, (), request.arch)


_SURE = re.compile(
    r"no instance of (?:overloaded )?function \"(?:atomic\w+|__shfl\w+|__ldg|__reduce\w+)\"|static assertion failed"
    r"|identifier \"\w+\" is undefined|is incompatible with (?:previous )?\"|expected an? |incomplete type"
)
"""Errors in 16-bit or integer instances that nvcc gives too. Other errors may be due to our own half types, or to
integer overloads that nvcc takes from the host's <cmath>: then the instance is built only when a call launches it."""


def _lambda_without_flag(request: BuildRequest) -> str | None:
    allowed = any(flag.endswith("extended-lambda") for flag in request.cuda_flags)
    return None if allowed else lambdas.needs_flag(request.cuda_source)


def _check_sources(request: BuildRequest) -> str | None:
    """Returns an error of the real build that can be found without a compiler; None when there is none."""
    cpp = includes.check(request.cpp_source, "main.cpp")
    cuda = includes.check(request.cuda_source, "cuda.cu")
    words = {t.text for t in tokenize(request.cpp_source)}
    if request.functions or "TORCH_EXTENSION_NAME" in request.cpp_source + request.cuda_source:
        if not re.fullmatch(r"[A-Za-z_]\w*", request.name):
            return f"main.cpp: error: the extension's name {request.name!r} is no identifier, as PYBIND11_MODULE wants"
    for name in request.functions:
        if not re.fullmatch(r"[A-Za-z_][\w:]*", name):
            return f"main.cpp: error: {name!r} is not the name of a function"
        if name.split("::")[-1] not in words and name not in _C_LIBRARY:
            return (
                f"main.cpp: error: '{name}' was not declared in this scope\n"
                f"note: load_inline binds `functions` in a C++ file of its own: declare {name} in cpp_sources"
            )
    return (
        includes.missing_includes(request.cuda_source, "cuda.cu", cuda)
        or includes.missing_includes(request.cpp_source, "main.cpp", ("torch/extension.h", *cpp))
        or _module_problem(request)
    )


# Names that torch/extension.h brings into the global scope, so that binding them need not be an error.
_C_LIBRARY = {"exp", "log", "pow", "sqrt", "abs", "floor", "ceil", "round", "sin", "cos", "tan", "tanh", "erf", "div"}


def _module_problem(request: BuildRequest) -> str | None:
    """A module that Python could not import: defined twice, not at all, or under another name."""
    in_main = _modules(request.cpp_source)
    modules = in_main + _modules(request.cuda_source)
    if len(modules) + bool(request.functions) > 1:
        twice = len(in_main) + bool(request.functions) > 1
        first = f"main.cpp: error: redefinition of 'PyInit_{request.name}'"
        return (
            first if twice else f"error: multiple definition of `PyInit_{request.name}'"
        ) + "\nnote: load_inline writes a PYBIND11_MODULE of its own for `functions`; keep one of the two"
    makes = _MAKES_MODULE.search(request.cpp_source + request.cuda_source)
    if not modules and not request.functions and not makes:
        return f"error: dynamic module does not define module export function (PyInit_{request.name})"
    if modules and modules[0] not in ("TORCH_EXTENSION_NAME", request.name):
        return f"error: the module is named {modules[0]}, so it has no export function PyInit_{request.name}"
    return None


_MAKES_MODULE = re.compile(r"\bTORCH_LIBRARY\w*|\bPYBIND11_MODULE\b|\bPyInit_|\bPyMODINIT_FUNC\b")
"""Matches texts with a module, or with a macro that makes one: the built library tells which it is."""


def _modules(source: str) -> list[str]:
    """Names in the PYBIND11_MODULE definitions of a text (its macros' bodies are not looked into)."""
    tokens = tokenize(source)
    found = [k for k, t in enumerate(tokens) if t.text == "PYBIND11_MODULE" and k + 2 < len(tokens)]
    return [tokens[k + 2].text for k in found]


def _main_unit(request: BuildRequest) -> str:
    """load_inline's main.cpp: the C++ sources, then the bindings of `functions`."""
    text = '#line 1 "main.cpp"\n' + includes.drop_known(request.cpp_source) + "\n"
    if request.functions:
        defs = " ".join(
            f'm.def("{name}", torch::wrap_pybind_function({name}), "{name}");' for name in request.functions
        )
        text += f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {defs} }}\n"
    return text


def _host_units(request: BuildRequest, parts: Split) -> tuple[str, str]:
    """load_inline's two host files, main.cpp and cuda.cu; the second is empty without CUDA sources."""
    defines = "".join(f"#define {d}\n" for d in _defines(request.cuda_flags + request.cpp_flags))
    if re.fullmatch(r"[A-Za-z_]\w*", request.name):
        defines += f"#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME {request.name}\n"
    defines += includes.standard_includes(request.cpp_source + request.cuda_source)
    defines += includes.more_headers(request.cpp_source + request.cuda_source)
    if parts.device_lambdas:
        defines += f'#include "{host_build.DEVICE_INCLUDE / lambdas.HEADER}"\n'
    defines += _version_macros(cuda=bool(request.cuda_source.strip()))
    cuda = '#line 1 "cuda.cu"\n' + includes.drop_known(parts.host) if request.cuda_source.strip() else ""
    return defines + _main_unit(request), defines + _NVCC + cuda if cuda else ""


_NVCC = "#define __CUDACC__ 1\n#define __NVCC__ 1\n"
"""What nvcc defines for the host's half of a .cu file."""


def _version_macros(cuda: bool) -> str:
    known = _versions() if cuda else nvrtc.torch_version_macros()
    return "".join(f"#undef {name}\n#define {name} {value}\n" for name, value in known.items())


def _versions() -> dict[str, int]:
    major, minor = nvrtc.version()
    return {**nvrtc.version_macros(), "__CUDACC_VER_MAJOR__": major, "__CUDACC_VER_MINOR__": minor}


def _syntax(request: BuildRequest, units: tuple[str, str], cache: Path) -> BuildResult:
    """Checks the syntax of the host files, which is quick, before device code is compiled."""
    if not units[1]:
        return BuildResult("ok")  # compiled with the author's flags, for which no warm compiler exists
    done = host_build.check_syntax(cache, "".join(units))
    if not done.ok and request.cpp_source.strip() and _JOINING.search(done.log):
        return BuildResult("ok")
    return BuildResult("ok") if done.ok else _host_failed(request, done.log)


def _host_failed(request: BuildRequest, log: str) -> BuildResult:
    plain = log
    # g++ reports a namespace by the author's alias.
    pattern = r"\bnamespace\s+(\w+)\s*=\s*(?:::)?\s*([\w:]+)\s*;"
    for alias, name in re.findall(pattern, request.cpp_source + request.cuda_source):
        plain = re.sub(rf"(?<=['\u2018]){alias}(?=['\u2019]|::)", name, plain)
    missing = diagnose.host_missing(plain) or diagnose.link_missing(plain)
    return _failed(log, _cut(request.cuda_source, log) or missing or _traced(request, log))


_UNKNOWN_NAME = re.compile(
    r"['\u2018](\w+)['\u2019] (?:was not declared|has not been declared|does not name a type)"
    r"|(?:identifier|namespace) \"(\w+)\" is undefined|(?:before|after) ['\u2018]([A-Z][A-Z0-9_]+)['\u2019]"
)
"""Matches the name in an error about an unknown name, or about a macro in whose place a name stands."""


def _traced(request: BuildRequest, log: str) -> tuple[str, ...]:
    """Returns the name that the first error does not know, if an included header of a library declares it."""
    first = re.search(r"\berror: .*", log)
    found = _UNKNOWN_NAME.search(first[0]) if first else None
    if found is None:
        return ()
    name = found[1] or found[2] or found[3]
    header = tracing.header_of(name, request.cpp_source + "\n" + request.cuda_source)
    return (f"{name} of {header}",) if header else ()


def _cut(source: str, log: str) -> tuple[str, ...]:
    """Returns the unsupported feature if splitting separated an `#if` from its `#endif`."""
    found = re.findall(r"^[ \t]*#[ \t]*(if|endif)", source, re.MULTILINE)
    whole = found.count("if") == found.count("endif")
    known = whole and re.search(r"unterminated #|#(?:endif|else|elif) without #if|#endif for this directive is", log)
    return ("source: conditional compilation within a declaration",) if known else ()


def _host_part(request: BuildRequest, units: tuple[str, str], cache: Path, target: Path) -> BuildResult:
    flags = () if units[1] else cpp_flags(request.cpp_flags)
    # One translation unit is faster than two. If joining the files may have caused the error, compile them separately.
    done = host_build.compile_library(cache, ["".join(units)], target, flags)
    if not done.ok and units[1] and request.cpp_source.strip() and _JOINING.search(done.log):
        done = host_build.compile_library(cache, units, target, flags)
    if not done.ok:
        return _host_failed(request, done.log)
    names = request.functions or tuple(re.findall(r"\bdef\s*\(\s*\"(\w+)\"", request.cpp_source + request.cuda_source))
    names = tuple(dict.fromkeys(names))
    return BuildResult("ok", library=str(target), functions=names, module=request.name)


def _macros(request: BuildRequest, cuda: bool = True) -> dict[str, str]:
    """Returns macros defined before the first line of the CUDA or C++ file, without those of unread headers."""
    flags = (
        d.partition(" ")
        for d in _defines(request.cuda_flags if cuda else request.cpp_flags)
        if "(" not in d.split(" ")[0]
    )
    return {name: str(value) for name, value in _versions().items()} | {name: value for name, _, value in flags}


_JOINING = re.compile(r"redefin|redeclar|conflicting|default argument given|was declared .* and later")


def _defines(flags: tuple[str, ...]) -> list[str]:
    out = []
    for flag in flags:
        if flag.startswith("-D") and nvrtc.DEFINES.fullmatch(flag):
            name, given, value = flag[2:].partition("=")
            out.append(f"{name} {value if given else 1}")
    return out


_CPP_FLAGS = re.compile(
    r"-O(?:[0-3s]|fast)|-fopenmp(?:-simd)?|-ffast-math|-fno-math-errno|-funroll-loops|-ftree-vectorize|-fno-trapping-math"
    r"|-fassociative-math|-freciprocal-math|-fno-signed-zeros|-funsafe-math-optimizations|-ffinite-math-only"
    r"|-fstrict-aliasing|-fno-strict-aliasing|-m(?:arch|tune)=[\w.+-]+|-m(?:avx\w*|fma|sse[\w.]*|f16c|bmi2?|popcnt)"
)


def cpp_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Returns g++ flags for code without kernels: an optimisation level and the author's code-generation flags."""
    wanted = tuple(dict.fromkeys(flag for flag in flags if _CPP_FLAGS.fullmatch(flag)))
    level = () if any(flag.startswith("-O") for flag in wanted) else ("-O2",)
    return ("-std=gnu++20", *level, *wanted)
