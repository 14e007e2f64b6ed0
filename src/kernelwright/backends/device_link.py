"""Links the device code of several files, as `nvcc -rdc=true` does: one PTX module of all of them.

A name that one file defines and another declares becomes one. Names that only their own file sees get a suffix.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_HEAD = re.compile(r"^\s*\.(?:version|target|address_size)\b.*$", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*")
_FILE = re.compile(r"^\s*\.file\s+(\d+)\s+(\".*)$", re.MULTILINE)
_LOCATION = re.compile(r"^(\s*\.loc\s+)(\d+)(\s+\d+\s+\d+)[^\n]*$", re.MULTILINE)
_FUNCTION = re.compile(r"\.(?:entry|func)\s*(?:\([^)]*\)\s*)?([\w$]+)")
_VARIABLE = re.compile(r"\.(?:global|const|shared)\b[^;={]*?([\w$]+)(?:\[\d*\])*\s*(?:=|;)")


class DoubleDefinition(Exception):
    """Raised where two files define one name."""


@dataclass(frozen=True)
class _Piece:
    name: str
    text: str
    defines: bool
    weak: bool


def local_name(name: str, number: int) -> str:
    """Returns the linked module's name for one that only the file of this number sees."""
    return f"{name}_u{number}"


def linked(modules: Sequence[str], local: Sequence[Collection[str]]) -> str:
    """Returns one PTX module for those of all files, of which some may be empty. Raises `DoubleDefinition`.

    `local` holds by file the names that only this file sees and that PTX does not tell from others.
    """
    files: dict[str, int] = {}
    pieces: list[_Piece] = []
    for number, ptx in enumerate(modules):
        pieces += _pieces(_renamed(_numbered(_COMMENT.sub("", ptx), files), number, local[number]))
    defined: dict[str, _Piece] = {}
    for piece in pieces:
        if piece.defines and not (piece.name in defined and piece.weak):
            if piece.name in defined and not defined[piece.name].weak:
                raise DoubleDefinition(piece.name)
            defined[piece.name] = piece
    declared = {piece.name: piece.text for piece in pieces if not piece.defines and piece.name not in defined}
    # Functions may be called before their text; their own declarations, without a body, come first.
    early = [_FUNCTION.search(piece.text) and _declaration(piece.text) for piece in defined.values()]
    variables = [piece.text for piece in defined.values() if not _FUNCTION.search(piece.text)]
    functions = [piece.text for piece in defined.values() if _FUNCTION.search(piece.text)]
    table = [f"\t.file\t{number} {name}" for name, number in files.items()]
    head = "\n".join(_HEAD.findall(next(filter(None, modules), "")))
    body = [*declared.values(), *variables, *(text for text in early if text), *functions, *table]
    return head + "\n" + "\n".join(body) + "\n"


def _declaration(text: str) -> str:
    return text[: text.index("{")].rstrip() + "\n;" if ".func" in text.split("{")[0] else ""


def _numbered(ptx: str, files: dict[str, int]) -> str:
    """Renumbers the module's files by the common table, and drops what points into its debug sections."""
    own = {found[1]: files.setdefault(found[2].strip(), len(files) + 1) for found in _FILE.finditer(ptx)}
    ptx = re.sub(r"\.section\s[^{]*\{[^}]*\}", "", _FILE.sub("", ptx))
    return _LOCATION.sub(lambda m: f"{m[1]}{own.get(m[2], m[2])}{m[3]}", ptx)


def _renamed(ptx: str, number: int, local: Collection[str]) -> str:
    """Gives names without linkage, and those in `local`, a suffix."""
    for piece in _pieces(ptx):
        head = piece.text.split("{")[0]
        if piece.defines and (piece.name in local or not re.search(r"\.(?:visible|weak|extern|common)\b", head)):
            ptx = re.sub(rf"(?<![\w$]){re.escape(piece.name)}(?![\w$])", local_name(piece.name, number), ptx)
    return ptx


def _pieces(ptx: str) -> list[_Piece]:
    """Returns the declarations and definitions at the top level."""
    out, text = [], _HEAD.sub("", ptx)
    first = depth = 0
    for found in re.finditer(r"[{}();]|\"(?:[^\"\\]|\\.)*\"", text):
        mark = found.group()
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(mark, 0)
        piece = text[first : found.end()]
        ends = mark == ";" or (mark == "}" and "=" not in piece.split("{")[0])
        if depth == 0 and ends:
            first = found.end()
            name = _FUNCTION.search(piece) or _VARIABLE.search(piece)
            if name is not None:
                function = _FUNCTION.search(piece) is not None
                defines = mark == "}" or (not function and ".extern" not in piece)
                out.append(_Piece(name[1], piece.strip(), defines, ".weak" in piece.split("{")[0]))
    return out
