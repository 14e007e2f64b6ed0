"""Holds 80 whole programs in the manner of CUDA's samples and of HeCBench, small enough for the functional machine.

A program is a file `GROUP/NAME.cu`, or a folder `files/NAME` with `main.cu`, `main.cpp` or `app/main.cu`. It checks its
own result, prints PASS as its last line and ends with status 0. Comments `// arguments:`, `// flags:` and `// files:`
hold what a user writes on the command line; `// findings:` names the faults that a program makes on purpose.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
GROUPS = ("samples", "features", "libraries", "science", "learning", "data")


@dataclass(frozen=True)
class Program:
    """One program: its main file and what its command line holds."""

    name: str
    path: Path
    arguments: tuple[str, ...]
    flags: tuple[str, ...]
    files: tuple[Path, ...]
    findings: tuple[str, ...] = ()


def programs() -> list[Program]:
    """Returns all programs, by group and name."""
    paths = [path for group in GROUPS for path in sorted((HERE / group).glob("*.cu"))]
    mains = ("main.cu", "main.cpp", "app/main.cu")
    for folder in sorted((HERE / "files").iterdir()):
        paths += [folder / main for main in mains if (folder / main).is_file()][:1]
    return [_program(path) for path in paths]


def _program(path: Path) -> Program:
    text = path.read_text()

    def words(key: str) -> tuple[str, ...]:
        found = re.search(rf"^// {key}: (.*)$", text, re.MULTILINE)
        return tuple(found.group(1).split()) if found else ()

    # An include folder is written as seen from the program's own folder.
    flags = tuple(f"-I{path.parent / flag[2:]}" if flag.startswith("-I") else flag for flag in words("flags"))
    name = "/".join(path.relative_to(HERE).with_suffix("").parts)
    files = tuple(path.parent / file for file in words("files"))
    return Program(name, path, words("arguments"), flags, files, words("findings"))


def passed(status: int, stdout: str) -> bool:
    """Tells whether a program's own check succeeded."""
    lines = stdout.strip().splitlines()
    return status == 0 and bool(lines) and lines[-1].startswith("PASS")
