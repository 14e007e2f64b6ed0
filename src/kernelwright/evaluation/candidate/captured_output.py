"""What a candidate prints: the last of it is kept, and told with its verdict."""

from __future__ import annotations

import io
from typing import Any

MAX_PRINT = 8192
"""Characters that are kept."""


class Tail(io.TextIOBase):
    """Keeps the last few kilobytes that a candidate printed."""

    def __init__(self) -> None:
        self.text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text = (self.text + text)[-MAX_PRINT:]
        return len(text)

    def reconfigure(self, **_options: Any) -> None:
        """Kept as it comes, however it is to be buffered or encoded."""

    @property
    def buffer(self) -> Any:
        """The same for bytes."""
        return _Bytes(self)


class _Bytes(io.RawIOBase):
    def __init__(self, text: Tail) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode(errors="replace"))
        return len(data)
