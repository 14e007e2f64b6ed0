"""Keeps from a program's device text the declarations that device code does not name: types, aliases and constants.

nvcc shows all of a file to both compilers and compiles for the device what device code uses. NVRTC has no host
headers, so that a `struct timeval` in a class of the host's would be an error. A declaration for both sides therefore
goes to the device only if a kernel, a device function or an instance of a kernel names it, or a declaration does that
is itself named so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelwright.backends.source_text.declarations import Chunk
from kernelwright.backends.source_text.tokens import Token, blank, matching

_KEYWORDS = frozenset(
    "alignas class const constexpr enum extern final inline namespace public private protected signed static struct"
    " template typedef typename union unsigned using virtual volatile".split()
)
_TYPE_HEADS = {"struct", "class", "union", "enum"}
_AFTER_DECLARATOR = {"=", ",", "[", ";", "{", "("}
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Piece:
    """A declaration that device code may lack: the names that it declares, and the words that it uses."""

    names: frozenset[str]
    words: frozenset[str]
    stays: bool = False
    """A macro's definition: it stays in the text, but its words count only where the macro is used."""


def words_in(text: str) -> frozenset[str]:
    """Returns all identifiers of a text."""
    return frozenset(_WORD.findall(text))


def kept(texts: list[str], pieces: Mapping[int, Piece], more: Iterable[str]) -> str:
    """Joins `texts` without the pieces that nothing reaches; `pieces` are by index, `more` are further words in use."""
    waiting = set(more)
    for k, text in enumerate(texts):
        if k not in pieces:
            waiting |= words_in(text)
    naming: dict[str, list[int]] = {}
    for k, piece in pieces.items():
        for name in piece.names:
            naming.setdefault(name, []).append(k)
    used: set[int] = set()
    seen: set[str] = set()
    while waiting:
        word = waiting.pop()
        seen.add(word)
        for k in naming.get(word, ()):
            if k not in used:
                used.add(k)
                waiting |= pieces[k].words - seen
    gone = {k for k, piece in pieces.items() if not piece.stays} - used
    return "".join(blank(text) if k in gone else text for k, text in enumerate(texts))


def declared_names(tokens: list[Token], chunk: Chunk) -> frozenset[str]:
    """Returns the names that a declaration introduces: a type's, its enumerators', variables', aliases'."""
    if chunk.words[:1] == ["typedef"]:
        return _typedef_names(tokens, chunk)
    heads = [word for word in chunk.words if word not in ("template", "inline")]
    if heads[:1] == ["using"] or heads[:1] == ["concept"]:
        last = heads[1:2] if _has(tokens, chunk, "=") else heads[-1:]
        return frozenset(last)
    if chunk.is_type:
        return _type_names(tokens, chunk)
    if chunk.is_function:
        return frozenset([chunk.name])
    return _variable_names(tokens, chunk) | {chunk.name}


def _has(tokens: list[Token], chunk: Chunk, text: str) -> bool:
    return any(tokens[k].text == text for k in range(chunk.start, chunk.stop))


def _body(tokens: list[Token], chunk: Chunk) -> tuple[int, int]:
    """Returns the indices of a type's braces; the end of the chunk twice where it has none."""
    opening = next((k for k in range(chunk.start, chunk.stop) if tokens[k].text == "{"), chunk.stop)
    return opening, matching(tokens, opening, chunk.stop) if opening < chunk.stop else chunk.stop


def _type_names(tokens: list[Token], chunk: Chunk) -> frozenset[str]:
    opening, closing = _body(tokens, chunk)
    names: set[str] = set()
    head = next(
        (k for k in range(chunk.start, chunk.stop) if tokens[k].text in _TYPE_HEADS and not _parameter(tokens, k)), None
    )
    is_enum = False
    while head is not None and head < min(opening, chunk.stop):
        token = tokens[head]
        is_enum |= token.text == "enum"
        if token.text == "(" or token.text == "[":
            head = matching(tokens, head, chunk.stop)
        elif token.kind == "word" and token.text not in _KEYWORDS:
            if head + 1 == chunk.stop or tokens[head + 1].text not in ("(", "::"):
                names.add(token.text)
                break
        head += 1
    if is_enum:
        names |= {tokens[k].text for k in range(opening + 1, closing) if tokens[k].kind == "word"}
    names |= {tokens[k].text for k in range(closing + 1, chunk.stop) if tokens[k].kind == "word"}
    return frozenset(names)


def _parameter(tokens: list[Token], k: int) -> bool:
    """Tells whether `class` at `k` introduces a template parameter."""
    return k > 0 and tokens[k - 1].text in ("<", ",")


def _typedef_names(tokens: list[Token], chunk: Chunk) -> frozenset[str]:
    opening, closing = _body(tokens, chunk)
    names: set[str] = set()
    if opening < chunk.stop:
        names |= {tokens[k].text for k in range(chunk.start, opening) if tokens[k].kind == "word"}
        if "enum" in names:
            names |= {tokens[k].text for k in range(opening, closing) if tokens[k].kind == "word"}
        names |= {tokens[k].text for k in range(closing, chunk.stop) if tokens[k].kind == "word"}
    else:
        for k in range(chunk.start + 1, chunk.stop - 1):
            before, after = tokens[k - 1].text, tokens[k + 1].text
            if tokens[k].kind == "word" and (after in (";", ",", "[") or (before in ("*", "&") and after == ")")):
                names.add(tokens[k].text)
    return frozenset(names - _KEYWORDS)


def _variable_names(tokens: list[Token], chunk: Chunk) -> frozenset[str]:
    names: set[str] = set()
    k = chunk.start
    while k < chunk.stop - 1:
        token = tokens[k]
        if token.text in ("(", "[", "{"):
            k = matching(tokens, k, chunk.stop)
        elif token.kind == "word" and tokens[k + 1].text in _AFTER_DECLARATOR:
            names.add(token.text)
        k += 1
    return frozenset(names - _KEYWORDS)
