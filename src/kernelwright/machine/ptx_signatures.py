"""Reads the kernels' signatures from PTX, without decoding their instructions."""

from __future__ import annotations

import re

from kernelwright.machine import KernelInfo

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?")
_VARIABLE = re.compile(
    r"^\s*(?:\.(?:visible|weak|common)\s+)*\.(global|const)\s+(?:\.\w+\s+(?:\d+\s+)?)*([\w$]+)\s*(?:\[|=|;)",
    re.MULTILINE,
)
_PARAM = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.([bus]|f)(\d+)[^,\[]*(?:\[(\d+)\])?")


def signatures(ptx: str) -> dict[str, KernelInfo]:
    """Returns each entry's name and parameters; static shared memory and the bound on threads are 0, as unknown."""
    return {name: KernelInfo(name, _params(text or ""), 0, 0) for name, text in _ENTRY.findall(ptx)}


def variables(ptx: str) -> dict[str, bool]:
    """Returns the names of the variables that PTX defines; True for those in constant memory."""
    return {name: space == "const" for space, name in _VARIABLE.findall(ptx)}


def _params(text: str) -> tuple[tuple[int, int], ...]:
    """Returns (bytes, alignment) of each parameter in a PTX parameter list."""
    found = []
    for align, _kind, bits, count in _PARAM.findall(text):
        size = int(bits) // 8
        found.append((size * int(count) if count else size, int(align or size)))
    return tuple(found)
