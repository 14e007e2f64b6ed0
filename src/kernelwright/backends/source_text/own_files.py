"""Puts the own headers of a program or an extension into its text, so that one text holds all that a compiler reads.

`#include "shared.h"` becomes the file between two `#line` directives: messages and findings name the file and its
line. What is not the program's own stays an include. Nothing is read here; the caller finds the files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.backends.source_text.tokens import Token, tokenize

MOST_CHARACTERS = 4 << 20
"""The limit on an expanded text: headers that include each other may grow without end."""
MOST_LEVELS = 40
_INCLUDE = re.compile(r"#\s*include\s*(?:\"([^\"\n]+)\"|<([^>\n]+)>)")
_IF = re.compile(r"#\s*if")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_WORD = re.compile(r"\w+")
_ENDIF = re.compile(r"#\s*endif")


class TooManyHeaders(Exception):
    """Raised for headers that include each other without end, or are too long together."""


@dataclass(frozen=True)
class OwnFile:
    """A file of a program: the key that tells it from others, the name that messages show, and its text."""

    key: str
    name: str
    text: str


Finder = Callable[[str, bool, OwnFile], OwnFile | None]
"""Returns the file that an include names (name, whether quoted, the including file); None where it is no own file."""


def expanded(main: OwnFile, find: Finder) -> str:
    """Returns `main` with all its own headers. Raises `TooManyHeaders`."""
    return Expansion(find).text(main)


def included(main: OwnFile, find: Finder) -> frozenset[str]:
    """Returns the keys of all own files that `main` includes. Raises `TooManyHeaders`."""
    expansion = Expansion(find)
    expansion.text(main)
    return frozenset(expansion.seen)


class Expansion:
    """Expands files that become one text.

    Within a file, headers stand where and as often as a compiler would put them. A header without a guard that an
    earlier file has put into the text stands there once, as if it had one: its definitions would be there twice. It is
    put in again where a file includes it several times, or where it uses macros that the including file defines.
    """

    def __init__(self, find: Finder) -> None:
        self.find = find
        self.length = 0
        self.seen: set[str] = set()
        self.done: set[str] = set()
        """Files that count once and stand in the text outside every conditional: they are not put in again."""
        self._put_before: set[str] = set()
        """Files that an earlier main file has put into the text."""
        self._repeated: set[str] = set()
        """Files that one main file includes several times."""
        self._times: Counter[str] = Counter()
        self._macros: set[str] = set()

    def text(self, main: OwnFile) -> str:
        """Returns a file with all its headers. Raises `TooManyHeaders`."""
        self._put_before |= self._times.keys()
        self._times.clear()
        self._macros = set(_DEFINE.findall(main.text))
        return self._text(main, 0)

    def _text(self, file: OwnFile, level: int, conditional: bool = False) -> str:
        self.length += len(file.text)
        if level > MOST_LEVELS or self.length > MOST_CHARACTERS:
            raise TooManyHeaders(f"{file.name}: the headers include each other without end, or are too long together")
        tokens = tokenize(file.text)
        guard = _guarded(tokens)
        once = guard is not None or any(re.match(r"#\s*pragma\s+once", t.text) for t in tokens if t.kind == "directive")
        if once and not conditional:
            self.done.add(file.key)
        out: list[str] = []
        position, depth = 0, -1 if guard is not None else 0
        for token in tokens:
            if token.kind != "directive":
                continue
            depth += bool(_IF.match(token.text)) - bool(_ENDIF.match(token.text))
            put = self._put(token, file, level, conditional or depth > 0)
            if put is not None:
                line = file.text.count("\n", 0, token.end) + 2
                out += [file.text[position : token.start], put, f'\n#line {line} "{file.name}"']
                position = token.end
        body = "".join([*out, file.text[position:]])
        return _once(body, file) if once and guard is None else body

    def _put(self, token: Token, file: OwnFile, level: int, conditional: bool) -> str | None:
        """Returns the text in place of a directive; None for one that stays."""
        match = _INCLUDE.match(token.text)
        if match is None:
            return None
        found = self.find(match[1] or match[2], match[1] is not None, file)
        if found is None:
            return None
        self.seen.add(found.key)
        if found.key in self.done or self._is_in_text(found):
            return ""
        return f'#line 1 "{found.name}"\n{self._text(found, level + 1, conditional)}'

    def _is_in_text(self, header: OwnFile) -> bool:
        """Tells whether a header without a guard is there for all files; notes that it was included."""
        self._times[header.key] += 1
        if self._times[header.key] > 1:
            self._repeated.add(header.key)
        if header.key not in self._put_before or header.key in self._repeated:
            return False
        return not self._macros & set(_WORD.findall(header.text))


def _once(body: str, file: OwnFile) -> str:
    """Guards a file with `#pragma once`, which may stand in the text twice within conditionals."""
    name = "KW_ONCE_" + "".join(c if c.isalnum() else f"_{ord(c):x}_" for c in file.key)
    body = re.sub(r"^([ \t]*)#[ \t]*pragma[ \t]+once[^\n]*", r"\1", body, count=1, flags=re.MULTILINE)
    return f'#ifndef {name}\n#define {name}\n#line 1 "{file.name}"\n{body}\n#endif\n'


def _guarded(tokens: list[Token]) -> str | None:
    """Returns the name of an include guard around all tokens, else None."""
    if len(tokens) < 3 or any(tokens[k].kind != "directive" for k in (0, 1, -1)):
        return None
    asked = re.match(r"#\s*(?:ifndef\s+(\w+)|if\s+!\s*defined\s*\(?\s*(\w+))", tokens[0].text)
    name = (asked[1] or asked[2]) if asked else None
    if name is None or not re.match(rf"#\s*define\s+{name}\b", tokens[1].text):
        return None
    depth = 0
    for k, token in enumerate(tokens):
        if token.kind == "directive":
            depth += bool(_IF.match(token.text)) - bool(_ENDIF.match(token.text))
            other = depth == 1 and re.match(r"#\s*el", token.text)
            if other or (depth == 0 and k < len(tokens) - 1):
                return None
    return name
