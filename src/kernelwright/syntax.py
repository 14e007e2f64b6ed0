"""Parses Python text in a bounded time and a thread-safe way, and reads JSON and TOML of any depth.

CPython's parser takes quadratic time or memory on some texts (a formatted string with many fields, a module name with
many dots, a name with many combining characters): hours for one megabyte, and nothing can interrupt it. So a longer
text is first parsed by a process that is ended after `SECONDS`. A child of the judge has a deadline of its own and
parses at once (`parse_at_once`).

CPython 3.11 stores the depth of the tree under construction in one place for all threads. If another thread parses
meanwhile (a garbage collection may switch threads), `ast.parse` raises SystemError, and a retry succeeds.
"""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeVar

MAX_TEXT = 1 << 20
"""The most characters of a candidate's text, or of a task's, that are read."""
SECONDS = 3
"""Seconds of processor time that the parser may take for one text."""
_WALL_SECONDS = 60.0
"""The same in wall time, for a machine that does other work."""
_MEMORY = 2 << 30
"""Bytes of address space that the parser may take for one text."""
_SHORT = 1 << 12
"""Characters of a text that is parsed at once: quadratic time is short enough here."""
_SHORT_ASCII = 1 << 14
"""The same for ASCII, where names have no combining characters."""
_TRIAL = """
import ast, resource, sys, warnings
mode, seconds, memory = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
warnings.simplefilter("ignore")
try:
    ast.parse(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"), mode=mode)
except MemoryError:
    sys.exit(3)
except Exception:
    pass  # the caller's own parser says what is wrong
"""
"""A process that parses its input and says only, by its end, that this was too much."""
_ATTEMPTS = 50
_at_once = False
T = TypeVar("T")


class BeyondLimits(ValueError):
    """A text that is too deeply nested, or too costly, to be parsed."""


def parse(source: str) -> ast.Module:
    """Parses a module. Raises SyntaxError, and ValueError where the text holds null bytes or is `BeyondLimits`."""
    _examine(source, "exec")
    return _tried(lambda: ast.parse(source))


def expression(source: str) -> ast.expr:
    """Parses an expression. Raises as `parse` does."""
    _examine(source, "eval")
    return _tried(lambda: ast.parse(source, mode="eval")).body


def parse_at_once() -> None:
    """Parses every text in this process from now on. For processes that are ended when a text takes too long."""
    global _at_once
    _at_once = True


def json_value(text: str, hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Reads JSON. Raises `ValueError`: the decoder's own, or `BeyondLimits` for deeply nested text."""
    try:
        return json.loads(text, object_pairs_hook=hook)
    except RecursionError as error:
        raise BeyondLimits("it is too deeply nested to be read") from error


def toml_table(text: str) -> dict[str, Any]:
    """Reads TOML. Raises `ValueError`: the decoder's own, or `BeyondLimits` for deeply nested text."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise BeyondLimits("it is too deeply nested to be read") from error


def repeated_key(pairs: Iterable[tuple[str, object]]) -> str | None:
    """Returns a duplicate key of a JSON object, or None, from the pairs of `object_pairs_hook`."""
    counts = Counter(key for key, _ in pairs)
    return next((key for key, count in counts.items() if count > 1), None)


def _examine(source: str, mode: str) -> None:
    """Raises `BeyondLimits` where the parser would take too much time or memory for a text."""
    if _at_once or len(source) <= (_SHORT_ASCII if source.isascii() else _SHORT):
        return
    excess = _excess(source, mode)
    if excess:
        raise BeyondLimits(excess)


@lru_cache(maxsize=8)  # one text is parsed for several purposes
def _excess(source: str, mode: str) -> str:
    """Returns what a text costs the parser too much of, or an empty string."""
    command = [sys.executable, "-I", "-S", "-c", _TRIAL, mode, str(SECONDS), str(_MEMORY)]
    try:
        tried = subprocess.run(
            command,
            input=source.encode("utf-8", "surrogatepass"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"parsing it takes more than {_WALL_SECONDS:g} s"
    if tried.returncode == -signal.SIGXCPU:
        return f"parsing it takes more than {SECONDS} s of processor time"
    return "" if tried.returncode == 0 else "it is too long or too deeply nested to be parsed"


def _tried(parse: Callable[[], T]) -> T:
    for _ in range(_ATTEMPTS):
        try:
            return parse()
        except SystemError:
            continue
        except RecursionError as error:
            raise BeyondLimits(str(error)) from error
        except MemoryError as error:  # the parser's own stack is full
            raise BeyondLimits("it is too deeply nested to be parsed") from error
    raise BeyondLimits("the text could not be parsed while other threads parse")
