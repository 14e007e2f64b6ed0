"""Reads the files of a whole program: its main file with its own headers, further files to compile, and its data.

A quoted include is sought beside the file that has it, then in the folders of `-I`, then among the files that `--file`
names; one in angle brackets in the folders of `-I`. A source that `--file` names and nothing includes is compiled for
itself and linked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.backends.program import MAIN, OWN_HEADERS
from kernelwright.backends.source_text import own_files
from kernelwright.backends.source_text.own_files import OwnFile
from kernelwright.errors import CandidateError
from kernelwright.tasks.files import MAX_BYTES

SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl", ".inc", ".def", ".tpp", ".ipp", ".txt", *SOURCES)
"""Suffixes that an include may name: no other file of this machine gets into a compiler's log."""
_INCLUDE_FLAG = re.compile(r"(?:-I|-isystem|-iquote|--include-path)(?:=|\s+)?(.*)")


@dataclass(frozen=True)
class ProgramSources:
    """The texts for the builder. `main` is empty where the main file is no `.cu`; it is then among the units."""

    main: str
    unit_names: tuple[str, ...]
    unit_sources: tuple[str, ...]


def include_folders(flags: Sequence[str]) -> list[Path]:
    """Returns the folders of the flags `-IDIR`, `-I DIR`, `-isystem DIR` and `--include-path=DIR`."""
    found: list[Path] = []
    words = list(flags)
    while words:
        match = _INCLUDE_FLAG.fullmatch(words.pop(0))
        if match is None:
            continue
        folder = match[1] or (words.pop(0) if words else "")
        found += [Path(folder)] if folder else []
    return found


def is_include_flag(flag: str) -> bool:
    """Tells whether a flag names a folder of headers."""
    return _INCLUDE_FLAG.fullmatch(flag) is not None


def read(path: Path, files: Sequence[Path], flags: Sequence[str]) -> ProgramSources:
    """Reads a program. Raises `CandidateError` for what cannot be read, or headers without end."""
    finder = _Finder(path, files, include_folders(flags))
    main = finder.file(path, MAIN if path.suffix not in (".cpp", ".cc", ".cxx", ".c") else path.name)
    try:
        text = own_files.expanded(main, finder)
        inside = set(own_files.included(main, finder))
        more = [finder.file(f, finder.name(f)) for f in files if f.suffix in SOURCES and f.is_file()]
        for one in more:
            inside |= own_files.included(one, finder)
        units = [(one.name, own_files.expanded(one, finder)) for one in more if one.key not in inside]
    except own_files.TooManyHeaders as error:
        raise CandidateError(str(error), hint="guard each header with #pragma once") from None
    if main.name != MAIN:
        units.insert(0, (main.name, text))
        text = ""
    # The builder tells languages by suffix.
    names = tuple(re.sub(r"\.(?:cc|cxx)$", ".cpp", name) for name, _ in units)
    return ProgramSources(text, names, tuple(source for _, source in units))


class _Finder:
    """Finds a program's own files."""

    def __init__(self, main: Path, files: Sequence[Path], folders: Sequence[Path]) -> None:
        self.main, self.folders = main.resolve(), [folder.resolve() for folder in folders]
        self.given = [file for file in files if file.exists()]

    def __call__(self, name: str, quoted: bool, file: OwnFile) -> OwnFile | None:
        if Path(name).suffix not in _HEADERS or Path(name).is_absolute():
            return None
        places = [Path(file.key).parent / name] if quoted else []
        places += [folder / name for folder in self.folders]
        for given in self.given if quoted else ():
            places += [given.resolve().parent / name] if given.is_dir() else []
            places += [given / name] if given.is_dir() else [given] if given.name == Path(name).name else []
        found = next((place for place in places if place.is_file()), None)
        if found is not None:
            return self.file(found, self.name(found))
        # Copies of the samples name a helper by the path that it has in their own tree.
        library = Path(name).name
        ours = quoted and name != library and any((folder / library).is_file() for folder in OWN_HEADERS)
        return OwnFile(library, library, f"#include <{library}>\n") if ours else None

    def name(self, path: Path) -> str:
        """Returns the name that messages show: as seen from the main file's folder, where it is inside."""
        path = path.resolve()
        for folder in (self.main.parent, *self.folders):
            if path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return path.name

    def file(self, path: Path, name: str) -> OwnFile:
        return OwnFile(str(path.resolve()), re.sub(r'["\\\n]', "_", name), _text(path))


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise CandidateError(f"there is no file {str(path)!r}", hint="name a .cu file with main")
        if path.stat().st_size > MAX_BYTES:
            raise CandidateError(f"{str(path)!r} is larger than {MAX_BYTES >> 20} MB", hint="name a .cu file")
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise CandidateError(f"{str(path)!r} is not UTF-8 text", hint="name a .cu file") from None
    except OSError as error:
        raise CandidateError(f"{str(path)!r} cannot be read: {error.strerror}", hint="check the path") from error
    if not text.strip() and path.suffix in SOURCES:
        raise CandidateError(f"{str(path)!r} is empty", hint="name a .cu file with main")
    return text
