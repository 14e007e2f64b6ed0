"""Merges kernels that are equal but for their names: one is written, and every launch uses it.

A network repeats its layers: two convolutions with a ReLU each are one kernel that is launched twice with other sizes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelwright.solutions.kernels.plan import stands_for, title, unmarked

_KERNEL = re.compile(r'extern "C" __global__ void (?:__\w+__\([^)]*\) )*(\w+)\(([^)]*)\)')
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_DECLARED = re.compile(r"\b(?:float|int|long long|bool) (\w+) =")
_STEP = re.compile(r"(?:\w*_)?[tu]\d+[a-z]*")
"""The name that a kernel gives a value of the plan, or a part of one."""


def shared(kernels: Sequence[str], lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns CUDA texts and forward's lines with one kernel in place of several that are equal but for names.

    Where the plan gives a removed text a title, the name of the kernel that replaces it stands there.
    """
    first: dict[str, str] = {}
    serves: dict[str, str] = {}
    kept: list[str] = []
    for text in kernels:
        found = _KERNEL.findall(text)
        if len(found) != 1:
            kept.append(text)
            continue
        ((name, parameters),) = found
        known = first.setdefault(_shape(text, name, parameters), name)
        if known == name:
            kept.append(text)
            continue
        serves[name] = known
        if said := title(text):
            kept.append(stands_for(said, known))
    return kept, [re.sub(r"\bkernels\.(\w+)", lambda m: f"kernels.{serves.get(m[1], m[1])}", line) for line in lines]


def _shape(text: str, name: str, parameters: str) -> str:
    """Returns a kernel's text with numbers, by first appearance, for the names that may differ."""
    own = {name, *_DECLARED.findall(text), *(p.split()[-1].lstrip("*") for p in parameters.split(",") if p.strip())}
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        word = match[0]
        if word not in own and not _STEP.fullmatch(word):
            return word
        return f"${numbers.setdefault(word, len(numbers))}"

    return _WORD.sub(number, unmarked(text))
