"""Tells apart the names that only their own file sees, before the files of an extension become one text.

Two files of an extension may each define a static function, a device function, a constant or a type of the same name.
In one text that is a redefinition or another overload, so the name gets a suffix in the later file. A file's macros end
with it. What a header defines belongs to all files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelwright.backends.source_text import reachable
from kernelwright.backends.source_text.declarations import Chunk, parameters, read_chunk
from kernelwright.backends.source_text.tokens import Token, matching, tokenize

_OF_ONE_FILE = {"static", "inline", "__inline__", "__forceinline__", "constexpr", "const", "__constant__"}
_DEFINE = re.compile(r"#\s*define\s+(\w+)(?:[ \t(]+(.*))?", re.DOTALL)

Key = tuple[tuple[str, ...], str, tuple[str, ...]]
"""A definition's namespaces, name, and types of parameters. The same key twice in one text is an error."""


@dataclass(frozen=True)
class ToldApart:
    """Texts that may stand one behind the other. `doubtful`: names that may also be members of the file's types."""

    texts: tuple[str, ...]
    doubtful: tuple[str, ...]


def told_apart(texts: Sequence[str], own_texts: Sequence[str]) -> ToldApart:
    """Returns the texts of files of one language, with a suffix on names that an earlier file defines for itself.

    `own_texts` are the texts without the headers that have been put into them.
    """
    if len(texts) < 2:
        return ToldApart(tuple(texts), ())
    before: set[Key] = set()
    before_own: set[str] = set()
    out: list[str] = []
    doubtful: list[str] = []
    found = [dict(_definitions(tokenize(text))) for text in texts]
    own = [dict(_definitions(tokenize(text))) for text in own_texts]
    of_headers = {key[1] for whole, part in zip(found, own, strict=True) for key in whole.keys() - part.keys()}
    for number, text in enumerate(texts):
        tokens = tokenize(text)
        twice = {key[1] for key, is_own in found[number].items() if is_own and key in before}
        names = {key[1] for key, is_own in own[number].items() if is_own} - of_headers
        twice |= names & before_own
        before |= found[number].keys()
        before_own |= names
        out.append(_renamed(text, tokens, twice, f"_file{number}") if twice else text)
        doubtful += [b.text for a, b in zip(tokens, tokens[1:], strict=False) if _is_member(a) and b.text in twice]
    ended = _macros_ended(texts, own_texts)
    return ToldApart(tuple(map(str.__add__, out, ended)), tuple(dict.fromkeys(doubtful)))


def _macros_ended(texts: Sequence[str], own_texts: Sequence[str]) -> list[str]:
    """Returns for each file the lines that end its own macros of which later files mention the names."""
    own = [_macros(text) for text in own_texts]
    of_headers = {name for text, names in zip(texts, own, strict=True) for name in _macros(text) - names}
    ended, later = [""], reachable.words_in(own_texts[-1])
    for names, text in zip(own[-2::-1], own_texts[-2::-1], strict=True):
        ended.insert(0, "".join(f"\n#undef {name}" for name in sorted((names & later) - of_headers)))
        later |= reachable.words_in(text)
    return ended


def _macros(text: str) -> set[str]:
    return {m[1] for t in tokenize(text) if t.kind == "directive" and (m := _DEFINE.match(t.text))}


def _is_member(before: Token) -> bool:
    return before.text in (".", "->")


def _definitions(tokens: list[Token]) -> Iterator[tuple[Key, bool]]:
    """Yields each definition, and whether it belongs to its file alone."""
    macros = {m[1]: set((m[2] or "").split()) for t in tokens if t.kind == "directive" and (m := _DEFINE.match(t.text))}
    spaces: list[tuple[int, str]] = []  # the end of each open namespace, with its name
    k = 0
    while k < len(tokens):
        spaces = [(end, name) for end, name in spaces if k < end]
        if (opening := _opening(tokens, k)) is not None:
            name = tokens[opening - 1].text if tokens[opening - 1].text != "namespace" else ""
            spaces.append((matching(tokens, opening, len(tokens)), name))
            k = opening
        elif tokens[k].kind != "directive" and tokens[k].text not in (";", "}"):
            chunk = read_chunk(tokens, k, len(tokens))
            scope = tuple(name for _, name in spaces if not name.startswith('"'))
            yield from _keys(tokens, chunk, scope, macros)
            k = chunk.stop - 1
        k += 1


def _opening(tokens: list[Token], k: int) -> int | None:
    """Returns the `{` of a namespace or linkage block that starts at `k`, or None."""
    first = k + 1 if tokens[k].text == "inline" else k
    texts = [token.text for token in tokens[first : first + 8]]
    if texts[:1] == ["extern"] and texts[2:3] == ["{"]:
        return first + 2
    if texts[:1] != ["namespace"]:
        return None
    return next((first + n for n, text in enumerate(texts) if text == "{" and "=" not in texts[:n]), None)


def _keys(
    tokens: list[Token], chunk: Chunk, scope: tuple[str, ...], macros: dict[str, set[str]]
) -> Iterator[tuple[Key, bool]]:
    words = set(chunk.words).union(*(macros.get(word, set()) for word in chunk.words))
    if (chunk.words[:1] == ["template"] and not chunk.template) or "extern" in words or "friend" in words:
        return  # a specialisation belongs to its template
    own = bool(words & _OF_ONE_FILE) or bool(chunk.template) or "" in scope
    own |= "__device__" in words and "__host__" not in words
    if chunk.is_function:
        if chunk.body is not None and chunk.parens is not None and chunk.name in chunk.words:
            yield (scope, chunk.name, _signature(tokens, chunk)), own
    elif chunk.is_type:
        if any(tokens[k].text == "{" for k in range(chunk.start, chunk.stop)):
            for name in reachable.declared_names(tokens, chunk):
                if not _is_specialised(tokens, chunk, name):
                    yield (scope, name, ("type",)), True
    elif (
        own or "typedef" in words or ("using" in words and any(t.text == "=" for t in tokens[chunk.start : chunk.stop]))
    ):
        for name in reachable.declared_names(tokens, chunk):
            yield (scope, name, ("variable",)), True


def _signature(tokens: list[Token], chunk: Chunk) -> tuple[str, ...]:
    assert chunk.parens is not None
    closing = matching(tokens, chunk.parens, chunk.stop)
    names = {parameter.name for parameter in parameters(tokens, chunk.parens, chunk.stop)}
    places = {parameter.name: f"#{k}" for k, parameter in enumerate(chunk.template)}
    words = (tokens[k].text for k in range(chunk.parens + 1, closing))
    types = [places.get(word, word) for word in words if word not in names]
    return (*types, *(parameter.kind for parameter in chunk.template))


def _is_specialised(tokens: list[Token], chunk: Chunk, name: str) -> bool:
    pairs = zip(tokens[chunk.start : chunk.stop], tokens[chunk.start + 1 : chunk.stop], strict=False)
    return any(a.text == name and b.text == "<" for a, b in pairs)


def _renamed(text: str, tokens: list[Token], names: set[str], suffix: str) -> str:
    """Gives names a suffix, but for members and for names of other namespaces."""
    spaces = {b.text for a, b in zip(tokens, tokens[1:], strict=False) if a.text == "namespace"}
    pattern = re.compile(r"(?<![\w.])(?:" + "|".join(map(re.escape, sorted(names))) + r")\b(?!\")")
    out, position = [], 0
    for k, token in enumerate(tokens):
        new = token.text
        if token.kind == "directive" and _DEFINE.match(new):
            new = pattern.sub(lambda m: m[0] + suffix, new)
        elif new in names and not (k and _is_member(tokens[k - 1])):
            other = k > 1 and tokens[k - 1].text == "::" and tokens[k - 2].kind == "word"
            new += "" if other and tokens[k - 2].text not in spaces else suffix
        if new != token.text:
            out += [text[position : token.start], new]
            position = token.end
    return "".join([*out, text[position:]])
