"""Parses one top-level declaration of CUDA C++: its extent, declared name and parameters."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.backends.source_text.launches import CALL_ANNOTATIONS
from kernelwright.backends.source_text.tokens import Token, matching, matching_angle

_TYPE_WORDS = {"struct", "class", "union", "enum"}
_PAREN_ATTRIBUTES = CALL_ANNOTATIONS | {"__align__", "__builtin_align__", "alignas", "__attribute__", "decltype"}
_PAREN_ATTRIBUTES |= {"noexcept", "__declspec", "explicit", "requires"}
_BUILTIN = {"void", "bool", "char", "short", "int", "long", "float", "double", "unsigned", "signed", "const", "auto"}
_BUILTIN |= {"volatile", "__restrict__", "restrict", "__restrict", "struct", "size_t", "int64_t", "scalar_t"}


@dataclass
class TemplateParameter:
    """A template parameter. `kind`: type, value, template (of types only) or other (a template with non-type
    parameters). `name` may be empty."""

    kind: str
    name: str
    pack: bool = False
    default: bool = False


@dataclass
class FunctionParameter:
    """A function parameter; `last` is the index of the last token of its declarator (before a default value)."""

    name: str
    last: int
    pack: bool = False
    reference: bool = False
    """A kernel gets the address of what the reference names."""


@dataclass
class Chunk:
    """One declaration, tokens [start, stop)."""

    start: int
    stop: int
    words: list[str] = field(default_factory=list)
    """Words outside brackets and before the body."""
    body: int | None = None
    """Index of the `{` of a function body."""
    parens: int | None = None
    """Index of the `(` of the parameter list."""
    name: str = ""
    is_type: bool = False
    template: list[TemplateParameter] = field(default_factory=list)

    @property
    def is_function(self) -> bool:
        return self.parens is not None and not self.is_type


def read_chunk(tokens: list[Token], start: int, stop: int) -> Chunk:
    """Reads the declaration at token `start`, up to its `;` or the end of its function body."""
    chunk = Chunk(start, stop)
    k, assigned = start, False
    while k < stop:
        token = tokens[k]
        previous = tokens[k - 1].text if k > start else ""
        if token.kind == "directive":
            pass
        elif token.text == ";":
            chunk.stop = k + 1
            break
        elif token.text == "(":
            closing = matching(tokens, k, stop)
            if chunk.parens is None and not assigned and previous not in _PAREN_ATTRIBUTES:
                if not _is_annotation(tokens, closing, stop):
                    _found_parens(tokens, chunk, k)
            k = closing
        elif token.text == "[":
            k = matching(tokens, k, stop)
        elif token.text == "{":
            closing = matching(tokens, k, stop)
            if chunk.parens is not None and not chunk.is_type and not assigned:
                chunk.body, chunk.stop = k, closing + 1
                break
            k = closing
        elif token.text == "<" and not assigned and previous != "operator":
            k = _angle(tokens, chunk, k, stop, previous)
        elif token.text == "=" and previous != "operator":
            assigned = True
            _found_variable(tokens, chunk, k)
        elif token.kind == "word":
            _word(chunk, token.text, assigned)
        k += 1
    if not chunk.name:
        _found_variable(tokens, chunk, chunk.stop - 1)
    return chunk


_AFTER_PARAMETERS = {"const", "volatile", "noexcept", "override", "final", "requires", "try", "__attribute__", "asm"}


def _is_annotation(tokens: list[Token], closing: int, stop: int) -> bool:
    """Tells whether a name and its `(...)` up to `closing` are a macro before a declaration, such as
    `LAUNCH_BOUNDS(256) void f(...)`: a word of the declaration follows."""
    following = tokens[closing + 1] if closing + 1 < stop else None
    return following is not None and following.kind == "word" and following.text not in _AFTER_PARAMETERS


def _word(chunk: Chunk, text: str, assigned: bool) -> None:
    if assigned:
        return
    if text in _TYPE_WORDS and chunk.parens is None and "typedef" not in chunk.words and "using" not in chunk.words:
        chunk.is_type = True
    chunk.words.append(text)


def _angle(tokens: list[Token], chunk: Chunk, k: int, stop: int, previous: str) -> int:
    closing = matching_angle(tokens, k, stop)
    if closing >= stop:
        return k
    if previous == "template" and chunk.parens is None:
        chunk.template += template_parameters(tokens, k, closing)
    return closing


def _found_parens(tokens: list[Token], chunk: Chunk, k: int) -> None:
    """Takes the first top-level `(` as the parameter list if a name precedes it."""
    if chunk.is_type and not any(word not in _TYPE_WORDS for word in chunk.words):
        return
    before = tokens[k - 1] if k > chunk.start else None
    if before is None:
        return
    if before.text == ">":
        depth, at = 0, k - 1
        while at > chunk.start:
            depth += {">": 1, "<": -1}.get(tokens[at].text, 0)
            if depth == 0:
                break
            at -= 1
        before = tokens[at - 1]
    if before.kind != "word" and "operator" not in chunk.words:
        return
    chunk.parens, chunk.name = k, before.text
    chunk.is_type = False


def _found_variable(tokens: list[Token], chunk: Chunk, k: int) -> None:
    """Sets the declared name: the last word before `=`, `[` or `;` (for an alias, the word after `using`)."""
    if chunk.name:
        return
    while k > chunk.start and (tokens[k].kind != "word" or tokens[k - 1].text == "["):
        k -= 1
    chunk.name = tokens[k].text


def _pieces(tokens: list[Token], start: int, stop: int) -> list[tuple[int, int]]:
    """Splits tokens [start, stop) at commas outside brackets and angle brackets."""
    out, first, k = [], start, start
    while k < stop:
        text = tokens[k].text
        if text in ("(", "[", "{"):
            k = matching(tokens, k, stop)
        elif text == "<":
            closing = matching_angle(tokens, k, stop)
            k = closing if closing < stop else k
        elif text == ",":
            out.append((first, k))
            first = k + 1
        k += 1
    if first < stop:
        out.append((first, stop))
    return out


def template_parameters(tokens: list[Token], opening: int, closing: int) -> list[TemplateParameter]:
    """Returns the parameters between `template <` and `>`."""
    out = []
    for start, stop in _pieces(tokens, opening + 1, closing):
        texts = [t.text for t in tokens[start:stop]]
        end = texts.index("=") if "=" in texts else len(texts)
        default, texts = end < len(texts), texts[:end]
        words = [t for t in texts if t[0].isalpha() or t[0] == "_"]
        pack = texts.count(".") >= 3
        if texts[:1] == ["template"]:
            inner = template_parameters(tokens, start + 1, matching_angle(tokens, start + 1, stop))
            kind = "template" if all(one.kind == "type" for one in inner) else "other"
            name = words[-1] if words and words[-1] not in ("class", "typename") else ""
            out.append(TemplateParameter(kind, name, pack, default))
        elif texts[:1] in (["typename"], ["class"]) and "::" not in texts:
            out.append(TemplateParameter("type", words[-1] if len(words) > 1 else "", pack, default))
        else:
            out.append(TemplateParameter("value", _value_name(texts, words), pack, default))
    return out


def _value_name(texts: list[str], words: list[str]) -> str:
    """Returns the name of a non-type template parameter, empty if it has none: `int N`, `float (*F)(float)`."""
    for k in range(len(texts) - 3):
        if texts[k] == "(" and texts[k + 1] in ("*", "&") and texts[k + 3] == ")":
            return texts[k + 2]
    named = len(words) > 1 and words[-1] not in _BUILTIN and texts[-1] == words[-1] and texts[-2] != "::"
    return words[-1] if named else ""


def template_arguments(tokens: list[Token], chunk: Chunk) -> list[str]:
    """Returns the template arguments of a specialisation `k<float, 2>(...)`."""
    last = (chunk.parens or chunk.start) - 1
    for k in range(chunk.start + 1, last):
        if tokens[k].text == "<" and tokens[k - 1].text == chunk.name and matching_angle(tokens, k, last + 1) == last:
            return [" ".join(t.text for t in tokens[a:b]) for a, b in _pieces(tokens, k + 1, last)]
    return []


def scopes_named(tokens: list[Token], chunk: Chunk) -> list[str]:
    """Returns the scopes in `outer::inner::f(...)`, for a function declared outside them."""
    k = next((k for k in range(chunk.start, chunk.parens or chunk.start) if tokens[k].text == chunk.name), chunk.start)
    found: list[str] = []
    while k >= chunk.start + 2 and tokens[k - 1].text == "::" and tokens[k - 2].kind == "word":
        k -= 2
        found.insert(0, tokens[k].text)
    return found


def parameters(tokens: list[Token], opening: int, stop: int) -> list[FunctionParameter]:
    """Returns the function parameters of the list at `opening`; an unnamed one has an empty name."""
    closing = matching(tokens, opening, stop)
    out = []
    for start, end in _pieces(tokens, opening + 1, closing):
        finish = next((k for k in range(start, end) if tokens[k].text == "="), end)
        if [t.text for t in tokens[start:finish]] == ["void"]:
            continue
        parameter = _parameter(tokens, start, finish)
        parameter.pack = [t.text for t in tokens[start:finish]].count(".") >= 3
        out.append(parameter)
    return out


def _parameter(tokens: list[Token], start: int, finish: int) -> FunctionParameter:
    for k in range(start, finish - 2):  # `float (*f)(float)`, `float (&tile)[4]`
        if tokens[k].text == "(" and tokens[k + 1].text in ("*", "&") and tokens[k + 2].kind == "word":
            return FunctionParameter(tokens[k + 2].text, finish - 1, reference=tokens[k + 1].text == "&")
    last = finish - 1
    while last > start and tokens[last].text == "]":
        while last > start and tokens[last].text != "[":
            last -= 1
        last -= 1
    token = tokens[last]
    is_name = token.kind == "word" and token.text not in _BUILTIN and last > start and tokens[last - 1].text != "::"
    only_qualifiers = all(t.text in ("const", "volatile", "struct") for t in tokens[start:last])
    named = is_name and not only_qualifiers
    before = tokens[last - 1] if named and last > start else token
    return FunctionParameter(token.text if named else "", last, reference=before.text == "&")
