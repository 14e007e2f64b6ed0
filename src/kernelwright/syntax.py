"""Parses Python text in a thread-safe way, and finds duplicate keys in JSON objects.

CPython 3.11 stores the depth of the tree under construction in one place for all threads. If another thread parses
meanwhile (a garbage collection may switch threads), `ast.parse` raises SystemError, and a retry succeeds. All other
errors propagate: SyntaxError, ValueError, RecursionError, MemoryError.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

MAX_TEXT = 1 << 20
"""The most characters of a candidate's text, or of a task's, that are read."""
_ATTEMPTS = 50
T = TypeVar("T")


def parse(source: str) -> ast.Module:
    """Parses a module."""
    return _tried(lambda: ast.parse(source))


def expression(source: str) -> ast.expr:
    """Parses an expression."""
    return _tried(lambda: ast.parse(source, mode="eval")).body


def repeated_key(pairs: Iterable[tuple[str, object]]) -> str | None:
    """Returns a duplicate key of a JSON object, or None, from the pairs of `object_pairs_hook`."""
    counts = Counter(key for key, _ in pairs)
    return next((key for key, count in counts.items() if count > 1), None)


def _tried(parse: Callable[[], T]) -> T:
    for _ in range(_ATTEMPTS):
        try:
            return parse()
        except SystemError:
            continue
    raise RecursionError("the text could not be parsed while other threads parse")
