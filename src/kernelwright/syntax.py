"""Python text to syntax trees, for threads as well; and what JSON objects have twice.

CPython 3.11 keeps the depth of the tree that it builds in one place for all threads. Where another thread parses in
between (the collector may let it), `ast.parse` raises SystemError, and the next attempt is right. What else it raises
is raised here, too: SyntaxError, ValueError, RecursionError, MemoryError.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

_ATTEMPTS = 50
T = TypeVar("T")


def parse(source: str) -> ast.Module:
    """A module's tree."""
    return _tried(lambda: ast.parse(source))


def expression(source: str) -> ast.expr:
    """An expression's tree."""
    return _tried(lambda: ast.parse(source, mode="eval")).body


def repeated_key(pairs: Iterable[tuple[str, object]]) -> str | None:
    """A key that a JSON object has twice, so that nobody can say which value is meant; of `object_pairs_hook`."""
    counts = Counter(key for key, _ in pairs)
    return next((key for key, count in counts.items() if count > 1), None)


def _tried(parse: Callable[[], T]) -> T:
    for _ in range(_ATTEMPTS):
        try:
            return parse()
        except SystemError:
            continue
    raise RecursionError("the text could not be parsed while other threads parse")
