"""Traces a name that a compiler does not know to the included header that declares it.

The stand-in answers for many headers of torch and CUDA, not for all that they declare. A name that the real header
declares is missing here and is no mistake of the author. Headers that include all of torch are left out: what they
declare is in the table of `known_names`.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from kernelwright.backends.source_text.includes import include_name
from kernelwright.backends.source_text.tokens import tokenize
from kernelwright.machine import nvrtc

_WHOLE_TORCH = re.compile(
    r"torch/(?:extension|all|torch|types|python|script|library|csrc/.*)\.?h?|ATen/(?:ATen|Functions)\.h"
)
_PYTHON = re.compile(r"_?Py[A-Z_]\w*|PY_[A-Z]\w*|METH_\w+")
"""Names of CPython's headers, which need not be installed."""
_OF_PYTHON = re.compile(r"Python\.h|torch/(?:extension|python)\.h|torch/csrc/.*")
_TORCH_PYTHON = re.compile(r"THP[A-Z]\w*")
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([\w./+-]+\.cuh)[>"]', re.MULTILINE)
MOST_CHARACTERS = 1 << 20


def header_of(name: str, source: str) -> str | None:
    """Returns the header included by `source` that declares `name`; None if none is found."""
    headers = [header for header in map(include_name, tokenize(source)) if header]
    for header in headers:
        if _OF_PYTHON.fullmatch(header) and (_PYTHON.fullmatch(name) or _TORCH_PYTHON.fullmatch(name)):
            return "Python.h" if _PYTHON.fullmatch(name) else header
    word = re.escape(name)
    declares = re.compile(
        rf"^[ \t]*#[ \t]*define[ \t]+{word}\b|\b(?:class|struct|enum|using)[ \t]+{word}\b"
        rf"|^(?![ \t]*(?:return|//|\*|#))[^\n;=(]*[\w>&*][ \t]+[&*]?{word}[ \t]*\(",
        re.MULTILINE,
    )
    for header in headers:
        if not _WHOLE_TORCH.fullmatch(header) and any(declares.search(text) for text in _texts(header)):
            return header
    return None


@cache
def _texts(header: str) -> tuple[str, ...]:
    """Returns the text of a library's header, and of the device headers that it includes itself."""
    first = _text(header)
    if first is None:
        return ()
    return (first, *(text for text in map(_text, _INCLUDED.findall(first)) if text is not None))


def _text(header: str) -> str | None:
    for folder in _folders():
        path = folder / header
        if path.is_file():
            return path.read_text(errors="replace")[:MOST_CHARACTERS]
    return None


@cache
def _folders() -> tuple[Path, ...]:
    """Returns the folders with the headers of torch, as it is installed, and of CUDA."""
    torch = importlib.util.find_spec("torch")
    roots = [Path(place) / "include" for place in (torch.submodule_search_locations or ())] if torch else []
    return (*roots, *(Path(folder) for folder in nvrtc.include_folders()))
