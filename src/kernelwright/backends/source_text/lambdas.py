"""Rewrites lambdas in host code that are passed to kernels (`nvcc --extended-lambda`).

`k<<<g, b>>>(n, [=] __device__ (int i) { x[i] *= a; })`: the host gets an object with copies of the captures, whose
type identifies the lambda and the captured types. The device gets a class template of the same name and layout with
the lambda's body. The instances are then read from the host half, as for all kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelwright.backends.source_text import local_names
from kernelwright.backends.source_text.declarations import Chunk, TemplateParameter
from kernelwright.backends.source_text.launches import RefusedSource, UnsupportedSource
from kernelwright.backends.source_text.local_names import LocalName
from kernelwright.backends.source_text.tokens import Token, line_at, matching, tokenize

HEADER = "kernelwright_lambda.h"
_INIT = re.compile(r"(\w+)\s*(=|(?=[({]))\s*(.+)", re.DOTALL)


@dataclass(frozen=True)
class DeviceLambda:
    """One lambda: tokens [first, last], `parens` after its annotations, captured names with their initialisers."""

    number: int
    first: int
    last: int
    parens: int
    captures: tuple[tuple[str, str], ...]
    both: bool
    """`__host__ __device__`: the host may also call it."""
    template: tuple[TemplateParameter, ...]
    locals: tuple[str, ...]
    """Local declarations of constants and types that the body needs."""
    scopes: tuple[str, ...]
    line: int
    last_line: int


def find(source: str, tokens: list[Token], chunk: Chunk, scopes: list[str], before: int) -> list[DeviceLambda]:
    """Returns the device lambdas in a host function's body; `before` is the number found in earlier functions.

    Raises `RefusedSource` for lambdas that nvcc rejects, `UnsupportedSource` for unsupported ones.
    """
    if chunk.body is None or chunk.parens is None:
        return []
    made: list[DeviceLambda] = []
    k = chunk.body
    while k < chunk.stop:
        parts = _parts(tokens, k, chunk.stop)
        if parts is not None:
            made.append(_read(source, tokens, chunk, scopes, parts, before + len(made)))
            k = made[-1].last
        k += 1
    return made


@dataclass(frozen=True)
class _Parts:
    """Token indices of a lambda: `[`, `]`, the first token after the annotations, `{` and `}`."""

    opening: int
    closing: int
    parens: int
    body: int
    last: int
    annotations: frozenset[str]


def first(tokens: list[Token], start: int, stop: int) -> int | None:
    """Returns the index of the first annotated lambda's first token."""
    return next((k for k in range(start, stop) if _parts(tokens, k, stop) is not None), None)


def needs_flag(source: str) -> str | None:
    """Returns nvcc's error for annotated lambdas without `--extended-lambda`; None if the text has none."""
    if not re.search(r"\]\s*__(?:device|host)__", source):
        return None
    tokens = tokenize(source)
    k = first(tokens, 0, len(tokens))
    if k is None:
        return None
    message = "__host__ or __device__ annotation on lambda requires --extended-lambda nvcc flag"
    return f"cuda.cu({_line(source, tokens[k])}): error: {message}"


_ANNOTATED = re.compile(r"\]((?:\s*__(?:device|host)__)+)(?=\s*(?:[({]|mutable\b|->|noexcept\b))")


def without_annotations(device: str) -> str:
    """Removes annotations from lambdas in device text: NVRTC rejects them and compiles all code for the device."""
    return _ANNOTATED.sub(lambda m: "]" + re.sub(r"\S", "", m.group(1)), device)


def unknown_name(found: Sequence[DeviceLambda], log: str, host: str, functions: frozenset[str]) -> str | None:
    """Returns the undefined name of NVRTC's first error if it is a capture in a lambda's body that was not recognised.

    The name occurs in host code. If it is a host function's, the error is the author's, and None is returned.
    """
    error = re.search(r"^cuda\.cu\((\d+)\): error: (.*)$", log, re.MULTILINE)
    name = re.match(r'identifier "(\w+)" is undefined', error.group(2)) if error else None
    if error is None or name is None or name.group(1) in functions:
        return None
    inside = any(one.line <= int(error.group(1)) <= one.last_line for one in found)
    known = re.search(rf"\b{name.group(1)}\b", host)
    return f"{name.group(1)} in a __device__ lambda (line {error.group(1)})" if inside and known else None


def _parts(tokens: list[Token], k: int, stop: int) -> _Parts | None:
    """Returns the device lambda that opens at `k`, or None."""
    if tokens[k].text != "[" or tokens[k].kind != "punct" or k + 1 == len(tokens):
        return None
    if tokens[k + 1].text == "[":  # e.g. [[nodiscard]]
        return None
    closing = matching(tokens, k, stop)
    at = closing + 1
    annotations = set()
    while at < stop and tokens[at].text in ("__device__", "__host__"):
        annotations.add(tokens[at].text)
        at += 1
    if "__device__" not in annotations:
        return None
    body = at
    while body < stop and tokens[body].text != "{":
        body = (matching(tokens, body, stop) if tokens[body].text == "(" else body) + 1
    if body >= stop:
        return None
    return _Parts(k, closing, at, body, matching(tokens, body, stop), frozenset(annotations))


def _read(
    source: str, tokens: list[Token], chunk: Chunk, scopes: list[str], parts: _Parts, number: int
) -> DeviceLambda:
    line = _line(source, tokens[parts.opening])
    if any(token.text == "<<<" for token in tokens[parts.body : parts.last]):
        raise UnsupportedSource("a launch in a __device__ lambda", line)
    both = "__host__" in parts.annotations
    if both and any(token.text == "auto" for token in tokens[parts.parens : parts.body]):
        raise RefusedSource("a __host__ __device__ lambda that kernels are called with cannot be generic", line)
    assert chunk.parens is not None and chunk.body is not None
    known = local_names.visible(source, tokens, chunk.parens, chunk.body, parts.opening)
    own = {p.name for p in local_names.parameters(tokens, parts.parens, parts.body) if p.name}
    words = [w for w in dict.fromkeys(local_names.used_words(tokens, parts.parens, parts.last)) if w not in own]
    captures = _captures(source, tokens, parts, known, words, line)
    taken = {name for name, _ in captures}
    template = tuple(p for p in chunk.template if p.name in words or _mentioned(p.name, known, words))
    if any(p.pack or p.kind == "template" for p in template):
        raise UnsupportedSource("a lambda that uses a template's parameter pack", line)
    needed = _needed([known[w] for w in words if w in known and w not in taken], known)
    return DeviceLambda(
        number, parts.opening, parts.last, parts.parens, captures, both, template, needed, tuple(scopes), line,
        _line(source, tokens[parts.last]),
    )  # fmt: skip


def _mentioned(name: str, known: dict[str, LocalName], words: list[str]) -> bool:
    """Tells whether a local type or constant that the lambda uses mentions a template parameter."""
    return any(re.search(rf"\b{name}\b", known[w].text) for w in words if w in known) if name else False


def _needed(used: list[LocalName], known: dict[str, LocalName]) -> tuple[str, ...]:
    """Returns declarations of constants and types in dependency order."""
    out: dict[str, None] = {}

    def add(local: LocalName, depth: int) -> None:
        for word in re.findall(r"[A-Za-z_]\w*", local.text) if depth < 8 else ():
            if word in known and word != local.name and known[word].text:
                add(known[word], depth + 1)
        if local.text:
            out.setdefault(local.text)

    for local in used:
        add(local, 0)
    return tuple(out)


def _captures(
    source: str, tokens: list[Token], parts: _Parts, known: dict[str, LocalName], words: list[str], line: int
) -> tuple[tuple[str, str], ...]:
    """Returns the captures as (name in the body, host expression)."""
    found: dict[str, str] = {}
    for item in _items(source, tokens, parts.opening, parts.closing):
        if item == "=":
            found |= {w: w for w in words if w in known and known[w].kind == "variable"}
        elif item.startswith("&"):
            raise RefusedSource("a __device__ lambda cannot capture variables by reference", line)
        elif "this" in re.findall(r"\w+", item) or "..." in item:
            raise UnsupportedSource(f"a __device__ lambda that captures {item}", line)
        elif init := _INIT.fullmatch(item):
            found[init.group(1)] = init.group(3)
        else:
            found[item] = item
    return tuple(found.items())


def _items(source: str, tokens: list[Token], opening: int, closing: int) -> Iterator[str]:
    """Yields the items of a capture list."""
    start = k = opening + 1
    while k <= closing:
        if tokens[k].text == "," or k == closing:
            if k > start:
                yield source[tokens[start].start : tokens[k - 1].end]
            start = k + 1
        elif tokens[k].text in ("(", "{", "["):
            k = matching(tokens, k, closing)
        k += 1


def _with(one: DeviceLambda) -> str:
    """Returns the enclosing function's template arguments as an argument of the lambda's type."""
    names = [p.name if p.kind == "type" else f"::kw_value<{p.name}>" for p in one.template]
    return f"::kw_with<{', '.join(names)}>"


def host_texts(one: DeviceLambda) -> dict[int, str]:
    """Returns the host text for each token of the lambda: an object of its captures, which for `both` also holds the
    host's own lambda. It is parenthesised, since it may be a macro's argument."""
    values = ", ".join(value for _, value in one.captures)
    make = f"(::kw_make_{'both' if one.both else 'device'}<{one.line}, {one.number}, {_with(one)}>"
    if one.both:
        return {one.first: f"{make}([", one.last: "}" + (", " if values else "") + values + "))"}
    return {one.first: f"{make}({values}))", **dict.fromkeys(range(one.first + 1, one.last + 1), "")}


def device_text(one: DeviceLambda, source: str, tokens: list[Token]) -> str:
    """Returns the class template that represents the lambda in device code."""
    types = [f"KwA{k}" for k in range(len(one.captures))]
    head = [f"class {p.name}" if p.kind == "type" else f"auto {p.name}" for p in one.template]
    head += ["class KwR", "class... KwS"] if one.both else []
    head += [f"class {t}" for t in types]
    which = [str(one.line), str(one.number), _with(one), *(["KwR(KwS...)"] if one.both else []), *types]
    body = source[tokens[one.parens].start : tokens[one.last].end]
    constant = "" if re.match(r"(?:\([^{]*\))?\s*mutable\b", body) else "const "
    fields, uses = "kw_captured", ""
    for name, _ in one.captures:
        uses += f"{constant}auto& {name} = {fields}.value; "
        fields += ".rest"
    space = f"using namespace ::{'::'.join(one.scopes)}; " if one.scopes else ""
    return (
        f"template <{', '.join(head)}> struct {'kw_both' if one.both else 'kw_device'}<{', '.join(which)}> {{ "
        f"kw_fields<{', '.join(types)}> kw_captured; {'const void* kw_host; ' if one.both else ''}"
        f"template <class... KwP> __device__ decltype(auto) operator()(KwP&&... kw_p) {constant}{{ "
        f'{space}{" ".join(one.locals)} {uses}return [&]\n#line {_line(source, tokens[one.parens])} "cuda.cu"\n{body}\n'
        f"(static_cast<KwP&&>(kw_p)...); }} }};\n"
    )


def _line(source: str, token: Token) -> int:
    return line_at(source, token.start)
