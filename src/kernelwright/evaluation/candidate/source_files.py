"""Reads the files given to `torch.utils.cpp_extension.load`, with the headers that their author has put beside them.

The builder sees texts and no files, so an include of one of those headers is replaced by the header's text. This
happens in the runner, which reads only what the candidate could read itself. Files of one language become one text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from kernelwright.backends.source_text.own_files import Expansion, OwnFile

MAX_CHARACTERS = 4 << 20
"""A bound on the characters of all texts together."""


class SourceFiles:
    """Reads files of one language; `folders` are searched for headers, after the folder of the including file. `name`
    is the name of the joined text in messages."""

    def __init__(self, folders: Sequence[str] | str | None = None, name: str = "cuda.cu") -> None:
        self.folders = [folders] if isinstance(folders, str) else [str(folder) for folder in folders or ()]
        self.name = name
        self.room = MAX_CHARACTERS
        self.own: list[str] = []
        """The texts that `text` has read, without headers."""
        self._expansion = Expansion(self._found)
        self._texts: dict[str, str] = {}

    def text(self, path: str) -> str:
        """Returns a file's text with its headers. Raises `ValueError` for texts that are too long together, and
        `TooManyHeaders`."""
        self.own.append(self._read(path))
        return self._expansion.text(OwnFile(os.path.realpath(path), self.name, self.own[-1]))

    def with_headers(self, text: str) -> str:
        """Returns a text that is in no file with the headers that are found. Raises as `text` does."""
        return self._expansion.text(OwnFile("", self.name, text))

    def _found(self, name: str, quoted: bool, including: OwnFile) -> OwnFile | None:
        near = [os.path.dirname(including.key)] if quoted and including.key else []
        for place in (*near, *self.folders):
            path = os.path.realpath(os.path.join(place, name))
            if os.path.isfile(path):
                if path not in self._texts:
                    self._texts[path] = self._read(path)
                return OwnFile(path, re.sub(r'["\\\n]', "_", name), self._texts[path])
        return None

    def _read(self, path: str) -> str:
        with open(path, encoding="utf-8") as file:
            text = file.read(self.room + 1)
        self.room -= len(text)
        if self.room < 0:
            raise ValueError("the source files of an extension hold more than 4 MB")
        return text


def write(files: Sequence[tuple[str, str]], folder: str) -> None:
    """Writes a candidate's further files into `folder`, at their relative paths. Raises `ValueError` for a path that
    leads out of it."""
    for path, content in files:
        clean = os.path.normpath(path)
        if os.path.isabs(clean) or clean.split(os.sep)[0] == ".." or clean in (".", "candidate.py"):
            raise ValueError(f"a candidate's file may not be at {path!r}")
        place = os.path.join(folder, clean)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(content)


def include_folders(flags: Sequence[str] | None) -> list[str]:
    """Returns the folders that compiler flags name with `-I`, in one word or in two."""
    words = [word for flag in flags or () for word in str(flag).split()]
    joined = [word[2:] for word in words if word.startswith("-I") and len(word) > 2]
    return joined + [after for word, after in zip(words, words[1:], strict=False) if word == "-I"]
