"""Predicts the template instances of a CUDA file: launches with their template arguments, for each dispatched type.

nvcc compiles every instance that host code names, so an error in any of them is a build error, whether or not the type
is ever used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from kernelwright.backends.source_text.tokens import Token, matching

_KNOWN_WORDS = {"float", "double", "int", "unsigned", "long", "short", "char", "bool", "true", "false", "half"}
_KNOWN_WORDS |= {"int64_t", "int32_t", "uint8_t", "__half", "float4", "float2", "scalar_t", "at", "c10", "Half"}
_KNOWN_WORDS |= {"BFloat16", "__nv_bfloat16", "Float8_e4m3fn", "Float8_e5m2"}
_INTEGERS = ("unsigned char", "signed char", "int", "long long", "short")
_FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ALL_TYPES", ("float", "double", *_INTEGERS)),
    ("REDUCED_FLOATING_TYPES", ("c10::Half", "c10::BFloat16")),
    ("FLOATING_TYPES_AND_HALF", ("float", "double", "c10::Half")),
    ("FLOATING", ("float", "double")),
    ("INTEGRAL_TYPES", _INTEGERS),
    ("INDEX_TYPES", ("int", "long long")),
)
_NAMED = {"Half": "c10::Half", "kHalf": "c10::Half", "BFloat16": "c10::BFloat16", "kBFloat16": "c10::BFloat16"}
_NAMED |= {"Float": "float", "kFloat": "float", "Double": "double", "kDouble": "double", "Int": "int", "kInt": "int"}
_NAMED |= {f"{k}{name}": f"c10::{name}" for name in ("Float8_e4m3fn", "Float8_e5m2") for k in ("", "k")}
_NAMED |= {"Bool": "bool", "kBool": "bool", "Long": "long long", "kLong": "long long"}
_LIMIT = 16


def guesses(
    source: str,
    tokens: Sequence[Token],
    callees: Sequence[tuple[int, int]],
    templates: Mapping[str, str],
    constants: Collection[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns name expressions of launches such as `k<scalar_t, 256>` in two groups: with float or double for
    `scalar_t`, or without `scalar_t`; and with the other dispatched types."""
    regions = _regions(tokens)
    everything = tuple(dict.fromkeys(name for _, _, names in regions for name in names)) or ("float",)
    first: list[str] = []
    more: list[str] = []
    for start, stop in callees:
        angle = next((k for k in range(start, stop) if tokens[k].text == "<"), None)
        if angle is None or angle == start or tokens[angle - 1].text not in templates:
            continue
        arguments = [t.text for t in tokens[angle + 1 : stop - 1]]
        words = (t.text for t in tokens[angle + 1 : stop - 1] if t.kind == "word")
        if not all(word in _KNOWN_WORDS or word in constants for word in words):
            continue
        inside = [names for low, high, names in regions if low < tokens[start].start < high]
        types = (inside[-1] if inside else everything) if "scalar_t" in arguments else ("float",)
        for scalar in types:
            text = " ".join(scalar if a == "scalar_t" else a for a in arguments)
            plain = scalar in ("float", "double") or "scalar_t" not in arguments
            (first if plain else more).append(f"{templates[tokens[angle - 1].text]}<{text}>")
    if not first and more:
        first, more = more[:1], more[1:]
    return tuple(dict.fromkeys(first))[:_LIMIT], tuple(dict.fromkeys(more))[:_LIMIT]


def _regions(tokens: Sequence[Token]) -> list[tuple[int, int, tuple[str, ...]]]:
    """Returns each AT_DISPATCH_* call as (start, end, types), source offsets. Inner calls come last."""
    out = []
    for k, token in enumerate(tokens):
        if not token.text.startswith("AT_DISPATCH_") or k + 1 >= len(tokens) or tokens[k + 1].text != "(":
            continue
        closing = matching(list(tokens), k + 1, len(tokens))
        types = _types(token.text, tokens, k + 1, closing)
        if types and closing < len(tokens):
            out.append((token.start, tokens[closing].end, types))
    return out


def _types(macro: str, tokens: Sequence[Token], opening: int, closing: int) -> tuple[str, ...]:
    found = next((names for family, names in _FAMILIES if family in macro), ())
    extra = []
    extended = re.search(r"_AND\d?$|_CASE$", macro) is not None
    if extended:
        depth = 0
        for token in tokens[opening + 1 : closing]:
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.text, 0)
            if token.kind == "string" or token.text in ("[", "{"):
                break  # the types precede the name and the lambda
            if depth == 0 and token.text in _NAMED:
                extra.append(_NAMED[token.text])
    return tuple(dict.fromkeys((*found, *extra)))
