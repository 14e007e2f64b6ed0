"""Attributes a failed compilation to the candidate or to a gap in the stand-in.

Parses the messages of g++ and NVRTC. In doubt the result is `unsupported`, with the missing name.
"""

from __future__ import annotations

import re

from kernelwright.backends.source_text import known_names

LOG_LIMIT = 4096
_QUOTED = r"['\u2018]([^'\u2019]*)['\u2019]"
_LIBRARY_WORD = re.compile(
    r"(?:thrust|cutlass|cute|cub|nvtx|__nv_|__half|__float2|__h[a-z]+2?$|torch$|at$|c10$|py$|pybind11$)\w*"
)
_LIBRARY_SCOPE = re.compile(
    r"^(?:(?:struct|class|union|enum) )?(?:torch|at|c10|caffe2|pybind11|py|thrust|cub"
    r"|cooperative_groups|nvcuda|cuda|std)\b"
)
_LIBRARY_TYPE = re.compile(r"\b(?:at|c10|kw|pybind11|torch)::|\bcuda[A-Z]\w+|\bdim3\b|\b__half\b|\b__nv_bfloat16\b")
_LIBRARY_HEADER = re.compile(
    r"(?:torch|ATen|c10|caffe2|pybind11|thrust|cub|cuda|cutlass|cute|nccl|cooperative_groups)(?:/|\.h|$)"
    r"|cu(?:blas|dnn|rand|fft|sparse|solver|tensor|pti)\w*\.h|nv\w+\.h|cuda\w*\.h|mma\.h|THC/|helper_\w+\.h"
)
_TORCH_HEADER = re.compile(r"(?:torch|ATen|c10|caffe2|pybind11|THC)/")
_ERROR = re.compile(r"^([^\s:][^:\n]*):(\d+):(?:\d+:)? (?:fatal )?error: (.*)(?:\n +\d+ \| (.*))?$", re.MULTILINE)
_SCOPED = re.compile(r"\b((?:cub|thrust|cutlass|cute|nvcuda|cooperative_groups)(?:::\w+)+)")
_PLAIN = re.compile(
    r"(?:const )?(?:(?:unsigned |signed |long |short )*(?:int|long|short|char|float|double|bool|void)"
    r"(?: unsigned)?(?: int)?"
    r"|(?:std::(?:__cxx11::)?(?:vector|tuple|pair|array|optional|initializer_list|basic_string)|c10::(?:ArrayRef|optional))<.*>"
    r"|at::(?:Tensor|Scalar)|c10::(?:Scalar|ScalarType|TensorOptions|Device|DeviceType|TypeMeta|Half|BFloat16|IntArrayRef)"
    r"|std::nullopt_t|<brace-enclosed initializer list>|std::string|c10::MemoryFormat|unsigned)"
    r"(?: ?(?:const|[&*]|\[\d+\]|\(&\)))*"
)
"""Types that are the same in torch and in the stand-in."""


def truncate(log: str) -> str:
    """Cuts a log to `LOG_LIMIT` characters, with a note of how many were cut."""
    return log if len(log) <= LOG_LIMIT else log[:LOG_LIMIT] + f"\n... {len(log) - LOG_LIMIT} more characters"


def host_missing(log: str) -> tuple[str, ...]:
    """Returns names that the stand-in lacks, from g++'s messages; empty when the first error is the candidate's."""
    missing: list[str] = []
    for file, _line, message, source in _ERROR.findall(log):
        if re.match(rf"variable or field {_QUOTED} declared void", message):
            continue  # the next message names the unknown parameter type
        name = _host_gap(message)
        scoped = _SCOPED.search(source)
        if scoped and (name is not None or "::" in message or scoped.group(1).split("::")[0] in message):
            name = f"host API {scoped.group(1)}"
        # Deleted functions and static assertions of the stand-in mirror torch: no gap.
        refused = message.startswith(("use of deleted function", "static assertion failed: You tried to register"))
        if name is None and not refused and ("/kw/" in file or file.startswith("/")):
            name = f"stand-in: {message[:80]}"
        if name is None and not missing:
            return ()
        if name is not None and name not in missing:
            missing.append(name)
    return tuple(missing[:8])


def _host_gap(message: str) -> str | None:
    """Returns the library name in one g++ message, or None when it concerns the candidate's own code."""
    header = re.match(r"(\S+): No such file or directory", message)
    if header:
        return _missing_header(header.group(1))
    member = re.match(
        rf"{_QUOTED} (?:is not a member of|has not been declared in|does not name a .*? in|in namespace) {_QUOTED}",
        message,
    )
    if member:
        return _missing_member(member.group(2), member.group(1))
    plain = re.sub(r" \{aka [^}]*\}", "", message)
    no_member = re.match(rf"{_QUOTED} has no (?:non-static data )?member named {_QUOTED}", plain)
    if no_member:
        owner = re.sub(r"^(?:const )?(?:struct |class |union )?(?:const )?", "", no_member.group(1))
        if owner.startswith("std::"):
            return None  # std is complete: the compiler's own
        return _missing_member(owner, no_member.group(2))
    unknown = re.match(
        rf"{_QUOTED} (?:was not declared|has not been declared|does not name a type|is not a class)", message
    )
    if unknown:
        scope, _, name = unknown.group(1).rpartition("::")
        if scope:
            return _missing_member(scope, name)
        return name if known_names.is_api(name) or _LIBRARY_WORD.match(name) else None
    count = re.match(rf"too (?:many|few) arguments to (?:member )?function {_QUOTED}", message)
    if count:
        name = re.search(r"(\w+)(?:<.*>)?\(", count.group(1))
        whole = name is None or known_names.is_complete(name.group(1)) or not _LIBRARY_TYPE.search(count.group(1))
        return None if whole else count.group(1)[:100]
    overload = re.match(r"(?:no matching function for call to|no match for|call of overloaded) (.*)", message)
    if overload:
        return _missing_overload(overload.group(1))
    conversion = re.search(
        rf"(?:could not convert|cannot convert|conversion from|invalid conversion) .*?{_QUOTED} to .*?{_QUOTED}",
        message,
    )
    if conversion:
        source, target = conversion.groups()
        if _PLAIN.fullmatch(source) and _PLAIN.fullmatch(target):
            return None
        if _LIBRARY_TYPE.search(target) or re.search(r"\bkw::|c10::Scalar|ArrayRef|optional", source):
            return f"conversion from {source} to {target}"[:100]
        return None
    return None


def _missing_header(name: str) -> str | None:
    if _TORCH_HEADER.match(name):
        return name if known_names.is_header(name) else None
    return name if _LIBRARY_HEADER.match(name) else None


def _missing_member(scope: str, name: str) -> str | None:
    """Returns `scope::name` if torch or CUDA has it or may have it, else None."""
    plain = re.sub(r"^(?:struct|class|union|enum) ", "", scope.removeprefix("::"))
    plain = re.sub(r"^py$|^py(?=::)", "pybind11", plain)
    if known_names.declared(plain, name) is False:
        return None
    return f"{plain}::{name}" if _LIBRARY_SCOPE.match(plain) or _LIBRARY_TYPE.search(plain) else None


def _missing_overload(call: str) -> str | None:
    """Returns a call that fits no overload of the stand-in; None if it fits none of torch's either."""
    quoted = re.match(r"['\u2018](?:.* )?([\w:~<>]+)\((.*)\)['\u2019]", call)
    if quoted:
        name = quoted.group(1).split("<")[0].split("::")[-1]
        if known_names.is_complete(name) and all(_PLAIN.fullmatch(a) for a in _arguments(quoted.group(2))):
            return None
    operands = re.match(r"['\u2018]operator(.+?)['\u2019] \(operand types? (?:is|are) (.*)\)", call)
    if operands and all(_PLAIN.fullmatch(a) for a in re.findall(_QUOTED, operands.group(2))):
        return None
    return call[:100] if _LIBRARY_TYPE.search(call) else None


def _arguments(text: str) -> list[str]:
    """Returns the argument types of a call in a message, with aliases resolved (`{aka ...}`)."""
    out, depth, piece = [], 0, ""
    for character in text + ",":
        depth += {"<": 1, "(": 1, "{": 1, ">": -1, ")": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            aka = re.search(r"\{aka (.*)\}", piece)
            out.append((aka.group(1) if aka else piece).strip())
            piece = ""
        else:
            piece += character
    return [argument for argument in out if argument]


def link_missing(log: str) -> tuple[str, ...]:
    """Returns undefined symbols that belong to libraries rather than to the candidate."""
    names = re.findall(r"undefined reference to [`'\"]([^'\"\n]+)'", log)
    return tuple(dict.fromkeys(n for n in names if known_names.is_api(n.split("(")[0]) or _LIBRARY_SCOPE.match(n)))[:8]


_DEVICE_LIBRARY = re.compile(
    r"curand|cub\b|thrust|cutlass|cute|nvcuda|cooperative_groups|cublas|at$|c10$|torch$|__nv_fp8|tex[123]D|surf"
)


def device_missing(log: str) -> tuple[str, ...]:
    """Returns names that NVRTC's headers or our device stubs lack; empty when the first error is the candidate's."""
    lines = log.splitlines()
    missing: list[str] = []
    for k, line in enumerate(lines):
        if not re.search(r"\berror\b", line):
            continue
        name = _device_gap(line, lines[k + 1] if k + 1 < len(lines) else "")
        if name is None and not missing:
            return ()
        if name is not None and name not in missing:
            missing.append(name)
    return tuple(missing[:8])


_LIBRARY_USE = re.compile(r"\b(torch|at|c10|cub|cg|cooperative_groups|nvcuda|wmma|thrust|cuda|cute|cutlass)\s*::")


_CURAND_LEFT = re.compile(r"\bcurandState(?:MRG32k3a|Mtgp32|Sobol|ScrambledSobol)\w*")
"""Matches the generators of cuRAND that our header lacks. NVRTC's first message about an unknown parameter type names
the kernel's attribute and not the type."""


def _device_gap(line: str, source: str) -> str | None:
    """Returns the missing name of one error line; `source` is the line of code that NVRTC prints below it."""
    if (left := _CURAND_LEFT.search(source)) is not None:
        return left.group()
    header = re.search(r"(?:cannot|could not) open source file \"([^\"]+)\"", line)
    if header:
        return header.group(1) if _LIBRARY_HEADER.match(header.group(1)) or '"' not in source else None
    member = re.search(r"namespace \"([\w:]+)\" has no member(?: class)? \"(\w+)\"", line)
    if member and (_LIBRARY_SCOPE.match(member.group(1)) or _DEVICE_LIBRARY.match(member.group(1))):
        return f"{member.group(1)}::{member.group(2)}"
    member = re.search(r"(?:class|struct) \"([^\"]+)\" has no member \"(\w+)\"", line)
    if member and _LIBRARY_SCOPE.match(member.group(1)):
        return f"{member.group(1)}::{member.group(2)}"
    unknown = re.search(r"(?:identifier|name followed by \"::\"|type) \"(\w+)\" is undefined", line)
    if unknown and _DEVICE_LIBRARY.match(unknown.group(1)):
        return unknown.group(1)
    used = _LIBRARY_USE.search(source)
    if used and re.search(r"name followed by \"::\" must be", line):
        return f"namespace {used.group(1)}"
    return None
