"""Some of the 80 whole programs of `tests/sets/programs`: each checks its own result and prints PASS.

`benchmarks/whole_programs.py` runs all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from sets.programs import Program, passed, programs

from kernelwright.checks import program_checks
from kernelwright.checks.program_checks import MachineOptions

PART = (
    "samples/reduction",
    "samples/managed_classes",
    "features/host_class_timer",
    "features/std_names",
    "libraries/curand_ising",
    "data/image_filters",
    "files/separable_convolution/main",
    "files/two_devices_units/main",
    "files/separate_compilation/main",
    "files/class_library/main",
    "files/include_folders/main",
    "files/tables/main",
)
"""Each group, and each kind of program with several files."""
ALL = {program.name: program for program in programs()}


def test_the_set_has_80_programs() -> None:
    assert len(ALL) == 80


@pytest.mark.parametrize("program", [ALL[name] for name in PART], ids=PART)
def test_program(program: Program) -> None:
    options = MachineOptions(program.flags)
    complaint, step = program_checks.run_file(program.path, program.arguments, options, files=program.files, keep=None)
    assert not complaint
    assert passed(step.status, step.stdout), step.last_words
    assert not step.findings


PIECE = """#include <cstdio>
namespace { __global__ void k(float* y) { y[0] = FACTOR; } }
static __constant__ float c;
static __global__ void s(float* y) { y[1] = FACTOR * c; }
void NAME() {
  float h = FACTOR, *y;
  cudaMemcpyToSymbol(c, &h, sizeof h);
  cudaMallocManaged(&y, 8);
  k<<<1, 1>>>(y);
  s<<<1, 1>>>(y);
  cudaDeviceSynchronize();
  printf("%g %g\\n", y[0], y[1]);
}
"""


@pytest.mark.parametrize("flags", [(), ("-rdc=true",)], ids=["apart", "linked"])
def test_files_keep_kernels_and_variables_of_their_own(tmp_path: Path, flags: tuple[str, ...]) -> None:
    main, other = tmp_path / "main.cu", tmp_path / "other.cu"
    end = "void second();\nint main() { first(); second(); }\n"
    main.write_text(PIECE.replace("NAME", "first").replace("FACTOR", "2.f") + end)
    other.write_text(PIECE.replace("NAME", "second").replace("FACTOR", "3.f"))
    complaint, step = program_checks.run_file(main, (), MachineOptions(flags), files=(other,), keep=None)
    assert (complaint, step.stdout) == ("", "2 4\n3 9\n")
