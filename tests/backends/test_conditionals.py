"""Preprocessor conditionals that are resolved before a text is split."""

from __future__ import annotations

import random

import pytest

from kernelwright.backends.source_text.conditionals import resolved
from kernelwright.backends.source_text.split import split

CUT = "#if %s\nvoid f(double x) {\n#else\nvoid f(float x) {\n#endif\n}\n"
FIRST, SECOND = "\nvoid f(double x) {\n\n\n\n}\n", "\n\n\nvoid f(float x) {\n\n}\n"


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        ("defined(USE_DOUBLE)", False),
        ("!defined USE_DOUBLE", True),
        ("GIVEN", True),
        ("GIVEN > 0x1F && GIVEN < 041", True),
        ("GIVEN == 32u && (GIVEN + 2) * 2 - 8 == 60", True),
        ("VERSION >= 201 || 0", True),
        ("__CUDA_ARCH__ >= 700", False),
        ("0 && __has_include(<cub/cub.cuh>)", False),
        ("true // why", True),
        ("defined(__CUDACC__) && \\\n  -1 < ~0 + 1", True),
    ],
)
def test_conditions(condition: str, taken: bool) -> None:
    text = resolved("#define VERSION (GIVEN * 10)\n" + CUT % condition, {"GIVEN": "32", "__CUDACC__": "1"})
    folded = FIRST if taken else SECOND
    head = "#define VERSION (GIVEN * 10)\n" + "\n" * condition.count("\n")
    assert text == head + folded


@pytest.mark.parametrize(
    "condition",
    ["__has_include(<x.h>)", "CUDART_VERSION > 11000", "defined(TORCH_API)", "F(1)", "7 / 2", "UNSURE", "("],
)
def test_what_cannot_be_told_stays(condition: str) -> None:
    text = "#define F(x) x\n#ifdef CUDART_VERSION\n#define UNSURE 1\n#endif\n" + CUT % condition
    assert resolved(text, {}) == text


def test_what_cuts_nothing_stays() -> None:
    text = "#ifdef A\nvoid f(int x) { g(x); }\n#else\nvoid f() {}\n#endif\nvoid h() {\n#if B\n  f();\n#endif\n}\n"
    assert resolved(text, {}) == text


def test_branches_within_branches() -> None:
    inner = "#ifdef B\nvoid f() { if (x) {\n#elif C > 1\nvoid g() { if (x) {\n#else\nvoid h() { if (x) {\n#endif\n"
    text = "#define C 2\n#ifndef A\n" + inner + "}\n#else\nvoid k() {\n#endif\n}\n"
    assert [line for line in resolved(text, {}).split("\n") if line] == ["#define C 2", "void g() { if (x) {", "}", "}"]


def test_definitions_count_in_their_order_and_where_they_are_compiled() -> None:
    cut = "#if defined A || defined B\nvoid f() {\n#else\nvoid g() {\n#endif\n}\n"
    text = "#if 0\n#define A 1\n#endif\n#define B\n#undef B\n" + cut
    assert "void g" in resolved(text, {}) and "void f" not in resolved(text, {})


def test_parameters_of_a_kernel() -> None:
    text = "__global__ void k(float* x,\n#ifdef WIDE\n long n,\n#endif\n int m) { x[m] = 0; }\n"
    assert "sizeof(n)" not in split(text).host and "sizeof(n)" in split(text, macros={"WIDE": "1"}).host


def test_the_device_has_its_own_branch() -> None:
    text = "__global__ void k(float* x) {\n#if __CUDA_ARCH__ >= 800\n  if (x) {\n#else\n  for (;;) {\n#endif\n  }\n}\n"
    parts = split(text)
    assert "if (x)" in parts.device and "for" not in parts.device and "::kw::launch" in parts.host


def test_macros_that_double_are_given_up() -> None:
    doubling = "".join(f"#define A{k} (A{k + 1} + A{k + 1})\n" for k in range(20))
    text = doubling + "#define A20 1\n" + CUT % "A0"
    assert resolved(text, {}) == text


def test_texts_that_are_no_code_raise_nothing() -> None:
    pieces = ["#if 1\n", "#if A(\n", "#elif\n", "#else\n", "#endif\n", "#define A (A\n", "#undef A\n", "#ifdef\n"]
    pieces += ["{", "}", "(", ")", "f;\n", "\n#if defined(\n", "#if !\n", "# if 1 +\n", "__global__ void k(int", "\n"]
    draw = random.Random(0)
    for _ in range(3000):
        text = "".join(draw.choices(pieces, k=draw.randrange(1, 16)))
        assert resolved(text, {"A": "A"}).count("\n") == text.count("\n")
