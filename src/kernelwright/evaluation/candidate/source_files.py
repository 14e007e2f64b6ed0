"""Reads the files given to `torch.utils.cpp_extension.load`, with the headers that their author has put beside them.

The builder sees texts and no files, so an include of one of those headers is replaced by the header's text. This
happens in the runner, which reads only what the candidate could read itself. Files of one language become one text, in
which each header stands once, whether or not it says `#pragma once`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

MAX_CHARACTERS = 4 << 20
"""A bound on the characters of all texts together."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)[^\n]*', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b[^\n]*", re.MULTILINE)


class SourceFiles:
    """Reads files of one language; `folders` are searched for headers, after the folder of the including file."""

    def __init__(self, folders: Sequence[str] | str | None = None) -> None:
        self.folders = [folders] if isinstance(folders, str) else [str(folder) for folder in folders or ()]
        self.seen: set[str] = set()
        self.room = MAX_CHARACTERS
        self.own: list[str] = []
        """The texts that `text` has read, without headers."""

    def text(self, path: str) -> str:
        """Returns a file's text with its headers."""
        self.own.append(self._read(path))
        return self.with_headers(self.own[-1], os.path.dirname(os.path.abspath(path)))

    def with_headers(self, text: str, folder: str | None = None) -> str:
        """Returns `text` with the headers that are found; `folder` is its file's folder, if it has a file."""

        def header(match: re.Match[str]) -> str:
            quoted, bracketed = match.groups()
            near = [folder] if quoted and folder else []
            for place in (*near, *self.folders):
                path = os.path.realpath(os.path.join(place, quoted or bracketed))
                if path in self.seen:
                    return ""
                if os.path.isfile(path):
                    self.seen.add(path)
                    return self.with_headers(_ONCE.sub("", self._read(path)), os.path.dirname(path))
            return match.group()

        return _INCLUDE.sub(header, text)

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
