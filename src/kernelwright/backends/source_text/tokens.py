"""Tokenizes C++ for the splitter.

Strings, raw strings, character literals, comments and preprocessor directives are single tokens, so that braces and
launches inside them are never mistaken for code. A comment or raw string without an end takes the rest of the text, so
that its end is sought once. Callers compute line numbers from token offsets.
"""

from __future__ import annotations

import bisect
import re
from functools import lru_cache
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f\v]+|\\\r?\n)
    |(?P<newline>\n)
    |(?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z))
    |(?P<raw>(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?(?:\)(?P=fence)"|\Z))
    |(?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
    |(?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
    |(?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
    |(?P<word>[A-Za-z_$]\w*)
    |(?P<punct><<<|::|->|.)""",
    re.DOTALL | re.VERBOSE,
)
_LINE = re.compile(r"^[ \t]*#[ \t]*line[ \t]+(\d{1,10})\b(?:[ \t]+\"([^\"\n]*)\")?[^\n]*\n", re.MULTILINE)
_DIRECTIVE = re.compile(r"#(?:\\\r?\n|/\*.*?(?:\*/|\Z)|//[^\n]*|[^\n\\/]|\\|/)*", re.DOTALL)


class Token(NamedTuple):
    """One token. `kind`: word, punct, string, char, number or directive; blanks and comments are dropped."""

    kind: str
    text: str
    start: int
    end: int


def tokenize(source: str) -> list[Token]:
    """Returns the tokens of `source` without blanks and comments; a directive with continuation lines is one token."""
    return list(_tokens(source))


@lru_cache(maxsize=16)  # one build reads the same few texts a dozen times
def _tokens(source: str) -> tuple[Token, ...]:
    tokens: list[Token] = []
    position, line_start = 0, True
    while position < len(source):
        if line_start and source[position] == "#":
            match = _DIRECTIVE.match(source, position)
            assert match is not None  # it starts with the "#" just seen
            tokens.append(Token("directive", match.group(), position, match.end()))
            position = match.end()
            continue
        match = _TOKEN.match(source, position)
        assert match is not None  # the last alternative takes any character
        kind = str(match.lastgroup)
        if kind == "newline":
            line_start = True
        elif kind not in ("space", "comment"):
            line_start = False
            tokens.append(Token("string" if kind == "raw" else kind, match.group(), position, match.end()))
        position = match.end()
    return tuple(tokens)


def blank(text: str) -> str:
    """Returns the newlines of `text` and its last `#line`, to replace removed text without changing line numbers."""
    marks = list(_LINE.finditer(text)) if "line" in text else []
    if not marks:
        return "\n" * text.count("\n")
    return f"\n{marks[-1].group()}" + "\n" * text.count("\n", marks[-1].end())


PAIRS = {"(": ")", "[": "]", "{": "}"}
CLOSERS = {")", "]", "}"}


def matching(tokens: list[Token], index: int, stop: int) -> int:
    """Returns the bracket that closes the one at `index`, or `stop` - 1 when none does."""
    depth = 0
    for k in range(index, stop):
        text = tokens[k].text
        if tokens[k].kind == "punct":
            if text in PAIRS:
                depth += 1
            elif text in CLOSERS:
                depth -= 1
                if depth == 0:
                    return k
    return stop - 1


MOST_ARGUMENTS = 512
"""Tokens, and whole brackets, that a template's list may have. Where less-than signs are many and close nowhere, each
would be followed to the end of the text."""


def matching_angle(tokens: list[Token], index: int, stop: int) -> int:
    """Returns the `>` that closes the `<` at `index`, skipping brackets, or `stop` when none does."""
    depth, k = 0, index
    for _ in range(MOST_ARGUMENTS):
        if k >= stop:
            break
        token = tokens[k]
        if token.kind == "punct":
            if token.text in PAIRS:
                k = matching(tokens, k, stop)
            elif token.text == "<":
                depth += 1
            elif token.text == ">":
                depth -= 1
                if depth == 0:
                    return k
            elif token.text in (";", "}"):
                return stop
        k += 1
    return stop


@lru_cache(maxsize=16)
def _marks(source: str) -> tuple[tuple[int, int, str], ...]:
    """Returns the `#line` directives of a text: the offset behind each, its line and its file."""
    marks, file = [(0, 1, "")], ""
    for found in _LINE.finditer(source):
        file = found[2] if found[2] is not None else file
        marks.append((found.end(), int(found[1]), file))
    return tuple(marks)


def line_at(source: str, offset: int) -> int:
    """Returns the line of a place as compilers count it: from the last `#line` before it."""
    marks = _marks(source)
    start, first, _ = marks[bisect.bisect_right(marks, offset, key=lambda mark: mark[0]) - 1]
    return first + source.count("\n", start, offset)


def file_at(source: str, offset: int) -> str:
    """Returns the file that the last `#line` before a place names; empty in a text without any."""
    marks = _marks(source)
    return marks[bisect.bisect_right(marks, offset, key=lambda mark: mark[0]) - 1][2]
