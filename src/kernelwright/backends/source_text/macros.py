"""Expands the candidate's own macros that define whole kernels or their parameters, before the text is split.

`#define MAP(name, e) __global__ void name(...) { ... }` followed by `MAP(relu, max(x, 0.f))` is common; the splitter
works on declarations and must see them. Only macros whose body has `__global__` and braces are expanded, and macros
within a kernel's parameter list; the compilers expand all others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelwright.backends.source_text.declarations import read_chunk
from kernelwright.backends.source_text.tokens import Token, blank, matching, tokenize

_DEFINE = re.compile(r"#\s*define\s+(\w+)(?:\(([^)]*)\))?(.*)", re.DOTALL)
_CHANGED = re.compile(r"#\s*(?:define|undef)\s+(\w+)")


@dataclass(frozen=True)
class _Macro:
    parameters: tuple[str, ...] | None
    """None for an object-like macro."""
    body: str


def expand_kernel_macros(source: str) -> str:
    """Expands uses of kernel-defining macros in place, each by the definition before it; keeps line numbers."""
    if "__global__" not in source or "define" not in source:
        return source
    tokens = tokenize(source)
    if not any(map(_kernel_macro, tokens)):
        return source
    macros: dict[str, _Macro] = {}
    out: list[str] = []
    position, k = 0, 0
    while k < len(tokens):
        token = tokens[k]
        macro = macros.get(token.text) if token.kind == "word" else None
        if token.kind == "directive" and (changed := _CHANGED.match(token.text)):
            macros.pop(changed[1], None)
        if (defined := _kernel_macro(token)) is not None:
            macros[defined[0]] = defined[1]
            out += [source[position : token.start], blank(token.text)]
            position = token.end
        elif macro and k + 1 < len(tokens) and tokens[k + 1].text == "(":
            closing = matching(tokens, k + 1, len(tokens))
            used = source[token.start : tokens[closing].end]
            out += [source[position : token.start], _expand(source, tokens, k + 1, closing, macro), blank(used)]
            position, k = tokens[closing].end, closing
        k += 1
    out.append(source[position:])
    return "".join(out)


def _defined(token: Token) -> tuple[str, _Macro] | None:
    """Returns the name and macro that a directive defines, or None."""
    match = _DEFINE.match(re.sub(r"\\\r?\n", " ", token.text)) if token.kind == "directive" else None
    if match is None:
        return None
    name, listed, body = match.groups()
    parameters = None if listed is None else tuple(p.strip() for p in listed.split(",") if p.strip())
    return name, _Macro(parameters, body.strip())


def _kernel_macro(token: Token) -> tuple[str, _Macro] | None:
    """Returns the name and macro that a directive defines if its body holds kernels, else None."""
    found = _defined(token) if "__global__" in token.text else None
    return found if found and found[1].parameters is not None and "{" in found[1].body else None


def _expand(source: str, tokens: list[Token], opening: int, closing: int, macro: _Macro) -> str:
    arguments, parameters = _arguments(source, tokens, opening, closing), macro.parameters or ()
    if len(arguments) > len(parameters) and parameters:
        arguments = [*arguments[: len(parameters) - 1], ", ".join(arguments[len(parameters) - 1 :])]
    values = dict(zip(parameters, arguments, strict=False))
    if "..." in values:
        values["__VA_ARGS__"] = values["..."]
    text = re.sub(r"(?<!#)#\s*(\w+)", lambda m: _quoted(values.get(m.group(1)), m.group(0)), macro.body)
    text = re.sub(r"[A-Za-z_]\w*", lambda m: values.get(m.group(), m.group()), text)
    return re.sub(r"\s*##\s*", "", text)


def _quoted(value: str | None, original: str) -> str:
    if value is None:
        return original
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _arguments(source: str, tokens: list[Token], opening: int, closing: int) -> list[str]:
    out, first, k = [], opening + 1, opening + 1
    while k <= closing:
        if k == closing or tokens[k].text == ",":
            if first < k:
                text = source[tokens[first].start : tokens[k - 1].end]
                out.append(re.sub(r"\s+", " ", text))
            first = k + 1
        elif tokens[k].text in ("(", "[", "{"):
            k = matching(tokens, k, closing + 1)
        k += 1
    return out


def expand_parameter_macros(source: str) -> str:
    """Expands macros within kernels' parameter lists (`__global__ void k(PARAMETERS)`); keeps line numbers.

    A macro with several definitions is left alone, since the active one is unknown.
    """
    if "__global__" not in source or "define" not in source:
        return source
    tokens = tokenize(source)
    macros = _defined_once(tokens)
    out: list[str] = []
    position, end, declared = 0, -1, 0
    for k, token in enumerate(tokens):
        if token.text == "__global__" and k >= declared:
            chunk = read_chunk(tokens, k, len(tokens))
            declared = chunk.stop
            end = end if chunk.parens is None else max(end, matching(tokens, chunk.parens, len(tokens)))
        macro = macros.get(token.text) if token.kind == "word" and k < end and token.start >= position else None
        called = k + 1 < len(tokens) and tokens[k + 1].text == "("
        if macro is None or (macro.parameters is not None and not called):
            continue
        last = k if macro.parameters is None else matching(tokens, k + 1, len(tokens))
        text = macro.body if macro.parameters is None else _expand(source, tokens, k + 1, last, macro)
        out += [source[position : token.start], text, blank(source[token.start : tokens[last].end])]
        position = tokens[last].end
    return "".join([*out, source[position:]])


def _defined_once(tokens: list[Token]) -> dict[str, _Macro]:
    found = list(filter(None, map(_defined, tokens)))
    names = [name for name, _ in found]
    return {name: macro for name, macro in found if names.count(name) == 1}


_IF = re.compile(r"#\s*if\s+(\d+|false|true)\s*(?://.*|/\*.*\*/)?\s*", re.DOTALL)


def without_dead_code(source: str) -> str:
    """Removes code under `#if 0` and in the `#else` of `#if 1`, which may have unbalanced brackets."""
    if not re.search(r"#\s*if\s+(?:\d|false|true)", source):
        return source
    directives = [token for token in tokenize(source) if token.kind == "directive"]
    dead: list[tuple[int, int]] = []
    for k, marks in _branches(directives).items():
        known = _IF.fullmatch(directives[k].text)
        if known is not None and (branch := _dead(marks, dead_first=known[1] in ("0", "false"))) is not None:
            dead.append((branch[0].end, branch[1].start))
    out: list[str] = []
    position = 0
    for first, last in sorted(dead):
        if first >= position:
            out += [source[position:first], blank(source[first:last])]
            position = last
    return "".join([*out, source[position:]])


def _branches(directives: list[Token]) -> dict[int, list[Token]]:
    """Returns for each `#if`, by its number, the directives of its own: itself, its branches and its end."""
    marks: dict[int, list[Token]] = {}
    open_: list[int] = []
    for k, token in enumerate(directives):
        word = token.text.lstrip("# \t")
        if word.startswith("if"):
            marks[k] = [token]
            open_.append(k)
        elif word.startswith(("else", "elif", "endif")) and open_:
            marks[open_[-1]].append(token)
            if word.startswith("endif"):
                open_.pop()
    return marks


def _dead(marks: list[Token], dead_first: bool) -> tuple[Token, Token] | None:
    """Returns the directives around a dead branch, if there is one."""
    if dead_first:
        return (marks[0], marks[1]) if len(marks) > 1 else None
    return (marks[1], marks[-1]) if len(marks) > 2 else None
