"""Constant expressions: evaluated as in Python or left alone; nothing large, nothing executed."""

from __future__ import annotations

import ast
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.tasks.normal_form.constants import UnknownValue, value_of, written


def value(text: str, **known: Any) -> Any:
    return value_of(ast.parse(text, mode="eval").body, known)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2 * 3 + 4 // 3 - 7 % 4", 4),
        ("-(1 / 4)", -0.25),
        ("2 ** -3", 0.125),
        ("-1e30", -1e30),
        ("(1, 'a', None, [2.5])", (1, "a", None, [2.5])),
        ("[1] * 3 + [2]", [1, 1, 1, 2]),
        ("(4, 5, 6)[1:][0]", 5),
        ("max(3, len('abcd')) > 3", True),
        ("tuple(range(3))", (0, 1, 2)),
        ("not isinstance(3, (float, str))", True),
        ("math.prod((2, 3))", 6),
        ("'ReLU'.lower()", "relu"),
    ],
)
def test_what_the_text_says_is_computed(text: str, wanted: Any) -> None:
    assert value(text) == wanted and type(value(text)) is type(wanted)


def test_names_stand_for_what_is_known() -> None:
    assert value("n * sizes[-1]", n=3, sizes=(4, 5)) == 15
    with pytest.raises(UnknownValue):
        value("n * other", n=3)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "open('/etc/passwd')",
        "__import__('os').getcwd()",
        "().__class__",
        "1 / 0",
        "(1, 2)[5]",
        "1 + 'a'",
        "(-8) ** 0.5",
        "1e300 * 1e300",
        "f'{1}'",
        "b'a'",
        "1j",
        "...",
    ],
)
def test_anything_else_is_unknown(text: str) -> None:
    with pytest.raises(UnknownValue):
        value(text)


@pytest.mark.parametrize(
    "text",
    [
        "[0] * 10 ** 9",
        "'a' * 10 ** 9",
        "'%999999999d' % 1",
        "9 ** 9 ** 9",
        "2 ** 64",
        "list(range(10 ** 9))",
        "2 ** 39 * 2 ** 39",
        "sum(range(10 ** 9))",
        "[[[[0] * 20] * 20] * 20] * 20 + [0] * 4096",
    ],
)
def test_what_is_too_large_is_not_computed(text: str) -> None:
    began = time.process_time()
    with pytest.raises(UnknownValue):
        value(text)
    assert time.process_time() - began < 1.0


NUMBERS = st.one_of(st.integers(-20, 20), st.floats(-8, 8).map(lambda x: round(x, 3)), st.booleans())


SIGNS = "+ - * / // % < == >=".split()


@settings(max_examples=300, deadline=None)
@given(a=NUMBERS, b=NUMBERS, c=NUMBERS, first=st.sampled_from([*SIGNS, "**"]), second=st.sampled_from(SIGNS))
def test_numbers_are_what_python_makes_of_them(a: Any, b: Any, c: Any, first: str, second: str) -> None:
    inner = f"({a!r}) {first} ({b!r})"
    text = f"({inner}) {second} ({c!r})"
    try:
        steps = [eval(inner), eval(text)]
    except (ArithmeticError, TypeError):
        steps = [math.nan]
    try:
        found = value(text)
    except UnknownValue:
        assert any(isinstance(x, complex) or not abs(x) <= 2**40 for x in steps), text
        return
    assert found == steps[-1] and type(found) is type(steps[-1])
    assert value(ast.unparse(written(found))) == found
