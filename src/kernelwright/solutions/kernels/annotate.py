"""Writes the `__device__` that a CUDA text leaves out.

`kernelwright.cuda.Module` compiles a text in which everything is device code. nvcc takes a function without an
annotation for host code, which kernels cannot call. Changes only functions, methods and arrays without any annotation.
"""

from __future__ import annotations

from kernelwright.backends.source_text.declarations import Chunk, read_chunk
from kernelwright.backends.source_text.tokens import Token, matching, matching_angle, tokenize

_SPACES = frozenset(("__device__", "__host__", "__global__", "__constant__", "__shared__", "__managed__"))
_OTHERS = frozenset(("using", "typedef", "static_assert", "friend", "asm", "_Pragma", "extern"))
_LABELS = frozenset(("public", "private", "protected"))


def annotated(cuda: str) -> str:
    """Returns the text with `__device__` before each function, method and array without an annotation."""
    tokens = tokenize(cuda)
    places: list[int] = []
    _walk(tokens, 0, len(tokens), places, inside_type=False)
    for place in sorted(places, reverse=True):
        cuda = cuda[:place] + "__device__ " + cuda[place:]
    return cuda


def _walk(tokens: list[Token], start: int, stop: int, places: list[int], *, inside_type: bool) -> None:
    k = start
    while k < stop:
        if tokens[k].kind == "directive" or tokens[k].text == ";":
            k += 1
            continue
        if tokens[k].text in _LABELS and k + 1 < stop and tokens[k + 1].text == ":":
            k += 2
            continue
        brace = _opened(tokens, k, stop)
        if brace is not None:
            closing = matching(tokens, brace, stop)
            _walk(tokens, brace + 1, closing, places, inside_type=False)
            k = closing + 1
            continue
        chunk = read_chunk(tokens, k, stop)
        if chunk.is_type and chunk.parens is None:
            body = next((b for b in range(k, chunk.stop) if tokens[b].text == "{"), None)
            if body is not None and "enum" not in chunk.words:
                _walk(tokens, body + 1, matching(tokens, body, chunk.stop), places, inside_type=True)
        elif _lacks(tokens, chunk, inside_type):
            places.append(tokens[_after_head(tokens, chunk)].start)
        k = max(chunk.stop, k + 1)


def _opened(tokens: list[Token], k: int, stop: int) -> int | None:
    """Returns the brace of the namespace or the `extern "C"` block that begins at `k`."""
    if tokens[k].text == "inline" and k + 1 < stop and tokens[k + 1].text == "namespace":
        k += 1
    if tokens[k].text == "namespace":
        return next((b for b in range(k, min(stop, k + 8)) if tokens[b].text == "{"), None)
    if tokens[k].text == "extern" and k + 2 < stop and tokens[k + 1].text == '"C"' and tokens[k + 2].text == "{":
        return k + 2
    return None


def _lacks(tokens: list[Token], chunk: Chunk, inside_type: bool) -> bool:
    """Tells whether nvcc would take the declaration for host code that kernels use."""
    words = set(chunk.words)
    linkage = tokens[chunk.start].text == "extern" and tokens[chunk.start + 1].text == '"C"'
    if words & _SPACES or (words & _OTHERS and not linkage) or chunk.name in _OTHERS:
        return False
    if chunk.is_function:
        return inside_type or len(chunk.words) > 1
    texts = [t.text for t in tokens[chunk.start : chunk.stop]]
    end = texts.index("=") if "=" in texts else len(texts)
    return not inside_type and len(chunk.words) > 1 and "[" in texts[:end] and "template" not in texts[:1]


def _after_head(tokens: list[Token], chunk: Chunk) -> int:
    """Returns the first token behind `template <...>` and `extern "C"`; an annotation may stand before it."""
    k = chunk.start
    while k < chunk.stop:
        if tokens[k].text == "template" and tokens[k + 1].text == "<":
            k = matching_angle(tokens, k + 1, chunk.stop) + 1
        elif tokens[k].text == "extern" and tokens[k + 1].text == '"C"':
            k += 2
        else:
            break
    return k
