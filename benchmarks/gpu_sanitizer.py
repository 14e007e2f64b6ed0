"""Compares the functional machine's findings with compute-sanitizer's on planted faults and correct kernels.

    python benchmarks/gpu_sanitizer.py [--machine-only] [--only NAME...] [--json FILE]

The machine runs each kernel of `sanitizer_kernels.py` in three orders of blocks and warps. On a GPU the same text, line
for line, is compiled (nvcc -lineinfo, or NVRTC without nvcc) and run under compute-sanitizer's memcheck, and, if
memcheck reports nothing, under racecheck. Kinds and lines of both judges are compared. Exit status 0 if the kinds
agree, except for faults that a kernel declares the machine cannot see; 1 if not; 2 if compute-sanitizer or a GPU is
missing. `--machine-only` needs neither and compares with the planted faults.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from sanitizer_kernels import KERNELS, Kind, Planted

from kernelwright.machine import Allocation, LaunchOptions, MachineFault, Program
from kernelwright.machine.nvrtc import compile_ptx

ORDERS = ("forward", "reverse", "random")
APART = 1 << 20
"""Bytes between buffers, so that no stray access of one reaches another."""
SECONDS = 120.0
"""The limit for one program under compute-sanitizer."""
_MACHINE: dict[str, Kind] = {
    "out-of-bounds-read": "oob read",
    "out-of-bounds-write": "oob write",
    "misaligned-access": "misaligned",
    "data-race": "race",
}


@dataclass(frozen=True)
class Seen:
    """A judge's finding on one kernel: the kind, the source lines it names, and its own words."""

    kind: str
    lines: tuple[int, ...] = ()
    words: str = ""


def contents(kernel: Planted) -> list[np.ndarray]:
    """Returns the buffers' values: small whole numbers, with different neighbours."""
    made = []
    for c_type, count in kernel.buffers:
        values = (np.arange(count) * 7 + 3) % 101
        made.append(values.astype(np.float32 if c_type == "float" else np.int32))
    return made


# The functional machine


def by_machine(kernel: Planted) -> Seen:
    """Returns the first fault, or the races, that the machine finds in any of three orders."""
    compiled = compile_ptx(kernel.source, name="kernel.cu")
    if not compiled.ok:
        return Seen("does not compile", words=compiled.log[:500])
    program = Program.load(compiled.ptx)
    races: dict[int, str] = {}
    for order in ORDERS:
        try:
            found = _launched(program, kernel, order)
        except MachineFault as caught:
            fault = caught.fault
            return Seen(_MACHINE.get(fault.kind, fault.kind), (fault.line or 0,), fault.message)
        for warning in found:
            races.setdefault(warning.line or 0, warning.message)
    if not races:
        return Seen("clean")
    return Seen("race", tuple(sorted(races)), next(iter(races.values())))


def _launched(program: Program, kernel: Planted, order: str) -> tuple:
    """Returns the races of one launch on fresh buffers, which are `APART` bytes apart; raises `MachineFault`."""
    room = np.zeros((len(kernel.buffers) + 1) * APART, np.uint8)
    start = room.ctypes.data + (-room.ctypes.data) % 512
    table, args = [], []
    for index, values in enumerate(contents(kernel)):
        offset = start - room.ctypes.data + index * APART + APART // 2
        room[offset : offset + values.nbytes] = values.view(np.uint8)
        table.append(Allocation(room.ctypes.data + offset, values.nbytes, f"buffer {index}"))
        args.append(struct.pack("<Q", table[-1].address))
    args += [struct.pack("<i", number) for number in kernel.numbers]
    sizes = (kernel.grid, 1, 1), (kernel.block, 1, 1)
    return program.launch("kernel", *sizes, args, kernel.shared, table, LaunchOptions(order=order)).warnings


# compute-sanitizer


def standalone(kernel: Planted) -> str:
    """Returns a whole program with the kernel's text from line 1; each buffer is an allocation of exact size."""
    names = [f"buffer{i}" for i in range(len(kernel.buffers))]
    lines = ["", "#include <cstdio>", "#include <vector>", "int main() {"]
    for name, (c_type, count) in zip(names, kernel.buffers, strict=True):
        lines += [
            f"  {c_type}* {name};",
            f"  cudaMalloc(&{name}, {count} * sizeof({c_type}));",
            f"  std::vector<{c_type}> host_{name}({count});",
            f"  for (int i = 0; i < {count}; ++i) host_{name}[i] = (i * 7 + 3) % 101;",
            f"  cudaMemcpy({name}, host_{name}.data(), {count} * sizeof({c_type}), cudaMemcpyHostToDevice);",
        ]
    arguments = ", ".join([*names, *map(str, kernel.numbers)])
    lines += [
        f"  kernel<<<{kernel.grid}, {kernel.block}, {kernel.shared}>>>({arguments});",
        "  cudaError_t status = cudaDeviceSynchronize();",
        '  std::printf("%s\\n", cudaGetErrorString(status));',
        "  return status != cudaSuccess;",
        "}",
        "",
    ]
    return kernel.source + "\n".join(lines)


_INVALID = re.compile(r"Invalid __(\w+)__ (read|write|atomic)\b.*?(?=Invalid __|ERROR SUMMARY|\Z)", re.DOTALL)
_RACE = re.compile(
    r"(?:error|warning):\s*(?:Race reported|Potential \w+ hazard).*?(?=(?:error|warning):|\Z)", re.I | re.S
)
_LINE = re.compile(r"\.cu:(\d+)")


def memcheck_says(log: str) -> Seen:
    """Returns the first invalid access in memcheck's output."""
    found = _INVALID.search(log)
    if found is None:
        if "ERROR SUMMARY: 0 errors" in log:
            return Seen("clean")
        return Seen("not understood", words=log[-800:])
    text = found[0]
    if "misaligned" in text:
        kind = "misaligned"
    else:
        kind = "oob read" if found[2] == "read" else "oob write"
    return Seen(kind, _lines(text)[:1], text[:600])


def racecheck_says(log: str) -> Seen:
    """Returns all races in racecheck's output."""
    found = _RACE.findall(log)
    if found:
        return Seen("race", _lines("\n".join(found)), found[0][:600])
    if re.search(r"RACECHECK SUMMARY: 0 hazards", log):
        return Seen("clean")
    return Seen("not understood", words=log[-800:])


def _lines(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(line) for line in _LINE.findall(text)}))


def by_sanitizer(kernel: Planted, folder: Path) -> Seen:
    """Returns memcheck's finding or, if it has none, racecheck's."""
    try:
        command = program_of(kernel, folder)
    except subprocess.CalledProcessError as error:
        return Seen("does not compile", words=str(error.stderr)[:500])
    seen = memcheck_says(_run("memcheck", command))
    if seen.kind == "clean":
        seen = racecheck_says(_run("racecheck", command))
    last = kernel.source.count("\n")  # the lines behind it are main's, which host frames name
    return replace(seen, lines=tuple(line for line in seen.lines if line <= last))


def _run(tool: str, command: Sequence[str]) -> str:
    words = [_tool("compute-sanitizer"), "--tool", tool, "--print-limit", "20", *command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"{tool} took more than {SECONDS:.0f} s"
    return done.stdout + done.stderr


def program_of(kernel: Planted, folder: Path) -> list[str]:
    """Returns the command that runs the kernel once: nvcc's program, or this file with NVRTC's cubin."""
    nvcc = _tool("nvcc")
    if not nvcc:
        return [sys.executable, str(Path(__file__).resolve()), "--launch", kernel.name]
    source, program = folder / f"{kernel.name}.cu", folder / kernel.name
    source.write_text(standalone(kernel))
    command = [nvcc, "-lineinfo", "-arch=native", "-o", str(program), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    return [str(program)]


def _tool(name: str) -> str:
    """Returns a CUDA tool's path, on PATH or in the toolkit; empty if it is missing."""
    places = [Path("/usr/local/cuda/bin"), Path("/usr/local/cuda/compute-sanitizer")]
    found = shutil.which(name) or next((str(p / name) for p in places if (p / name).is_file()), "")
    return found


def launch(kernel: Planted) -> int:
    """Runs one kernel through the driver alone, as compute-sanitizer's target without nvcc."""
    import ctypes

    from kernelwright.machine import driver

    library, context = driver.load(), ctypes.c_void_p()
    driver.check(library.cuInit(0))
    driver.check(library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    driver.check(library.cuCtxSetCurrent(context))
    major, minor = ctypes.c_int(), ctypes.c_int()
    driver.check(library.cuDeviceGetAttribute(ctypes.byref(major), 75, 0))
    driver.check(library.cuDeviceGetAttribute(ctypes.byref(minor), 76, 0))
    built = compile_ptx(kernel.source, arch=f"sm_{major.value}{minor.value}", name="kernel.cu")
    program, args = driver.DeviceProgram(built.cubin), []
    for values in contents(kernel):
        address = driver.allocate(values.nbytes)
        driver.copy(address, values.ctypes.data, values.nbytes)
        args.append(struct.pack("<Q", address))
    args += [struct.pack("<i", number) for number in kernel.numbers]
    program.launch("kernel", (kernel.grid, 1, 1), (kernel.block, 1, 1), kernel.shared, args, 0)
    return int(library.cuCtxSynchronize())


# The comparison


def row(kernel: Planted, machine: Seen, sanitizer: Seen | None) -> dict[str, object]:
    """Returns one kernel's row of the report."""
    other = sanitizer if sanitizer is not None else Seen(kernel.kind, kernel.lines)
    kinds_agree = machine.kind == other.kind
    return {
        "name": kernel.name,
        "planted": kernel.kind,
        "planted_lines": kernel.lines,
        "machine": asdict(machine),
        "sanitizer": asdict(sanitizer) if sanitizer is not None else None,
        "kinds_agree": kinds_agree,
        "lines_agree": kinds_agree and (other.kind == "clean" or bool(set(machine.lines) & set(other.lines))),
        "known_gap": "" if kinds_agree else kernel.beyond,
    }


def table(rows: Sequence[dict[str, object]]) -> str:
    def told(seen: object) -> str:
        if not isinstance(seen, dict):
            return "-"
        lines = ", ".join(map(str, seen["lines"]))
        return f"{seen['kind']}" + (f" ({lines})" if lines else "")

    out = [f"{'kernel':28} {'planted':12} {'machine (lines)':22} {'sanitizer (lines)':22} kind line"]
    for r in rows:
        marks = ["yes" if r[name] else "NO" for name in ("kinds_agree", "lines_agree")]
        cells = f"{r['name']!s:28} {r['planted']!s:12} {told(r['machine']):22} {told(r['sanitizer']):22}"
        gap = f"  known: {r['known_gap']}" if r["known_gap"] else ""
        out.append(f"{cells} {marks[0]:4} {marks[1]}{gap}")
    return "\n".join(out)


def missing() -> str:
    """Returns the reason that compute-sanitizer cannot run here; empty if it can."""
    if not _tool("compute-sanitizer"):
        return "compute-sanitizer is missing: install the CUDA toolkit, or use --machine-only"
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        return "there is no NVIDIA GPU here; use --machine-only"
    return ""


def compared(kernels: Sequence[Planted], machine_only: bool) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        return [row(k, by_machine(k), None if machine_only else by_sanitizer(k, Path(folder))) for k in kernels]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine-only", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--launch", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.launch:
        return launch(next(k for k in KERNELS if k.name == args.launch))
    if not args.machine_only and (problem := missing()):
        print(problem, file=sys.stderr)
        return 2
    rows = compared([k for k in KERNELS if not args.only or k.name in args.only], args.machine_only)
    report = {
        "benchmark": "gpu_sanitizer",
        "date": datetime.date.today().isoformat(),
        "compared_with": "what was planted" if args.machine_only else "compute-sanitizer",
        "kernels": len(rows),
        "kinds_agree": sum(bool(r["kinds_agree"]) for r in rows),
        "lines_agree": sum(bool(r["lines_agree"]) for r in rows),
        "known_gaps": sum(bool(r["known_gap"]) for r in rows),
        "rows": rows,
    }
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print(table(rows))
    print(json.dumps({k: v for k, v in report.items() if k != "rows"}))
    return 0 if rows and all(r["kinds_agree"] or r["known_gap"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
