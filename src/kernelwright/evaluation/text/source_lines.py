"""Maps a line of a source that a candidate passed to the compiler to the line of the candidate's own file.

Candidates hold their CUDA and C++ text in strings, so compiler and machine count lines from the string's beginning. A
text assembled at run time has no line in the file, and the answer is None.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kernelwright.evaluation.text import mentions

_LINE = re.compile(r'^[ \t]*#[ \t]*line[ \t]+(\d{1,10})\b(?:[ \t]+"([^"\n]*)")?[^\n]*\n', re.MULTILINE)
_MAIN = (None, "", "cuda.cu", "main.cpp")
"""The files of `#line` that are no header."""
_ERROR = re.compile(r"(cuda\.cu|main\.cpp)(?:\((\d+)\)|:(\d+)(?::\d+)?):? *(?:fatal )?error")
_IN_HEADER = re.compile(r"^kernelwright/\w+\.cuh\(\d+\): *error", re.MULTILINE)
_INSTANTIATION = re.compile(r"\binstantiation of .* at line (\d+) of cuda\.cu")
"""Matches NVRTC's note on the line that calls a template of a header."""


def own_line(text: str, source: str, line: int) -> int | None:
    """Returns the line of `text` (the candidate's file) for the line that compilers call `line` in `source`.

    Both count from 1. Compilers count from the last `#line N` of a source, which ours puts behind its own includes.
    """
    part, k = _part(source, line)
    lines = part.split("\n")
    if not 1 <= k <= len(lines):
        return None
    start = text.find(part)
    if start >= 0:
        return text.count("\n", 0, start) + k
    if part.startswith(text) and k <= text.count("\n") + 1:  # a whole file, with our binding behind it
        return k
    wanted, own_lines = lines[k - 1].strip(), text.split("\n")
    if wanted and line <= len(own_lines) and own_lines[line - 1].strip() == wanted:
        return line  # a whole file, with headers put into it
    found = [number for number, own in enumerate(own_lines, 1) if own.strip() == wanted]
    return found[0] if wanted and len(found) == 1 else None


def _part(source: str, line: int) -> tuple[str, int]:
    """Returns the part of `source` between two `#line` directives that has `line`, headers left out, and the line's
    number there."""
    marks = list(_LINE.finditer(source))
    begins = [(0, 1, None), *((mark.end(), int(mark[1]), mark[2]) for mark in marks)]
    ends = [mark.start() for mark in marks] + [len(source)]
    for (start, first, file), end in zip(reversed(begins), reversed(ends), strict=True):
        if file in _MAIN and first <= line <= first + source.count("\n", start, end):
            return source[start:end], line - first + 1
    return source, line


def of_kernel(text: str, requests: Sequence[dict[str, Any]], kernel: str, line: object) -> int | None:
    """Returns the line of `text` for a line of the one CUDA source that defines `kernel` (a plain or mangled name)."""
    if not isinstance(line, int) or isinstance(line, bool):
        return None
    # Further instances of a template are built from the device half of a text that is already among the others.
    sources = {str(r.get("cuda_source", "")) for r in requests if r.get("kind") != "instances"}
    holding = [s for s in sources if any(name in kernel for name in mentions.kernels(s))]
    return own_line(text, holding[0], line) if len(holding) == 1 else None


def of_finding(text: str, requests: Sequence[dict[str, Any]], finding: dict[str, Any]) -> int | None:
    """Returns the line of `text` for a finding of the machine; Triton's kernels are in that file itself."""
    line = finding.get("line")
    if finding.get("file") == "candidate.py":
        own = isinstance(line, int) and not isinstance(line, bool) and 1 <= line <= text.count("\n") + 1
        return line if own else None
    return of_kernel(text, requests, str(finding.get("kernel", "")), line)


def in_own_lines(text: str, requests: Sequence[dict[str, Any]], kernel: str, evidence: str) -> str:
    """Rewrites a message about lines of the CUDA source in lines of the candidate's file, if those are known."""

    def replaced(match: re.Match[str]) -> str:
        own = [of_kernel(text, requests, kernel, int(number)) for number in re.findall(r"\d+", match[2])]
        if None in own:
            return match[0]
        return match[1] + ", ".join(map(str, own))

    return re.sub(r"\b(lines? )(\d+(?:, \d+)*)(?: of the CUDA source)?", replaced, evidence)


def of_error(text: str, request: dict[str, Any], log: str) -> int | None:
    """Returns the line of `text` that a compiler's first error refers to; for an error in a template of the tile
    library, the line that uses the template."""
    found, inside = _ERROR.search(log), _IN_HEADER.search(log)
    if inside is not None and (found is None or inside.start() < found.start()):
        caller = _INSTANTIATION.search(log, inside.end())
        return own_line(text, str(request.get("cuda_source", "")), int(caller[1])) if caller is not None else None
    if found is None:
        return None
    source = str(request.get("cuda_source" if found[1] == "cuda.cu" else "cpp_source", ""))
    return own_line(text, source, int(found[2] or found[3]))
