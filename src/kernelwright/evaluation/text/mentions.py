"""Reads from a candidate's text how it must be run: words that it uses, kernels that it defines, sizes that it holds.

The text is not trusted, and nothing here decides a verdict. Each function reads a text in time proportional to its
length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_STARTS_PROGRAMS = re.compile(r"\btriton\b|torch\s*\.\s*compile\b|\bnumba\b|\bcupy\b")
_STREAMS = re.compile(r"StreamCreate|getStreamFromPool|StreamPerThread|\bStream\s*\(")
_TUNES = re.compile(r"autotune|torch\s*\.\s*compile\b|\.\s*benchmark\b|do_bench|EventElapsedTime|elapsed_time")
_PYTHON_FUNCTION = re.compile(r"\bdef\s+(\w+)\s*\(")
_BOUNDS = re.compile(r"__launch_bounds__\s*\([^()]*\)")
_GLOBAL_OR_END = re.compile(r"\b__global__\b|[;{(]")
_LAST_WORD = re.compile(r"\w+")
_NUMBERS_ONLY = re.compile(r"(?:[\w, \t]+=)?[\d_\s,()*+-]*(?:#.*)?")
_COMMENT = re.compile(r"(#(?!define)|//).*")
_THREAD_COUNT = re.compile(r"thread|block|tile|warp|launch", re.IGNORECASE)
_SMALL = re.compile(r"(?<![\w.])(?:10[01]\d|102[0-4]|[1-9]\d{0,2})(?![\w.])")
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_CONSTANTS = re.compile(r"(\w[\w, \t]*)=[ \t]*(\d[\d_, \t]*)(?:#.*)?")
"""One constant, or several as `a, b = 1, 2`."""


def starts_programs(text: str) -> bool:
    """Tells whether a candidate needs a runner that may start compilers."""
    return _STARTS_PROGRAMS.search(text) is not None


def has_streams(text: str) -> bool:
    """Tells whether a candidate may create CUDA streams."""
    return _STREAMS.search(text) is not None


def tunes(text: str) -> bool:
    """Tells whether a candidate may tune itself by timing kernels in its first call."""
    return _TUNES.search(text) is not None


def kernels(text: str) -> list[str]:
    """Returns the names of the `__global__` functions of a CUDA text, in order."""
    text = _BOUNDS.sub("", text)
    found: list[str] = []
    begin = None
    for match in _GLOBAL_OR_END.finditer(text):
        if match[0] == "__global__":
            begin = match.end() if begin is None else begin
        elif begin is not None:
            words = _LAST_WORD.findall(text, begin, match.start()) if match[0] == "(" else []
            found += words[-1:]
            begin = None
    return found


def device_functions(text: str) -> frozenset[str]:
    """Returns the names of functions that a text defines for the device, in CUDA or Triton."""
    return frozenset((*kernels(text), *_PYTHON_FUNCTION.findall(text)))


def declared_sizes(text: str, reference: str) -> frozenset[str]:
    """Returns the constants of a reference whose values, from 64, the code holds beyond its copy of the constants."""
    numbers: set[str] = set()
    for line in text.splitlines():
        if _NUMBERS_ONLY.fullmatch(line):
            continue  # a constant, or the rest of one
        code = _COMMENT.sub("", line)
        # A number up to 1024 on a line with these words is a thread count: equal to a size by chance, not a copy of it.
        code = _SMALL.sub("", code) if _THREAD_COUNT.search(code) else code
        numbers |= set(_NUMBER.findall(code))
    held = {int(number[:40]) for number in numbers}
    return frozenset(name for name, value in _constants(reference) if value >= 64 and value in held)


def _constants(reference: str) -> Iterator[tuple[str, int]]:
    """Yields the names and values of a reference's constants."""
    for line in reference.splitlines():
        if (match := _CONSTANTS.fullmatch(line)) is None:
            continue
        names, values = ([part.strip() for part in group.split(",")] for group in match.groups())
        for name, value in zip(names, values, strict=False):
            digits = value[:40].replace("_", "")
            if digits.isdigit():  # a line of a docstring may hold several numbers without commas
                yield name, int(digits)
