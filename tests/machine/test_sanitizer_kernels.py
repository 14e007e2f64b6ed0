"""The kernels that `benchmarks/gpu_sanitizer.py` gives to compute-sanitizer: the machine's findings, the parsing."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import gpu_sanitizer
from sanitizer_kernels import KERNELS, Planted

MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ {access} of size 4 bytes
=========     at kernel+0xc0 in /tmp/folder/name.cu:3
=========     by thread (231,0,0) in block (3,0,0)
=========     {problem}
=========     and is 1 bytes after the nearest allocation at 0x7f0000000000 of size 4,000 bytes
=========         Host Frame: main in /tmp/folder/name.cu:21 [0x8f2a] in name
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= {level}: Race reported between Write access at kernel+0x90 in /tmp/folder/name.cu:4
=========     and Read access at kernel+0x120 in /tmp/folder/name.cu:5 [124 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_the_machine_sees_what_was_planted(kernel: Planted) -> None:
    seen = gpu_sanitizer.by_machine(kernel)
    assert seen.kind == ("clean" if kernel.beyond else kernel.kind), seen.words
    assert set(seen.lines) <= set(kernel.lines)
    assert bool(seen.lines) == (seen.kind != "clean")


def test_there_are_enough_of_each_kind() -> None:
    visible = Counter(kernel.kind for kernel in KERNELS if not kernel.beyond)
    assert visible["race"] == 10 and visible["clean"] == 4
    assert visible["oob read"] + visible["oob write"] + visible["misaligned"] == 10
    assert all(kernel.lines for kernel in KERNELS if kernel.kind != "clean")


@pytest.mark.parametrize(
    ("access", "problem", "kind"),
    [
        ("read", "Address 0x7f0000000fa0 is out of bounds", "oob read"),
        ("write", "Access to 0x7f0000000fa0 is out of bounds", "oob write"),
        ("read", "Access at 0x7f0000000004 is misaligned", "misaligned"),
    ],
)
def test_memcheck_is_understood(access: str, problem: str, kind: str) -> None:
    seen = gpu_sanitizer.memcheck_says(MEMCHECK.format(access=access, problem=problem))
    assert (seen.kind, seen.lines) == (kind, (3,))


@pytest.mark.parametrize("level", ["Error", "ERROR", "Warning"])
def test_racecheck_is_understood(level: str) -> None:
    seen = gpu_sanitizer.racecheck_says(RACECHECK.format(level=level))
    assert (seen.kind, seen.lines) == ("race", (4, 5))


def test_nothing_found_and_nothing_understood() -> None:
    assert gpu_sanitizer.memcheck_says("========= ERROR SUMMARY: 0 errors\n").kind == "clean"
    summary = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
    assert gpu_sanitizer.racecheck_says(summary).kind == "clean"
    for read in (gpu_sanitizer.memcheck_says, gpu_sanitizer.racecheck_says):
        assert read("========= Error: Device not supported\n").kind == "not understood"


def test_the_program_holds_the_kernel_line_for_line() -> None:
    for kernel in KERNELS:
        text = gpu_sanitizer.standalone(kernel)
        assert text.startswith(kernel.source) and text.count("cudaMalloc") == len(kernel.buffers)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report.json"
    assert gpu_sanitizer.main(["--machine-only", "--only", "write-write", "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    assert report["kernels"] == report["kinds_agree"] == report["lines_agree"] == 1
    assert report["rows"][0]["machine"]["kind"] == "race"
    monkeypatch.setattr(gpu_sanitizer, "_tool", lambda name: "")
    assert gpu_sanitizer.main([]) == 2
    assert "compute-sanitizer is missing" in capsys.readouterr().err
