"""Keeps the end of a candidate's printed output, which is reported with its verdict."""

from __future__ import annotations

import io
from typing import Any

MAX_PRINT = 8192
"""The number of characters kept."""


class Tail(io.TextIOBase):
    """Keeps the last `MAX_PRINT` characters that a candidate printed."""

    def __init__(self) -> None:
        self.text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text = (self.text + text)[-MAX_PRINT:]
        return len(text)

    def reconfigure(self, **_options: Any) -> None:
        """Ignores all options: output is kept as it comes."""

    @property
    def buffer(self) -> Any:
        """Returns the same stream for bytes."""
        return _Bytes(self)


class _Bytes(io.RawIOBase):
    def __init__(self, text: Tail) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode(errors="replace"))
        return len(data)
