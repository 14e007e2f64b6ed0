"""Python text to syntax trees, for threads as well.

CPython 3.11 keeps the depth of the tree that it builds in one place for all threads. Where another thread parses in
between (the collector may let it), `ast.parse` raises SystemError, and the next attempt is right. What else it raises
is raised here, too: SyntaxError, ValueError, RecursionError, MemoryError.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeVar

_ATTEMPTS = 50
T = TypeVar("T")


def parse(source: str) -> ast.Module:
    """A module's tree."""
    return _tried(lambda: ast.parse(source))


def expression(source: str) -> ast.expr:
    """An expression's tree."""
    return _tried(lambda: ast.parse(source, mode="eval")).body


def _tried(parse: Callable[[], T]) -> T:
    for _ in range(_ATTEMPTS):
        try:
            return parse()
        except SystemError:
            continue
    raise RecursionError("the text could not be parsed while other threads parse")
