"""Precompiled preambles: NVRTC's headers, parsed once for all texts that are compiled with the same options.

Before every text NVRTC parses its built-in headers and ours, which takes 0.03 s, longer than most kernels need. Its
precompiled headers are memory images and valid in one process only. They are therefore kept only in processes that
compile many texts, each in a folder of its own (`nvrtc.keep_preambles`). Code and messages do not change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

MOST = 8
"""The most preambles of one process: 10 to 30 MB each."""
MOST_COUNTED = 256
FIRST_VERSION = (12, 8)
"""The first version of NVRTC with precompiled headers."""
MEMORY = re.compile(r"catastrophic error: (?:out of memory|unable to obtain mapped memory).*")
"""NVRTC's messages on memory exhaustion, without and with a preamble."""


class Preambles:
    """Preambles in `folder`, each built on the second use of its options. Not thread-safe."""

    def __init__(self, folder: Path, compiles: Callable[[Sequence[str]], bool]) -> None:
        """`compiles` compiles an empty text with options and returns whether that succeeded."""
        self._folder = folder
        self._compiles = compiles
        self._uses: dict[tuple[str, ...], int] = {}
        self._files: dict[tuple[str, ...], Path | None] = {}

    def further_options(self, options: Sequence[str]) -> list[str]:
        """Returns the options that load the preamble for `options`; empty if it has none."""
        key = tuple(options)
        if key not in self._files and self._wanted(key):
            self._files[key] = self._made(key, self._folder / f"preamble{len(self._files)}.pch")
        file = self._files.get(key)
        return [f"--use-pch={file}", "--pch-messages=false"] if file else []

    def failed(self, options: Sequence[str], log: str) -> bool:
        """Tells whether the failure is due to the preamble rather than the text; such a preamble is not used again.

        A preamble leaves less memory for the text. A text that ran out of memory also returns True, so that it is
        compiled again without the preamble, but the preamble is kept.
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
