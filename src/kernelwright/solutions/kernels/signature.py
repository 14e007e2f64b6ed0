"""Reads the signatures of the kernels in a CUDA text: names, namespaces, template parameters and argument types.

Works on tokens and compiles nothing. An argument that a launch from Python cannot pass (a struct, a reference, a half
by value) raises a `CandidateError` that names kernel and parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernelwright.backends.source_text.tokens import Token, matching, matching_angle, tokenize
from kernelwright.errors import CandidateError

Kind = Literal["tensor", "integer", "real", "boolean"]

_INTEGERS = frozenset(
    """char short int long unsigned signed size_t ssize_t ptrdiff_t intptr_t uintptr_t uint ushort ulong uchar
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t""".split()
)
_REALS = frozenset(("float", "double"))
_QUALIFIERS = frozenset(("const", "volatile", "std", "::", "__grid_constant__", "typename"))
_DROPPED = frozenset(("__restrict__", "__restrict", "restrict", "__grid_constant__"))
_ATTRIBUTES = frozenset(
    ("__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__", "__attribute__", "alignas")
)
_OPENING = frozenset("([{")


@dataclass(frozen=True)
class Argument:
    """One parameter of a kernel: its C++ type as a launch converts to it, and the kind of value that Python passes."""

    name: str
    type: str
    kind: Kind


@dataclass(frozen=True)
class KernelTemplateParameter:
    """A template parameter. `type` is the text before the name: `typename`, `int`; `default` may be empty."""

    type: str
    name: str
    default: str = ""

    @property
    def is_type(self) -> bool:
        return self.type in ("typename", "class")


@dataclass(frozen=True)
class KernelSignature:
    """A kernel, or with `instance` (`scale<float, 256>`) one instance of a kernel template.

    `bindings` are the C++ declarations that give an instance's template parameters their values.
    """

    name: str
    arguments: tuple[Argument, ...]
    instance: str = ""
    bindings: tuple[str, ...] = ()

    @property
    def callee(self) -> str:
        """The text before `<<<`."""
        return self.instance or self.name


@dataclass(frozen=True)
class KernelDeclaration:
    """A declared kernel, with the tokens of its parameters."""

    name: str
    template: tuple[KernelTemplateParameter, ...]
    parameters: tuple[tuple[Token, ...], ...]


class Signatures:
    """The kernels and type aliases that a CUDA text declares."""

    def __init__(self, cuda: str) -> None:
        self._tokens = tokenize(cuda)
        self.aliases = _aliases(self._tokens)
        self.declared: dict[str, KernelDeclaration] = {}
        scopes: list[tuple[int, str]] = []  # position of a closing brace, and the namespace that it ends
        k = 0
        while k < len(self._tokens):
            token = self._tokens[k]
            while scopes and scopes[-1][0] <= k:
                scopes.pop()
            if token.text == "{":
                name = _namespace(self._tokens, k)
                closing = matching(self._tokens, k, len(self._tokens))
                if name is None:
                    k = closing
                else:
                    scopes.append((closing, name))
            elif token.text == "__global__" and token.kind == "word":
                found = _declared(self._tokens, k)
                if found is not None:
                    name = "::".join([s for _, s in scopes if s] + [found.name])
                    self.declared.setdefault(name, KernelDeclaration(name, found.template, found.parameters))
            k += 1

    def kernels(self, instances: Sequence[str]) -> list[KernelSignature]:
        """Returns every kernel that is no template, and the `instances` of templates, e.g. `scale<float, 256>`.

        Leaves out instances of kernels that the text does not declare. Raises `CandidateError`.
        """
        plain = [d for d in self.declared.values() if not d.template]
        found = [KernelSignature(d.name, self._arguments(d, {})) for d in plain]
        for instance in dict.fromkeys(instances):
            declared = self._template(instance)
            if declared is not None:
                values = _template_values(declared, instance)
                types = {p.name: v for p, v in zip(declared.template, values, strict=True) if p.is_type}
                bindings = tuple(
                    f"using {p.name} = {v};" if p.is_type else f"constexpr {p.type} {p.name} = {v};"
                    for p, v in zip(declared.template, values, strict=True)
                    if p.name
                )
                found.append(KernelSignature(declared.name, self._arguments(declared, types), instance, bindings))
        return found

    def _template(self, instance: str) -> KernelDeclaration | None:
        base = instance.partition("<")[0].strip().removeprefix("::")
        exact = self.declared.get(base)
        return exact if exact is not None and exact.template else None

    def _arguments(self, declared: KernelDeclaration, types: dict[str, str]) -> tuple[Argument, ...]:
        reserved = {declared.name, *(p.name for p in declared.template)}
        found: list[Argument] = []
        for position, tokens in enumerate(declared.parameters):
            name, type_ = _split(tokens)
            kind = self._kind(type_, types, 0)
            if kind is None:
                what = f"argument {position} ({_text(tokens)!r}) of the kernel {declared.name}"
                raise CandidateError(
                    f"{what} is neither a pointer nor a number, and cannot be passed from Python",
                    hint="pass a struct's parts one by one, and a half as a float",
                )
            name = name or f"argument{position}"
            while name in reserved:
                name += "_"
            reserved.add(name)
            found.append(Argument(name, _text(type_), kind))
        return tuple(found)

    def _kind(self, tokens: Sequence[Token], types: dict[str, str], depth: int) -> Kind | None:
        texts = [t.text for t in tokens]
        if "&" in texts or "(" in texts or depth > 20:
            return None
        if "*" in texts:
            return "tensor"
        words = {t for t in texts if t not in _QUALIFIERS}
        if words == {"bool"}:
            return "boolean"
        if words and words <= _INTEGERS | {"enum"}:
            return "integer"
        if words and words <= _REALS | {"long"}:
            return "real"
        if len(words) == 1:
            (word,) = words
            meaning = tokenize(types[word]) if word in types else self.aliases.get(word)
            return self._kind(meaning, {}, depth + 1) if meaning is not None else None
        return None


def base_name(instance: str) -> str:
    """Returns `scale` for `scale<float, 256>`; keeps the namespace."""
    return instance.partition("<")[0].strip().removeprefix("::")


def _namespace(tokens: Sequence[Token], brace: int) -> str | None:
    """Returns the namespace that the brace opens; "" for `extern "C"` and unnamed ones, None for other braces."""
    k = brace - 1
    words: list[str] = []
    while k >= 0 and (tokens[k].kind == "word" or tokens[k].text == "::"):
        words.insert(0, tokens[k].text)
        k -= 1
    if "namespace" in words:
        return "".join(words[words.index("namespace") + 1 :])
    if k >= 1 and tokens[k].text == '"C"' and tokens[k - 1].text == "extern":
        return ""
    return None


def _declared(tokens: Sequence[Token], marker: int) -> KernelDeclaration | None:
    """Returns the kernel whose `__global__` is at `marker`; None where no parameter list follows."""
    every = list(tokens)
    k = marker + 1
    while k + 1 < len(every):
        token, after = every[k], every[k + 1]
        if token.text in (";", "{"):
            return None
        if token.kind == "word" and after.text == "(":
            closing = matching(every, k + 1, len(every))
            if token.text in _ATTRIBUTES:
                k = closing
            else:
                pieces = [tuple(p) for p in _pieces(every[k + 2 : closing])]
                pieces = [p for p in pieces if p and [t.text for t in p] != ["void"]]
                return KernelDeclaration(token.text, _template_before(every, marker), tuple(pieces))
        k += 1
    return None


def _template_before(tokens: list[Token], marker: int) -> tuple[KernelTemplateParameter, ...]:
    """Returns the parameters of the `template <...>` before a declaration."""
    start = marker
    while start > 0 and tokens[start - 1].text not in (";", "}", "{") and tokens[start - 1].kind != "directive":
        start -= 1
    if tokens[start].text != "template":
        return ()
    closing = matching_angle(tokens, start + 1, marker)
    return tuple(_template_parameter(p) for p in _pieces(tokens[start + 2 : closing]))


def _template_parameter(tokens: Sequence[Token]) -> KernelTemplateParameter:
    texts = [t.text for t in tokens]
    if texts[:1] == ["template"] or texts.count(".") >= 3:
        raise CandidateError(
            f"the kernel template's parameter {_text(tokens)!r} is a pack or a template",
            hint="give it types and values as parameters",
        )
    end = texts.index("=") if "=" in texts else len(texts)
    default = _text(tokens[end + 1 :])
    named = end > 1 and tokens[end - 1].kind == "word"
    return KernelTemplateParameter(
        _text(tokens[: end - 1] if named else tokens[:end]), texts[end - 1] if named else "", default
    )


def _template_values(declared: KernelDeclaration, instance: str) -> list[str]:
    """Returns the values that an instance gives each template parameter. Raises `CandidateError`."""
    tokens = tokenize(instance)
    opening = next((k for k, t in enumerate(tokens) if t.text == "<"), len(tokens))
    given = [_text(p) for p in _pieces(tokens[opening + 1 : -1])] if opening < len(tokens) else []
    if len(given) > len(declared.template) or (opening < len(tokens) and tokens[-1].text != ">"):
        raise CandidateError(f"{instance!r} is no instance of the kernel template {declared.name}")
    values = given + [p.default for p in declared.template[len(given) :]]
    if not all(values):
        missing = ", ".join(p.name for p, v in zip(declared.template, values, strict=True) if not v)
        raise CandidateError(f"{instance!r} leaves open {missing} of the kernel template {declared.name}")
    return values


def _pieces(tokens: list[Token]) -> list[list[Token]]:
    """Splits tokens at commas outside brackets and angles."""
    out: list[list[Token]] = [[]]
    k = 0
    while k < len(tokens):
        end = k
        if tokens[k].text in _OPENING:
            end = matching(tokens, k, len(tokens))
        elif tokens[k].text == "<":
            closing = matching_angle(tokens, k, len(tokens))
            end = closing if closing < len(tokens) else k
        if tokens[k].text == ",":
            out.append([])
        else:
            out[-1] += tokens[k : end + 1]
        k = end + 1
    return out if out != [[]] else []


def _split(tokens: Sequence[Token]) -> tuple[str, tuple[Token, ...]]:
    """Returns a parameter's name (may be empty) and its type; an array becomes a pointer."""
    texts = [t.text for t in tokens]
    end = texts.index("=") if "=" in texts else len(texts)
    kept = [t for t in tokens[:end] if t.text not in _DROPPED]
    first_bracket = next((k for k, t in enumerate(kept) if t.text == "["), len(kept))
    is_array, kept = first_bracket < len(kept), kept[:first_bracket]
    last = kept[-1] if kept else None
    known = {*_INTEGERS, *_REALS, "bool", "const", "volatile", "void"}
    named = last is not None and last.kind == "word" and len(kept) > 1 and last.text not in known
    before = [t for t in kept[:-1] if t.text not in ("const", "volatile", "struct", "typename", "enum")]
    named = named and bool(before) and kept[-2].text != "::"
    name = kept.pop().text if named else ""
    if is_array:
        kept.append(Token("punct", "*", 0, 0))
    return name, tuple(kept)


def _text(tokens: Sequence[Token]) -> str:
    """Returns tokens as one readable line."""
    out = ""
    for token in tokens:
        tight = token.text in ("*", "&", ",", ">", "::", "<", ")", "]", "[") or out.endswith(("::", "<", "("))
        out += token.text if not out or tight else f" {token.text}"
    return out


def _aliases(tokens: list[Token]) -> dict[str, list[Token]]:
    """Returns the names that stand for types: `using`, `typedef`, `#define` of one word, enumerations (as `int`)."""
    found: dict[str, list[Token]] = {}
    for k, token in enumerate(tokens):
        if token.kind == "directive":
            parts = token.text.removeprefix("#").split(None, 2)
            if len(parts) == 3 and parts[0] == "define" and parts[1].isidentifier():
                found.setdefault(parts[1], tokenize(parts[2]))
        elif token.text == "enum":
            words = [t.text for t in tokens[k + 1 : k + 3] if t.kind == "word" and t.text not in ("class", "struct")]
            if words:
                found.setdefault(words[0], tokenize("int"))
        elif token.text in ("using", "typedef"):
            end = next((e for e in range(k, len(tokens)) if tokens[e].text == ";"), len(tokens))
            body = tokens[k + 1 : end]
            if token.text == "typedef" and len(body) > 1:
                found.setdefault(body[-1].text, body[:-1])
            elif len(body) > 2 and body[1].text == "=":
                found.setdefault(body[0].text, body[2:])
    return found
