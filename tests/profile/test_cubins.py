"""Cubins by NVRTC: the facts read from their bytes agree with the sources and with NVIDIA's tools.

Damaged cubins give an error of ours or an answer, never another exception.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from cubin_sources import ARCHITECTURES, cubin, tool
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.errors import UsageError
from kernelwright.profile.facts import Resources
from kernelwright.profile.static import KINDS, read_cubin

_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)[^\n]*?/\* 0x([0-9a-f]{16}) \*/")
_MNEMONICS = {
    "global_load": {"LDG"},
    "global_store": {"STG"},
    "local_load": {"LDL"},
    "local_store": {"STL"},
    "shared_load": {"LDS"},
    "shared_store": {"STS"},
    "async_copy": {"LDGSTS"},
    "atomic": {"ATOM", "ATOMS", "ATOMG", "RED", "REDG"},
    "float32": {"FADD", "FMUL", "FFMA"},
    "float64": {"DADD", "DMUL", "DFMA", "DSETP"},
    "tensor": {"HMMA", "IMMA", "DMMA", "HGMMA"},
    "special": {"MUFU"},
    "shuffle": {"SHFL"},
    "barrier": {"BAR"},
}


def _kernels(arch: str) -> dict[str, Resources]:
    return {r.kernel: r for r in read_cubin(cubin(arch))}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_what_the_texts_say(arch: str) -> None:
    found = _kernels(arch)
    assert set(found) == {
        *("plain", "wide", "shared_tile", "local_array", "doubles", "atomics", "shuffles", "tensor_cores"),
    }
    assert {r.arch for r in found.values()} == {int(arch.removeprefix("sm_").rstrip("a"))}
    assert all(4 <= r.registers <= 128 and r.instructions > 5 for r in found.values())
    assert found["shared_tile"].shared_bytes == 400 and found["shared_tile"].max_threads == 256
    assert found["plain"].shared_bytes == 0 and found["plain"].max_threads is None
    assert found["local_array"].stack_bytes == 512
    assert {name for name, r in found.items() if r.stack_bytes} == {"local_array"}
    assert found["plain"].load_bytes == 4 and found["wide"].load_bytes == 16 and found["doubles"].load_bytes == 8
    assert found["plain"].constant_bytes > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kinds_of_instructions(arch: str) -> None:
    found = _kernels(arch)
    assert found["plain"].mix == {"float32": 1, "global_load": 1, "global_store": 1}
    assert {"local_load", "local_store"} <= found["local_array"].mix.keys()
    for name, kind in (("tensor_cores", "tensor"), ("doubles", "float64"), ("atomics", "atomic")):
        assert {n for n, r in found.items() if kind in r.mix} == {name}
    assert found["shuffles"].mix["shuffle"] == 1
    assert found["shared_tile"].mix["barrier"] == 1


@pytest.mark.skipif(tool("cuobjdump") is None, reason="cuobjdump is not installed")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_cuobjdump_says_the_same(arch: str, tmp_path: Path) -> None:
    file = tmp_path / "kernels.cubin"
    file.write_bytes(cubin(arch))
    command = [str(tool("cuobjdump")), "--dump-resource-usage", str(file)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:\d+ CONSTANT\[0\]:(\d+)", text)
    reserved = 1024 if int(arch[3:].rstrip("a")) >= 90 else 0
    said = {n: tuple(map(int, (a, b, max(0, int(s) - reserved), c))) for n, a, b, s, c in rows}
    found = _kernels(arch)
    assert said == {n: (r.registers, r.stack_bytes, r.shared_bytes, r.constant_bytes) for n, r in found.items()}


@pytest.mark.skipif(tool("nvdisasm") is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nvdisasm_names_the_same_kinds(arch: str, tmp_path: Path) -> None:
    file = tmp_path / "kernels.cubin"
    file.write_bytes(cubin(arch))
    command = [str(tool("nvdisasm")), "-c", "-hex", str(file)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [(m[1], int(m[2], 16) & 0x1FF) for m in _LINE.finditer(text)]
    assert sum(1 for name, _ in lines if name != "NOP") == sum(r.instructions for r in _kernels(arch).values())
    for name, opcode in lines:
        kind = KINDS.get(opcode)
        assert kind is None or name in _MNEMONICS[kind], (name, hex(opcode))
        assert kind is not None or name not in set.union(*_MNEMONICS.values()), (name, hex(opcode))


@pytest.mark.parametrize(
    "data, said",
    [
        (b"", "does not start like"),
        (b"\x7fELF" + bytes(200), "does not start like"),
        (b"#!/bin/sh\n" * 20, "does not start like"),
    ],
)
def test_other_files(data: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_cubin(data)


def test_programs_are_no_cubins() -> None:
    with pytest.raises(UsageError, match="not for CUDA"):
        read_cubin(Path("/proc/self/exe").read_bytes())


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_cubins(data: st.DataObject) -> None:
    whole = bytearray(cubin("sm_90"))
    table = int.from_bytes(whole[40:48], "little")
    places = st.one_of(
        st.integers(0, 63), st.integers(table, len(whole) - 1), st.integers(0, len(whole) - 1), st.integers(64, 4000)
    )
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(places)] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole))) :]
    try:
        found = read_cubin(bytes(whole))
    except UsageError as error:
        assert str(error) and error.hint
    else:
        assert all(isinstance(r, Resources) for r in found)
