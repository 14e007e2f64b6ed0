"""Headers that NVRTC reads once: the same code and messages, and no harm if a file is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.machine import nvrtc, preambles
from kernelwright.machine.nvrtc import compile_ptx

PLAIN = "__global__ void k(float* y) { y[threadIdx.x] = expf(y[0]) + warpSize; }\n"
HALF = "#include <cuda_fp16.h>\n__global__ void h(__half* y) { y[0] = __hadd(y[1], __float2half(1.5f)); }\n"
TEMPLATE = "template <int N, class T> __global__ void t(T* y) { y[N] = T(N); }\n"
BROKEN = "#define N 3\n\n__global__ void k(float* y) {\n  y[N] = undeclared;\n}\n"
NOISY = '#warning "precompiled header file"\n' + PLAIN

Case = tuple[str, tuple[str, ...], tuple[str, ...]]
CASES: dict[str, Case] = {
    "plain": (PLAIN, (), ()),
    "half": (HALF, ("-D__CUDA_NO_HALF_OPERATORS__",), ()),
    "instances": (TEMPLATE, (), ("t<2, float>", "t<3, int>")),
    "fast": (PLAIN, ("--use_fast_math",), ()),
    "broken": (BROKEN, (), ()),
    "a wrong instance": (TEMPLATE, (), ("t<2, nothing>",)),
    "noisy": (NOISY, (), ()),
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if nvrtc.version() < preambles.FIRST_VERSION:
        pytest.skip("this NVRTC has no precompiled headers")
    nvrtc.keep_preambles(tmp_path)
    yield tmp_path
    nvrtc._kept.clear()


@pytest.mark.parametrize("case", CASES)
def test_code_and_messages_are_the_same(folder: Path, case: str) -> None:
    source, flags, expressions = CASES[case]
    nvrtc._kept.clear()
    plain = compile_ptx(source, flags=flags, expressions=expressions)
    nvrtc.keep_preambles(folder)
    for files in (0, 1, 1):
        done = compile_ptx(source, flags=flags, expressions=expressions)
        assert (done.ok, done.log, done.ptx, done.lowered) == (plain.ok, plain.log, plain.ptx, plain.lowered)
        assert len(list(folder.iterdir())) == files


def test_each_set_of_options_has_its_own(folder: Path) -> None:
    for _ in range(2):
        assert compile_ptx(PLAIN).ok and compile_ptx(HALF).ok
    assert len(list(folder.iterdir())) == 2
    for number in range(preambles.MOST + 2):
        for _ in range(2):
            assert compile_ptx(PLAIN, flags=(f"-DNUMBER={number}",)).ok
    assert len(list(folder.iterdir())) == preambles.MOST


@pytest.mark.parametrize("damage", ["gone", "empty", "junk"])
def test_a_lost_file_costs_nothing_but_time(folder: Path, damage: str) -> None:
    for _ in range(2):
        assert compile_ptx(PLAIN).ok
    (file,) = folder.iterdir()
    file.unlink()
    if damage != "gone":
        file.write_bytes(b"" if damage == "empty" else b"junk" * 100)
    done = compile_ptx(PLAIN)
    assert done.ok and not done.log
    assert not nvrtc._kept[0].further_options([*nvrtc.options(nvrtc.ARCH, ())])  # and it is not tried again
    broken = compile_ptx(BROKEN)
    assert "identifier" in broken.log and str(folder) not in broken.log


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    nvrtc.keep_preambles(folder / "missing")
    for _ in range(3):
        done = compile_ptx(PLAIN)
        assert done.ok and not done.log


HEAVY = """
template <int A, int B> struct Sum { static constexpr int v = Sum<A, (A + B) / 2>::v + Sum<(A + B) / 2 + 1, B>::v; };
template <int A> struct Sum<A, A> { static constexpr int v = A & 3; };
__global__ void k(int* y) { y[0] = Sum<0, 9000>::v; }
"""
LIMITED = """
import resource, sys
from pathlib import Path
from kernelwright.machine import nvrtc
plain, heavy = sys.argv[1:]
assert nvrtc.compile_ptx(plain).ok
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 48 * 2**20,) * 2)
print(nvrtc.compile_ptx(heavy).log)
assert nvrtc.compile_ptx(plain).ok
"""


def test_a_text_that_takes_all_memory_is_told_so() -> None:
    given = [sys.executable, "-c", LIMITED, PLAIN, HEAVY]
    done = subprocess.run(given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "the compiler ran out of memory" in done.stdout


def test_one_that_runs_out_beside_a_preamble_is_tried_without(folder: Path) -> None:
    for _ in range(2):
        assert compile_ptx(PLAIN).ok
    chosen = nvrtc.options(nvrtc.ARCH, ())
    used = nvrtc._kept[0].further_options(chosen)
    assert used and nvrtc._kept[0].failed(chosen, "cuda.cu(5): catastrophic error: unable to obtain mapped memory")
    assert nvrtc._kept[0].further_options(chosen) == used  # others still have it
    assert not nvrtc._kept[0].failed(chosen, 'cuda.cu(5): catastrophic error: cannot open source file "memory.h"\n')
