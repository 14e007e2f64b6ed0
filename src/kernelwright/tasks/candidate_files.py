"""Finds the source files that belong to a candidate: those beside it that it builds or imports. Executes nothing."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from kernelwright import syntax
from kernelwright.errors import CandidateError
from kernelwright.records import SourceFile
from kernelwright.tasks.files import read_text

MAX_FILES = 256
MAX_CHARACTERS = 4 << 20
CODE_SUFFIXES = frozenset(".cu .cuh .cpp .cc .cxx .c .h .hh .hpp .hxx .inl .inc".split())
_SKIPPED = frozenset("build dist __pycache__ node_modules venv site-packages".split())
_QUOTED_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"', re.MULTILINE)


def main_file(path: Path) -> Path:
    """Returns the file that defines a candidate's `ModelNew`: `path` itself, or of a folder its `candidate.py` or only
    Python file. Raises `CandidateError`."""
    if not path.is_dir():
        return path
    if (path / "candidate.py").is_file():
        return path / "candidate.py"
    own = sorted(p for p in path.glob("*.py") if p.name not in ("setup.py", "task.py"))
    if len(own) != 1:
        raise CandidateError(
            f"the folder {str(path)!r} has no candidate.py", hint="name the file that defines ModelNew candidate.py"
        )
    return own[0]


def files_beside(main: Path, text: str) -> tuple[SourceFile, ...]:
    """Returns the further files of the candidate in `main`, with paths relative to its folder.

    C++ and CUDA files of the folder count if the text loads files, or if a `setup.py` is there; Python packages of the
    folder and `setup.py` count then, too. Raises `CandidateError` for more than 256 files or 4 million characters.
    """
    folder = main.parent
    setup = main.suffix == ".py" and (folder / "setup.py").is_file() and main.name != "setup.py"
    if main.suffix != ".py":
        wanted = _QUOTED_INCLUDE.search(text) is not None
    else:
        wanted = setup or _loads(text)
    if not wanted:
        return ()
    found: list[SourceFile] = []
    room = MAX_CHARACTERS
    for path in _sources(folder, packages=setup):
        if path == main:
            continue
        if len(found) == MAX_FILES:
            raise _too_many(main, f"more than {MAX_FILES} source files")
        if path.stat().st_size == 0:
            found.append(SourceFile(path=path.relative_to(folder).as_posix(), content=""))
            continue
        if path.stat().st_size > room:
            raise _too_many(main, f"source files of more than {MAX_CHARACTERS >> 20} MB")
        content = read_text(path, CandidateError, "the candidate's file")
        room -= len(content)
        found.append(SourceFile(path=path.relative_to(folder).as_posix(), content=content))
    return tuple(found)


def _loads(text: str) -> bool:
    """Tells whether Python code uses torch's `cpp_extension.load`, or headers of its own (`extra_include_paths`)."""
    if "cpp_extension" not in text:
        return False
    try:
        tree = syntax.parse(text)
    except (SyntaxError, ValueError):
        return False
    modules = {"cpp_extension"}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules |= {a.asname for a in node.names if a.asname and a.name.rpartition(".")[2] == "cpp_extension"}
    return any(_is_load(node, modules) for node in ast.walk(tree))


def _is_load(node: ast.AST, modules: set[str]) -> bool:
    if isinstance(node, ast.ImportFrom):
        module = (node.module or "").rpartition(".")[2]
        return module == "cpp_extension" and any(a.name in ("load", "*") for a in node.names)
    if isinstance(node, ast.Attribute) and node.attr == "load":
        return getattr(node.value, "id", getattr(node.value, "attr", None)) in modules
    return "extra_include_paths" in (getattr(node, "arg", None), getattr(node, "value", None))


def _too_many(main: Path, what: str) -> CandidateError:
    return CandidateError(f"{what} lie beside {str(main)!r}", hint="put the candidate into a folder of its own")


def _sources(folder: Path, packages: bool) -> Iterator[Path]:
    """Yields the code files below a folder in the order of their paths, and with `packages` its Python packages."""
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n not in _SKIPPED)
        for name in sorted(names):
            path = here / name
            python = (
                packages and name.endswith(".py") and ((here / "__init__.py").is_file() or path == folder / "setup.py")
            )
            if (path.suffix in CODE_SUFFIXES or python) and path.is_file() and not path.is_symlink():
                yield path
