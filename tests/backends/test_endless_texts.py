"""Texts with beginnings and no ends are read once, not once for each beginning."""

from __future__ import annotations

from typing import Any

import pytest

from kernelwright.backends.source_text import macros
from kernelwright.backends.source_text.tokens import tokenize

COUNT = 200


@pytest.mark.parametrize(("piece", "kind"), [("#/*", "directive"), ('R"(', "string"), ('u8R"x(', "string")])
def test_what_has_no_end_takes_the_rest(piece: str, kind: str) -> None:
    text = "int a;\n" + piece * COUNT
    last = tokenize(text)[-1]
    assert (last.kind, last.end - last.start) == (kind, len(piece) * COUNT)


def test_a_directive_ends_with_its_line_after_a_comment() -> None:
    kinds = [token.kind for token in tokenize("#define A /* 1\n2 */ 3\nint a;")]
    assert kinds == ["directive", "word", "word", "punct"]


def test_a_declaration_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counting(tokens: Any, start: int, stop: int) -> Any:
        calls.append(start)
        return read(tokens, start, stop)

    read = macros.read_chunk
    monkeypatch.setattr(macros, "read_chunk", counting)
    macros.expand_parameter_macros("#define A int\n" + "__global__ " * COUNT)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("#if 0\na\n#else\nb\n#endif\nc", "b c"),
        ("#if 1\na\n#else\nb\n#endif\nc", "a c"),
        ("#if 0\n#if 1\na\n#else\nb\n#endif\n#endif\nc", "c"),
        ("#if 1\na\n#if 0\nb\n#endif\n#else\nd\n#endif\nc", "a c"),
        ("#ifdef X\n#if 0\na\n#endif\nb\n#else\nc\n#endif", "b c"),
        ("#if 0\na\n", "a"),
    ],
)
def test_dead_branches_go(text: str, left: str) -> None:
    words = [token.text for token in tokenize(macros.without_dead_code(text)) if token.kind == "word"]
    assert " ".join(words) == left
