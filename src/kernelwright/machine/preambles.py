"""NVRTC's headers, read once: precompiled preambles for texts that are compiled with the same options.

Before every text NVRTC reads its own built-in headers and ours, which takes 0.03 s, more than most kernels need. Its
precompiled headers hold what was read; they are good for one process only, since they are memory as it was. So they
are kept where a process compiles many texts, in a folder of its own (`keep`), and nowhere else. Code and messages are
the same with and without.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

MOST = 8
"""Preambles of one process: 10 to 30 MB each."""
MOST_COUNTED = 256
FIRST_VERSION = (12, 8)
"""Of NVRTC, with precompiled headers."""
MEMORY = re.compile(r"catastrophic error: (?:out of memory|unable to obtain mapped memory).*")
"""What NVRTC says when it has no more, without a preamble and with one."""


class Preambles:
    """Preambles in `folder`, each made when its options come for the second time. Not for use by several threads."""

    def __init__(self, folder: Path, compiles: Callable[[Sequence[str]], bool]) -> None:
        """`compiles` compiles an empty text with options and tells whether that went well."""
        self._folder = folder
        self._compiles = compiles
        self._uses: dict[tuple[str, ...], int] = {}
        self._files: dict[tuple[str, ...], Path | None] = {}

    def further_options(self, options: Sequence[str]) -> list[str]:
        """What to add to `options`, so that their preamble is taken from its file; nothing where there is none."""
        key = tuple(options)
        if key not in self._files and self._wanted(key):
            self._files[key] = self._made(key, self._folder / f"preamble{len(self._files)}.pch")
        file = self._files.get(key)
        return [f"--use-pch={file}", "--pch-messages=false"] if file else []

    def failed(self, options: Sequence[str], log: str) -> bool:
        """Whether NVRTC's log is about a preamble rather than the text; that one is not used again.

        Beside a preamble a text has less memory than without: one that runs out of it is told from others by its log,
        and the preamble is kept.
        """
        blamed = str(self._folder) in log
        if blamed:
            self._files[tuple(options)] = None
        return blamed or MEMORY.search(log) is not None

    def _wanted(self, key: tuple[str, ...]) -> bool:
        if len(self._uses) >= MOST_COUNTED:
            self._uses.clear()
        self._uses[key] = self._uses.get(key, 0) + 1
        return self._uses[key] > 1 and len(self._files) < MOST

    def _made(self, key: tuple[str, ...], file: Path) -> Path | None:
        done = self._compiles([*key, f"--create-pch={file}", "--pch-messages=false"])
        return file if done and file.is_file() else None
