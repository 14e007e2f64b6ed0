"""Whose fault is a failed compilation: the candidate's own, or a gap in the stand-in.

Reads the messages of g++ and NVRTC. In doubt the answer is `unsupported`, with the name that was missing.
"""

from __future__ import annotations

import re

LOG_LIMIT = 4096
_QUOTED = r"['\u2018]([^'\u2019]*)['\u2019]"
_API_NAME = re.compile(
    r"(?:cuda[A-Z]|cu[A-Z][a-z]|cublas|cudnn|curand|cufft|cusparse|cusolver|nccl|CUDA|CU_|CUBLAS|AT_|TORCH_|C10_|THC?[A-Z]"
    r"|PYBIND11|thrust|cutlass|cute|cub$|nvtx|nvrtc|__nv_|__half|__float2|__h[a-z]+2?$|torch$|at$|c10$|py$|pybind11$)\w*"
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
_ERROR = re.compile(r"^([^\s:][^:\n]*):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", re.MULTILINE)


def truncate(log: str) -> str:
    """The first `LOG_LIMIT` characters of a log, with a note when some were left out."""
    return log if len(log) <= LOG_LIMIT else log[:LOG_LIMIT] + f"\n... {len(log) - LOG_LIMIT} more characters"


def host_missing(log: str) -> tuple[str, ...]:
    """Names of what the stand-in lacks, from g++'s messages; empty when the first error is the candidate's own."""
    missing: list[str] = []
    for file, _line, message in _ERROR.findall(log):
        name = _host_gap(message)
        # What the stand-in deletes is what torch deletes: no gap.
        refused = message.startswith("use of deleted function")
        if name is None and not refused and ("/kw/" in file or file.startswith("/")):
            name = f"stand-in: {message[:80]}"
        if name is None and not missing:
            return ()
        if name is not None and name not in missing:
            missing.append(name)
    return tuple(missing[:8])


def _host_gap(message: str) -> str | None:
    """The library name that one g++ message is about, or None when it is about the candidate's own code."""
    header = re.match(r"(\S+): No such file or directory", message)
    if header:
        return header.group(1) if _LIBRARY_HEADER.match(header.group(1)) else None
    member = re.match(
        rf"{_QUOTED} (?:is not a member of|has not been declared in|does not name a .*? in) {_QUOTED}", message
    )
    if member:
        return f"{member.group(2)}::{member.group(1)}" if _LIBRARY_SCOPE.match(member.group(2)) else None
    no_member = re.match(rf"{_QUOTED} has no member named {_QUOTED}", message)
    if no_member:
        owner = re.sub(r"^(?:const )?(?:struct |class |union )?(?:const )?", "", no_member.group(1))
        return f"{owner}::{no_member.group(2)}" if _LIBRARY_SCOPE.match(owner) or _LIBRARY_TYPE.search(owner) else None
    unknown = re.match(
        rf"{_QUOTED} (?:was not declared|has not been declared|does not name a type|is not a class)", message
    )
    if unknown:
        name = unknown.group(1)
        return name if _API_NAME.match(name) or ("::" in name and _LIBRARY_SCOPE.match(name)) else None
    overload = re.match(r"(?:no matching function for call to|no match for|call of overloaded) (.*)", message)
    if overload:
        return overload.group(1)[:100] if _LIBRARY_TYPE.search(overload.group(1)) else None
    conversion = re.search(
        rf"(?:could not convert|cannot convert|conversion from|invalid conversion) .*?{_QUOTED} to .*?{_QUOTED}",
        message,
    )
    if conversion:
        source, target = conversion.groups()
        if _LIBRARY_TYPE.search(target) or re.search(r"\bkw::|c10::Scalar|ArrayRef|optional", source):
            return f"conversion from {source} to {target}"[:100]
        return None
    return None


def link_missing(log: str) -> tuple[str, ...]:
    """Undefined symbols that belong to libraries rather than to the candidate."""
    names = re.findall(r"undefined reference to [`'\"]([^'\"\n]+)'", log)
    return tuple(dict.fromkeys(n for n in names if _API_NAME.match(n) or _LIBRARY_SCOPE.match(n)))[:8]


_DEVICE_LIBRARY = re.compile(
    r"curand|cub\b|thrust|cutlass|cute|nvcuda|cooperative_groups|cublas|at$|c10$|torch$|__nv_fp8|tex[123]D|surf"
)


def device_missing(log: str) -> tuple[str, ...]:
    """What NVRTC's headers or our device stubs lack, from its messages; empty when the fault is the candidate's own."""
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


def _device_gap(line: str, source: str) -> str | None:
    """What one error line lacks; `source` is the line of code that NVRTC prints below it."""
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
