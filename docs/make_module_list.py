"""Writes docs/modules.md: each module of the package with the first sentence of its docstring.

    python docs/make_module_list.py

`tests/test_readme.py` fails where the file is out of date.
"""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "kernelwright"
OUT = ROOT / "docs" / "modules.md"
HEAD = """# Modules

Written by `python docs/make_module_list.py` from the first sentence of each module's docstring; do not edit.
[architecture.md](architecture.md) says how they work together.
"""


def first_sentence(docstring: str) -> str:
    """Returns the first sentence of a docstring on one line, fit for a cell of a table."""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0]
    return sentence.replace("|", "\\|")


def folder(path: Path) -> str:
    """Returns the folder of a module relative to the package, `.` for the package itself."""
    return path.parent.relative_to(PACKAGE).as_posix()


def module_list() -> str:
    """Returns the text of docs/modules.md. The bundled tasks and candidates in `data/` are no modules."""
    files = [p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] != "data"]
    text = HEAD
    for name, paths in groupby(sorted(files, key=lambda p: (folder(p), p.name)), key=folder):
        text += f"\n## {'kernelwright' if name == '.' else name}/\n\n| module | purpose |\n|---|---|\n"
        for path in paths:
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            text += f"| `{path.name}` | {first_sentence(docstring)} |\n"
    return text


if __name__ == "__main__":
    OUT.write_text(module_list(), encoding="utf-8")
