"""Records failed Triton compilations, even if the candidate catches the error; with and without a GPU."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import triton
import triton.compiler
from triton.runtime.errors import OutOfResources

MAX_NOTES = 4000

Compile = Callable[..., Any]


def recording(compile_: Compile, note: Callable[[BaseException, str], None]) -> Compile:
    """Wraps `triton.compile`: calls `note` on each failure with the compiler's stderr, then re-raises."""

    def compile(*args: Any, **kwargs: Any) -> Any:
        with _stderr() as read:
            try:
                return compile_(*args, **kwargs)
            except Exception as error:
                note(error, read())
                raise

    return compile


@contextmanager
def _stderr() -> Iterator[Callable[[], str]]:
    """Captures what C++ writes to descriptor 2, where MLIR reports failed passes."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)

        def read() -> str:
            file.seek(0)
            return file.read(1 << 20).decode(errors="replace")[-MAX_NOTES:]

        try:
            yield read
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def keep(kept: list[dict[str, Any]]) -> None:
    """Adds this process's failed compilations to `kept` from now on; errors still propagate."""
    tell = recording(triton.compiler.compile, lambda error, notes: _note(kept, error, notes))
    triton.compile = triton.compiler.compile = tell


def _note(kept: list[dict[str, Any]], error: BaseException, notes: str) -> None:
    """Records a failed compilation. A target's lack of resources does not count as one."""
    if isinstance(error, OutOfResources):
        return
    deepest: BaseException = error
    while deepest.__cause__ is not None and hasattr(deepest.__cause__, "src"):
        deepest = deepest.__cause__
    node, source = getattr(deepest, "node", None), getattr(deepest, "src", None)
    kept.append(
        {
            "type": type(error).__name__,
            "log": f"{error}\n{notes}".strip()[:8000],
            "message": (getattr(deepest, "error_message", None) or str(error)).strip()[:500],
            "source": str(source or ""),
            "line": getattr(node, "lineno", None),
        }
    )
