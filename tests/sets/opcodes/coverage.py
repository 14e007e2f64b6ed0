"""The opcodes and modifiers that the machine's decoder accepts, read from its sources, and those without a case."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .case import Case

CSRC = Path(__file__).resolve().parents[3] / "src" / "kernelwright" / "machine" / "csrc"
_LOOP = re.compile(r"for \(const char\* \w+ : \{([^}]*)\}\) h\[")
_TAKEN = re.compile(r'take\("([^"]+)"\)')
_FAMILIES = {"i": "integer", "f": "float", "h": "half"}


def accepted() -> dict[str, set[str]]:
    """Returns the opcodes of the decoder's tables with their files: `mul`, or `mul (float)` for a shared name."""
    found: dict[str, set[str]] = {}
    for path in sorted(CSRC.rglob("*.cpp")):
        text = path.read_text()
        names = re.findall(r'h\["([^"]+)"\]', text)
        for loop in _LOOP.findall(text):
            names += re.findall(r'"([^"]+)"', loop)
        for name in names:
            shown = f"{name[2:]} ({_FAMILIES[name[1]]})" if name.startswith("#") else name
            found.setdefault(shown, set()).add(path.name)
    return found


def modifiers() -> set[str]:
    """Returns the modifiers that some instruction takes by name."""
    return {name for path in CSRC.rglob("*.cpp") for name in _TAKEN.findall(path.read_text())}


_HALVES = ("f16", "f16x2", "bf16", "bf16x2")


def used(cases: Iterable[Case]) -> tuple[set[str], set[str]]:
    """Returns the opcodes (named as in `accepted`) and modifiers in the bodies of cases."""
    opcodes: set[str] = set()
    parts: set[str] = set()
    for case in cases:
        for word in re.findall(r"(?:^|[;{}\n])\s*(?:@!?\w+\s+)?([a-z][\w.:]*)(?=[\s;])", case.ptx()):
            name, *rest = word.split(".")
            parts.update(rest)
            last = rest[-1] if rest else ""
            family = "half" if last in _HALVES else "float" if last in ("f32", "f64") else "integer"
            opcodes |= {name, f"{name} ({family})"}
    return opcodes, parts
