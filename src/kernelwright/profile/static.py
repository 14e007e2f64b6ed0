"""The lowest rung: reads registers, memory and instructions of each kernel from a cubin, without a GPU.

A cubin is an ELF file. Registers and stack are attributes in `.nv.info`: a record is format, attribute, then 16 bits of
value or length, with the numbers that `cuobjdump -elf` prints as EIATTR names. Shared memory and constants are section
sizes. Code is `.text.KERNEL`, 16 bytes per instruction since sm_70. The low nine bits hold the opcode; only kinds that
matter for speed are named. `cuobjdump --dump-resource-usage` and `nvdisasm` give the same numbers, which the tests
check where those tools are installed.
"""

from __future__ import annotations

import io
import struct
from collections import Counter
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section, SymbolTableSection

from kernelwright.errors import UsageError
from kernelwright.profile.facts import Resources

EM_CUDA = 190
MAX_THREADS, FRAME_SIZE, REGCOUNT = 0x05, 0x11, 0x2F
_FLAG_ONLY, _BYTE, _HALF, _SIZED = 1, 2, 3, 4
_RESERVED_SINCE, RESERVED = 90, 1024
"""Since sm_90 the section's size includes the driver's reservation of shared memory."""
WORD = 16
_HEADER = 64
_SECTION_HEADER = 64
_MAX_SECTIONS = 20_000

KINDS: dict[int, str] = {
    0x181: "global_load",
    0x186: "global_store",
    0x183: "local_load",
    0x187: "local_store",
    0x184: "shared_load",
    0x188: "shared_store",
    0x1AE: "async_copy",
    0x18A: "atomic",
    0x18B: "atomic",
    0x18C: "atomic",
    0x18D: "atomic",
    0x18E: "atomic",
    0x1A2: "atomic",
    0x1A6: "atomic",
    0x1A8: "atomic",
    0x1A9: "atomic",
    0x020: "float32",
    0x021: "float32",
    0x023: "float32",
    0x028: "float64",
    0x029: "float64",
    0x02A: "float64",
    0x02B: "float64",
    0x037: "tensor",
    0x03C: "tensor",
    0x03F: "tensor",
    0x1F0: "tensor",
    0x108: "special",
    0x189: "shuffle",
    0x11D: "barrier",
}
"""Kinds of instructions by opcode: LDG, STG, LDL, STL, LDS, STS, LDGSTS; ATOM, ATOMS, RED, REDG, ATOMG; FMUL, FADD,
FFMA; DMUL, DADD, DSETP, DFMA; IMMA, HMMA, DMMA, HGMMA; MUFU, SHFL, BAR."""
_PADDING = 0x118
_GLOBAL_LOAD = 0x181
_WIDTHS = (1, 1, 2, 2, 4, 8, 16)
"""Access width in bytes by a memory instruction's three-bit size field."""


def read_cubin(data: bytes) -> tuple[Resources, ...]:
    """Returns the resources of each kernel of a cubin, in symbol order. Raises `UsageError` for an invalid cubin."""
    try:
        return tuple(_read(data))
    except UsageError:
        raise
    except Exception as error:  # pyelftools raises arbitrary exceptions on damaged files
        raise _damaged(f"{type(error).__name__}: {str(error)[:120]}") from error


def _damaged(what: str) -> UsageError:
    return UsageError(f"this is no sound cubin: {what}", hint="give the bytes that NVRTC, nvcc -cubin or Triton made")


def _read(data: bytes) -> list[Resources]:
    elf = _open(data)
    arch = _arch(elf)
    sections = {s.name: s for s in elf.iter_sections()}
    symbols = next((s for s in sections.values() if isinstance(s, SymbolTableSection)), None)
    if symbols is None:
        raise _damaged("it has no symbols")
    names = [s.name for s in symbols.iter_symbols()]
    registers, stack = _per_kernel(sections.get(".nv.info"), names)
    found = []
    for name in names:
        if name in registers and f".nv.info.{name}" in sections and f".text.{name}" in sections:
            found.append(_kernel(name, arch, registers[name], stack.get(name, 0), sections, len(data)))
    return found


def _open(data: bytes) -> ELFFile:
    """Opens the ELF file after checking the header fields on which a damaged file would fail."""
    if len(data) < _HEADER or data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:
        raise _damaged("it does not start like a 64-bit ELF file")
    machine = struct.unpack_from("<H", data, 18)[0]
    offset = struct.unpack_from("<Q", data, 40)[0]
    size, count, names = struct.unpack_from("<3H", data, 58)
    if machine != EM_CUDA:
        raise _damaged(f"it is made for machine {machine}, not for CUDA ({EM_CUDA})")
    if size != _SECTION_HEADER or not 0 < count <= _MAX_SECTIONS or names >= count:
        raise _damaged("its table of sections is wrong")
    if offset + size * count > len(data):
        raise _damaged("its table of sections lies beyond its end")
    return ELFFile(io.BytesIO(data))


def _arch(elf: ELFFile) -> int:
    """Returns compute capability times ten. Toolkits since 12.8 (ABI version 8) keep it in the flags' second byte."""
    flags = int(elf["e_flags"])
    arch = flags >> 8 & 0xFF if elf["e_ident"]["EI_ABIVERSION"] >= 8 else flags & 0xFF
    if arch < 70:
        raise _damaged(f"it is made for sm_{arch}; sm_70 and later can be read")
    return arch


def _records(section: Section | None) -> list[tuple[int, bytes]]:
    """Returns (attribute, value) of each record in an information section."""
    if section is None or section["sh_type"] == "SHT_NOBITS":
        return []
    data, at, found = section.data(), 0, []
    while at + 4 <= len(data):
        kind, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if kind == _SIZED:
            if at + value > len(data):
                raise _damaged("a record of .nv.info is longer than its section")
            found.append((attribute, data[at : at + value]))
            at += value
        elif kind in (_FLAG_ONLY, _BYTE, _HALF):
            found.append((attribute, data[at - 2 : at]))
        else:
            raise _damaged(f"a record of .nv.info has format {kind}")
    return found


def _per_kernel(section: Section | None, names: list[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Returns registers and stack bytes by kernel."""
    tables: dict[int, dict[str, int]] = {REGCOUNT: {}, FRAME_SIZE: {}}
    for attribute, value in _records(section):
        if attribute in tables and len(value) >= 8:
            symbol, number = struct.unpack_from("<II", value)
            if symbol >= len(names):
                raise _damaged("a record of .nv.info names a symbol that is not there")
            tables[attribute][names[symbol]] = number
    return tables[REGCOUNT], tables[FRAME_SIZE]


def _kernel(
    name: str, arch: int, registers: int, stack: int, sections: dict[str, Section], file_size: int
) -> Resources:
    shared = _size(sections.get(f".nv.shared.{name}"))
    if arch >= _RESERVED_SINCE:
        shared = max(0, shared - RESERVED)
    text = sections[f".text.{name}"]
    if text["sh_type"] == "SHT_NOBITS" or text["sh_size"] > file_size:
        raise _damaged(f"the code of {name} is not in the file")
    bounds = [v for a, v in _records(sections[f".nv.info.{name}"]) if a == MAX_THREADS and len(v) >= 12]
    x, y, z = struct.unpack_from("<3I", bounds[0]) if bounds else (0, 0, 0)
    instructions, mix, width = read_code(text.data())
    if registers > 256 or shared > 1 << 20 or stack > 1 << 24 or x * y * z > 1024:
        raise _damaged(f"the numbers of {name} are beyond what any GPU has")
    return Resources(
        kernel=name,
        arch=arch,
        registers=registers,
        shared_bytes=shared,
        stack_bytes=stack,
        constant_bytes=_size(sections.get(f".nv.constant0.{name}")),
        max_threads=x * y * z or None,
        instructions=instructions,
        mix=mix,
        load_bytes=width,
    )


def _size(section: Any) -> int:
    return int(section["sh_size"]) if section is not None else 0


def read_code(code: bytes) -> tuple[int, dict[str, int], float | None]:
    """Counts instructions without padding, in total and by kind (`KINDS`), and averages the width of global loads."""
    count: Counter[str] = Counter()
    total, widths = 0, []
    for at in range(0, len(code) - WORD + 1, WORD):
        low, high = struct.unpack_from("<QQ", code, at)
        opcode = low & 0x1FF
        if opcode == _PADDING:
            continue
        total += 1
        if opcode in KINDS:
            count[KINDS[opcode]] += 1
        size = high >> 9 & 7
        if opcode == _GLOBAL_LOAD and size < len(_WIDTHS):
            widths.append(_WIDTHS[size])
    return total, dict(sorted(count.items())), sum(widths) / len(widths) if widths else None
