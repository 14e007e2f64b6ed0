"""Reads the symbols of a program's objects and of its executable: kernels, their instances, and device variables.

A kernel's stub holds a variable `kw_id` of its own. Symbols of the executable that only one file sees stand behind that
file's own symbol; all others belong to the first object that defines them.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.backends.device_link import local_name
from kernelwright.backends.source_text.split import UnsupportedSource
from kernelwright.backends.source_text.tokens import line_at
from kernelwright.errors import HarnessError
from kernelwright.machine.runtime import readable

ANONYMOUS = "(anonymous namespace)::"
_ROW = re.compile(r"(\w+) (\w+) ([bBdDrRuVvgG]) (.+)$")
_FILE = re.compile(r"\w+ (?:\w+ )?a unit(\d+)\.\w+$")


@dataclass(frozen=True)
class HostSymbol:
    """A data symbol. `unit`: the number of the file that it is local to, else None."""

    offset: int
    name: str
    written: str
    size: int
    unit: int | None


@dataclass(frozen=True)
class HostKernel:
    """One kernel or template instance: its entry in the PTX, or its name expression."""

    entry: str
    expression: str = ""


def symbols(file: Path) -> list[HostSymbol]:
    """Returns the data symbols of an executable or object. Raises `HarnessError` without nm."""
    rows = []
    for flags in ("-apS", "-apSC"):
        command = ["nm", flags, "--defined-only", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
        if done.returncode:
            raise HarnessError(f"nm failed: {done.stderr[:200]}", "install binutils, which g++ needs as well")
        rows.append(done.stdout.splitlines())
    found: list[HostSymbol] = []
    unit = None
    for plain, written in zip(*rows, strict=True):
        if (mark := _FILE.match(plain)) is not None:
            unit = int(mark[1])
        row, read = _ROW.match(plain), _ROW.match(written)
        if row and read:
            local = unit if row[3].islower() and row[3] not in "uv" else None
            found.append(HostSymbol(int(row[1], 16), row[4], read[4], int(row[2], 16), local))
    return found


def is_kernel(symbol: HostSymbol) -> bool:
    """Tells whether a symbol is a stub's own variable."""
    return symbol.name.endswith("E5kw_id")


def kernel(source: str, symbol: HostSymbol) -> HostKernel:
    """Returns the kernel to which a symbol `kernel(...)::kw_id` belongs. Raises `UnsupportedSource`."""
    encoding = symbol.name.removeprefix("_ZZ").removesuffix("E5kw_id")
    name = symbol.written.removesuffix("::kw_id")
    opening = _parameter_list(name.replace(ANONYMOUS, " " * len(ANONYMOUS)))
    if opening is None:
        return HostKernel(name)  # extern "C"
    if "{lambda" in name or "{unnamed" in name:
        called = re.split(r"[<(]", name.removeprefix("void "))[0].split("::")[-1]
        launch = re.search(rf"\b{called}\b\s*(?:<[^;{{}}]*?>\s*)?<<<", source)
        line = line_at(source, launch.start()) if launch else 0
        raise UnsupportedSource("a kernel instance for a lambda or an unnamed type of host code", line)
    head = name[:opening]
    # The device text has no unnamed namespaces, and NVRTC no kernels of internal linkage: both are asked for by name.
    encoding = encoding.removeprefix("L")  # static
    if head.endswith(">") or ANONYMOUS in name or (symbol.unit is not None and encoding.startswith("N")):
        return HostKernel("", head.removeprefix("void ").replace(ANONYMOUS, ""))
    return HostKernel("_Z" + encoding)


def _parameter_list(name: str) -> int | None:
    """Returns the index of the `(` that opens the parameters: the first outside `<...>`."""
    depth = 0
    for k, c in enumerate(name):
        if c == "<":
            depth += 1
        elif c == ">" and name[k - 1] != "-":
            depth -= 1
        elif c == "(" and depth == 0:
            return k
    return None


_VARIABLE = re.compile(
    r"^(?:\.visible |\.weak |\.extern )?\.(?:global|const)\b[^;={]*?([\w$]+)(?:\[\d*\])*\s*(?:=|;)", re.M
)


@dataclass(frozen=True)
class DeviceModule:
    """The device code of one file, and the entries of its kernels by name expression or by their own name."""

    ptx: str
    entries: dict[str, str]


def local_names(source: str, file: Sequence[HostSymbol], module: DeviceModule) -> dict[str, str]:
    """Returns the names in the PTX of kernels and variables that only their file sees, given the object's symbols.

    Kernels are by name expression or by their own name, variables by their readable name.
    """
    variables = _variables(module.ptx)
    found = {}
    for symbol in file:
        if symbol.unit is None:
            continue
        if is_kernel(symbol):
            one = kernel(source, symbol)
            name = one.expression or one.entry
            found[name] = module.entries.get(name, name)
        elif (name := symbol.written.replace(ANONYMOUS, "")) in variables:
            found[name] = variables[name]
    return found


def table(
    program: Path, objects: Sequence[Path], sources: Sequence[str], modules: Sequence[DeviceModule], linked: str
) -> str:
    """Returns the table that maps the executable's addresses to kernels and variables, with the PTX behind it.

    `objects`, `sources` and `modules` are by file; `linked` is the PTX of all files, empty where they are not linked.
    """
    owner: dict[str, int] = {}
    for unit, file in enumerate(objects):
        for symbol in symbols(file):
            owner.setdefault(symbol.name, unit)
    found = symbols(program)
    managed = {symbol.name.removeprefix("kw_managed_") for symbol in found if symbol.name.startswith("kw_managed_")}
    texts = [linked] if linked else [module.ptx for module in modules]
    known = [_variables(text) for text in texts]
    lines = []
    for symbol in found:
        holder = symbol.unit if symbol.unit is not None else owner.get(symbol.name)
        if holder is None:
            continue
        module = 0 if linked else holder
        if is_kernel(symbol):
            one = kernel(sources[holder], symbol)
            entry = modules[holder].entries.get(one.expression or one.entry, one.entry)
            lines.append(f"kernel\t{symbol.offset:x}\t{module}\t{entry}")
            continue
        written = symbol.written.replace(ANONYMOUS, "")
        own = known[module].get(local_name(written, holder)) if linked and symbol.unit is not None else None
        if (name := own or known[module].get(written)) is not None:
            kind = "managed" if symbol.written.split("::")[-1] in managed else "variable"
            lines.append(f"{kind}\t{symbol.offset:x}\t{module}\t{name}\t{symbol.size}")
    sized = [f"{len(text.encode())}\n{text}" for text in texts]
    return "\n".join([*lines, "ptx", ""]) + "".join(sized)


def _variables(ptx: str) -> dict[str, str]:
    """Returns the names of a module's variables by their readable names; a suffix of the linker's stays behind."""
    found = {}
    for name in _VARIABLE.findall(ptx):
        plain, suffix = re.fullmatch(r"(.*?)((?:_u\d+)?)", name).groups()  # type: ignore[union-attr]
        found[readable(plain) + suffix] = name
    return found
