"""Finds the local names visible at a place in a host function: parameters and earlier local declarations.

This suffices to list the variables that a lambda captures by `[=]`. Declarations are recognised by form, without type
information; callers report names that it misses as unsupported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.backends.source_text.declarations import parameters
from kernelwright.backends.source_text.tokens import Token, matching, matching_angle

_STATEMENTS = frozenset(
    """return delete goto throw new else case default break continue do try catch sizeof public private protected
    namespace template operator asm static_assert switch if for while this co_return co_await co_yield friend""".split()
)
_QUALIFIERS = {"const", "volatile", "static", "constexpr", "register", "extern", "thread_local", "inline", "typename"}
_QUALIFIERS |= {"struct", "class", "enum", "union", "mutable", "__restrict__", "__restrict", "restrict"}
_BUILTIN = {"unsigned", "signed", "long", "short", "int", "char", "bool", "float", "double", "void", "auto"}
_INTEGRAL = _BUILTIN - {"float", "double", "void", "auto"} | {"size_t", "int64_t", "uint32_t", "int32_t", "uint64_t"}
_POINTS = {"*", "&", "const", "__restrict__", "__restrict", "restrict", "volatile"}
_AFTER_NAME = {"=", ";", ",", "(", "{", "[", ":", ")"}
_CONTROL = {"for", "if", "while", "switch"}


@dataclass(frozen=True)
class LocalName:
    """A local name. `kind`: variable, static, constant or type; of the last two, `text` is the declaration."""

    name: str
    kind: str
    text: str = ""


def visible(source: str, tokens: list[Token], parens: int, body: int, stop: int) -> dict[str, LocalName]:
    """Returns the local names at token `stop` of a function with parameters at `parens` and body at `body`."""
    found = [LocalName(p.name, "variable") for p in parameters(tokens, parens, body) if p.name]
    k, start = body + 1, True
    while k < stop:
        text = tokens[k].text
        if text == "{":
            closing = matching(tokens, k, len(tokens))
            if closing < stop:
                k = closing
            elif (opening := _lambda_parameters(tokens, k)) is not None:
                found += [LocalName(p.name, "variable") for p in parameters(tokens, opening, k) if p.name]
            start = True
        elif text in _CONTROL and tokens[k + 1].text == "(":
            k = _control(source, tokens, k, stop, found)
            start = True
        else:
            if start and tokens[k].kind == "word":
                found += _declared(source, tokens, k, stop)
            start = text in (";", "}", ":") or tokens[k].kind == "directive"
        k += 1
    names = {local.name: local for local in found}
    return {name: _settled(local, names) for name, local in names.items()}


def _settled(local: LocalName, names: dict[str, LocalName]) -> LocalName:
    """Turns a constant that depends on a variable into a variable."""
    words = re.findall(r"[A-Za-z_]\w*", local.text) if local.kind == "constant" else ()
    made_of = [names[word].kind for word in words if word in names and word != local.name]
    return LocalName(local.name, "variable") if "variable" in made_of else local


def _control(source: str, tokens: list[Token], k: int, stop: int, found: list[LocalName]) -> int:
    """Returns the last token of a statement's header, or of the whole statement if it ends before `stop`."""
    closing = matching(tokens, k + 1, len(tokens))
    end = _statement_end(tokens, closing + 1)
    if end < stop:
        return end
    found += _declared(source, tokens, k + 2, closing)
    return closing


def _statement_end(tokens: list[Token], k: int) -> int:
    """Returns the index of the last token of the statement at `k`."""
    while k < len(tokens) and tokens[k].text != ";":
        if tokens[k].text == "{":
            return matching(tokens, k, len(tokens))
        if tokens[k].text in ("(", "["):
            k = matching(tokens, k, len(tokens))
        k += 1
    return k


def _lambda_parameters(tokens: list[Token], brace: int) -> int | None:
    """Returns the `(` of the lambda whose body opens at `brace`; None if it is not a lambda."""
    k = brace - 1
    if tokens[k].text != ")":
        return None
    depth = 0
    while k > 0:
        depth += {")": 1, "(": -1}.get(tokens[k].text, 0)
        if depth == 0:
            break
        k -= 1
    return k if tokens[k - 1].text == "]" else None


def _declared(source: str, tokens: list[Token], k: int, stop: int) -> list[LocalName]:
    """Returns the names declared by the statement at `k`; empty if it is not a declaration."""
    if tokens[k].text in ("using", "typedef"):
        end = _statement_end(tokens, k)
        name = tokens[k + 1 if tokens[k].text == "using" else end - 1].text
        return [LocalName(name, "type", source[tokens[k].start : tokens[end].end])] if end < stop else []
    if tokens[k].text in _STATEMENTS:
        return []
    first, words = _type_end(tokens, k, stop)
    if first is None:
        return []
    names, end, plain = _declarators(tokens, first, stop)
    if "static" in words or "extern" in words:
        return [LocalName(name, "static") for name in names]
    integral = "const" in words and words & _INTEGRAL and all(tokens[i].text != "*" for i in range(k, first + 1))
    if names and plain and ("constexpr" in words or integral):
        return [LocalName(name, "constant", source[tokens[k].start : tokens[end].start] + ";") for name in names]
    return [LocalName(name, "variable") for name in names]


def _type_end(tokens: list[Token], k: int, stop: int) -> tuple[int | None, set[str]]:
    """Returns the first declarator after the type at `k` (None without a type), and the words of the type."""
    words: set[str] = set()
    named = False
    while k < stop:
        text = tokens[k].text
        if text in _QUALIFIERS or text in _BUILTIN:
            named |= text in _BUILTIN
        elif named or (tokens[k].kind != "word" and text != "::"):
            break
        else:
            k = _qualified_name(tokens, k, stop)
            named = True
        words.add(text)
        k += 1
    if not named or k >= stop:
        return None, words
    at = k
    while at < stop and tokens[at].text in _POINTS:
        at += 1
    fits = at + 1 < len(tokens) and tokens[at].kind == "word" and tokens[at + 1].text in _AFTER_NAME
    return (k if fits else None), words


def _qualified_name(tokens: list[Token], k: int, stop: int) -> int:
    """Returns the index of the last token of `::a::b<c>::d`."""
    while k + 1 < stop:
        following = tokens[k + 1].text
        if following == "<":
            closing = matching_angle(tokens, k + 1, stop)
            if closing >= stop:
                return k
            k = closing
        elif following == "::" or tokens[k].text == "::":
            k += 1
        else:
            return k
    return k


def _declarators(tokens: list[Token], k: int, stop: int) -> tuple[list[str], int, bool]:
    """Returns the declared names, the index of the end, and whether all have constant initialisers."""
    names: list[str] = []
    plain, expects, initialised = True, True, True
    while k < stop and tokens[k].text not in (";", ":", ")"):
        text = tokens[k].text
        if expects and tokens[k].kind == "word" and text not in _POINTS:
            plain &= initialised
            names.append(text)
            expects, initialised = False, False
        elif text == ",":
            expects = True
        elif not expects:
            initialised |= text in ("=", "{")
            plain &= _is_constant(tokens[k])
            if text in ("(", "[", "{"):
                closing = matching(tokens, k, stop)
                plain &= all(_is_constant(token) for token in tokens[k:closing])
                k = closing
        k += 1
    return names, k, plain and initialised


def _is_constant(token: Token) -> bool:
    return token.kind in ("number", "char", "punct") or (token.kind == "word" and token.text.isupper())


def used_words(tokens: list[Token], start: int, stop: int) -> Iterator[str]:
    """Yields words in [start, stop) that may name variables or types: no members, no qualified names."""
    for k in range(start, stop):
        before = tokens[k - 1].text if k else ""
        if tokens[k].kind == "word" and before not in (".", "->", "::"):
            yield tokens[k].text
