"""Puts the headers of the tile library (`kernelwright/NAME.cuh`) into device text that includes them.

Device text says `#include <kernelwright/NAME.cuh>`. Every compiler gets the text with the headers in it, between
`#line` directives, so that messages and findings name a header's own lines, and so that caches which hash the text hash
the headers, too. Compiles nothing; needs nothing but this folder.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
"""The folder below which an include's path leads to the header: `FOLDER / "kernelwright/NAME.cuh"`."""
PREFIX = "kernelwright/"
_SUFFIX = ".cuh"

# Comments and literals are matched, too, so that an include in one of them is left alone.
_PIECE = re.compile(
    r"""
    ^[ \t]*\#[ \t]*(?:
        include[ \t]*[<"](?P<header>kernelwright/[^>"\n]*)[>"][^\n]*
      | (?P<once>pragma[ \t]+once\b)[^\n]*
      | (?P<opens>if)(?:n?def)?\b
      | (?P<closes>endif)\b
      | line[ \t]+(?P<line>\d{1,9})(?:[ \t]+"(?P<file>[^"\n]*)")?[^\n]*
    )
    | //[^\n]* | /\*.*?\*/
    | R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
INCLUDE = re.compile(r"""#[ \t]*include[ \t]*[<"](kernelwright/[^>"\n\\]*)[>"]""")
"""Matches an include of the library's headers, also in a string of a Python file."""


class UnknownHeader(ValueError):
    """Raised for an include of a header that the library does not have; the message is a compiler's error line."""

    def __init__(self, header: str, line: int, file: str) -> None:
        known = ", ".join(names()) or "none"
        super().__init__(f"{file}:{line}: error: there is no header <{header}>; the tile library's headers are {known}")


@cache
def names() -> tuple[str, ...]:
    """Returns the headers as an include names them: `kernelwright/NAME.cuh`."""
    return tuple(sorted(f"{PREFIX}{path.name}" for path in (FOLDER / PREFIX).glob(f"*{_SUFFIX}")))


@cache
def header_text(header: str) -> str:
    """Returns a header's text."""
    return (FOLDER / header).read_text(encoding="utf-8")


def inlined(text: str, file: str = "cuda.cu", marks: bool = True) -> str:
    """Returns device text with the library's headers in place of their includes, each once.

    `file` is the text's name in messages. `marks` adds `#line` directives, so that headers and text keep their line
    numbers. A text without such an include is returned unchanged. Raises `UnknownHeader`.
    """
    return _Inlining(marks).text(text, file) if PREFIX in text else text


def named(text: str) -> tuple[str, ...]:
    """Returns the headers that a text includes anywhere, also in a string of a Python file, with those that they
    include; unknown names are left out."""
    found: dict[str, None] = {}
    waiting = INCLUDE.findall(text) if PREFIX in text else []
    while waiting:
        header = waiting.pop(0)
        if header not in found and header in names():
            found[header] = None
            waiting += INCLUDE.findall(header_text(header))
    return tuple(found)


def content(text: str) -> str:
    """Returns the text of all headers that `named` finds."""
    return "\n".join(map(header_text, named(text)))


def fingerprint(text: str) -> str:
    """Returns a hash of the headers that a text includes; empty where it includes none."""
    inside = content(text)
    return hashlib.sha256(inside.encode()).hexdigest() if inside else ""


class _Inlining:
    """The state of one text: which headers stand in it already."""

    def __init__(self, marks: bool) -> None:
        self._marks = marks
        self._done: set[str] = set()
        """Headers that stand in the text outside every conditional."""
        self._guarded: set[str] = set()
        """Headers that stand in a conditional, behind a guard."""

    def text(self, text: str, file: str, conditional: bool = False) -> str:
        out: list[str] = []
        position, depth, shift = 0, 0, 0
        for found in _PIECE.finditer(text):
            line = text.count("\n", 0, found.start()) + 1 + shift
            depth += bool(found["opens"]) - bool(found["closes"])
            if found["line"]:
                shift += int(found["line"]) - line - 1
                file = found["file"] or file
            elif found["once"] or found["header"]:
                out.append(text[position : found.start()])
                position = found.end()
                if found["header"]:
                    out.append(self._header(found["header"], line, file, conditional or depth > 0))
        return "".join([*out, text[position:]])

    def _header(self, header: str, line: int, file: str, conditional: bool) -> str:
        """Returns the text in place of one include, which ends at the end of its line."""
        if header not in names():
            raise UnknownHeader(header, line, file)
        if header in self._done:
            return ""
        (self._guarded if conditional else self._done).add(header)
        body = self.text(header_text(header), header, conditional).strip("\n" if not self._marks else "")
        if self._marks:
            body = f'#line 1 "{header}"\n{body}'
        if header in self._guarded:
            guard = "KW_" + re.sub(r"\W", "_", header.removeprefix(PREFIX)).upper()
            body = f"#ifndef {guard}\n#define {guard}\n{body}\n#endif"
        return f'{body}\n#line {line + 1} "{file}"' if self._marks else body
