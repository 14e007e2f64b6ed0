"""The warm compiler, whose headers are already read, gives the same messages as an ordinary g++."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

import psutil
import pytest

from kernelwright.backends import host_build
from kernelwright.backends.warm_compiler import CompilerLost, WarmCompiler, start
from kernelwright.config import cache_dir

GOOD = """#line 1 "cuda.cu"
extern "C" int answer() { return static_cast<int>(torch::IntArrayRef({40, 2}).size()) + 40; }
"""
BAD = GOOD.replace("40;", "fourty;")
LATE = """#line 1 "cuda.cu"
template <class T> int twice(T x) { return x.no_such_member(); }
extern "C" int answer() { return twice(at::Tensor()); }
"""


@pytest.fixture
def warm(tmp_path: Path) -> WarmCompiler:
    header = host_build.precompiled_header(cache_dir(), host_build.DEFAULT_FLAGS)
    preload = host_build._preload(cache_dir())
    assert preload is not None
    command = [host_build.compiler(), *host_build.DEFAULT_FLAGS, *host_build.BASE_FLAGS]
    made = start(command, header, tmp_path / "warm", preload)
    assert made is not None
    yield made
    made.close()


def test_many_texts_one_after_another(warm: WarmCompiler, tmp_path: Path) -> None:
    for _ in range(3):
        assert warm.errors(GOOD, 30) == (0, "")
        status, log = warm.errors(BAD, 30)
        assert status == 1 and log.startswith("cuda.cu: In function") and "cuda.cu:1:" in log and "fourty" in log
        assert "kw-end" not in log and "kw_main" not in log
        assert warm.compile(GOOD, tmp_path / "good.s", 30)[0] == 0
        assert "answer" in (tmp_path / "good.s").read_text()


def test_a_compiler_that_took_its_header_into_memory_says_the_same(warm: WarmCompiler, tmp_path: Path) -> None:
    def said() -> list[tuple[int, str]]:
        return [warm.errors(BAD, 30), warm.errors(GOOD, 30), warm.compile(LATE, tmp_path / "late.s", 30)]

    def assembly() -> str:
        assert warm.compile(GOOD, tmp_path / "good.s", 30)[0] == 0
        return (tmp_path / "good.s").read_text()

    before = said(), assembly()
    for _ in range(10):
        warm.errors(GOOD, 30)
    (compiler,) = psutil.Process(warm._process.pid).children()
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if huge.exists() and "[never]" not in huge.read_text():
        assert compiler.memory_info().rss > 60 << 20  # it holds the header itself now
    assert (said(), assembly()) == before


def test_an_error_in_a_template_instance_shows_when_it_is_compiled(warm: WarmCompiler, tmp_path: Path) -> None:
    assert warm.errors(LATE, 30) == (0, "")
    status, log = warm.compile(LATE, tmp_path / "late.s", 30)
    assert status == 1 and "no_such_member" in log


@pytest.mark.parametrize("end", ["int f() {", "int f() }", "/* never ends", 'const char* s = R"x(', "#if 1"])
def test_an_unfinished_text_is_an_error(warm: WarmCompiler, tmp_path: Path, end: str) -> None:
    status, log = warm.errors(GOOD + end, 30)
    if status == 0:  # the assertions at the end may come first
        status, log = warm.compile(GOOD + end, tmp_path / "unit.s", 30)
    assert status == 1 and "error: " in log and "kw-end" not in log


def test_a_text_that_hides_the_assertions_is_judged_as_it_is(warm: WarmCompiler) -> None:
    assert warm.errors(GOOD + "#define static_assert(...)", 30) == (0, "")


def test_too_long_a_compilation_is_stopped(warm: WarmCompiler, tmp_path: Path) -> None:
    slow = "template <int n> struct A { static constexpr int v = A<n - 1>::v + A<n - 2>::v; };\n"
    slow += "constexpr int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); } static_assert(f(32) == 2178309);"
    status, log = warm.errors(slow, 0.2)
    assert status == -1 and "ran longer" in log and not warm.alive


def test_a_lost_compiler_is_told_and_replaced(tmp_path: Path) -> None:
    warm = host_build._warm(cache_dir())
    assert warm is not None
    os.killpg(warm._process.pid, signal.SIGKILL)
    with pytest.raises(CompilerLost):
        warm.errors(GOOD, 5)
    done = host_build.compile_library(cache_dir(), [GOOD], tmp_path / "good.so")
    assert done.ok, done.log
    assert ctypes.CDLL(str(tmp_path / "good.so")).answer() == 42
    assert host_build._warm(cache_dir()) is not warm


def test_without_the_preloaded_library_there_is_none_to_wait(tmp_path: Path) -> None:
    header = host_build.precompiled_header(cache_dir(), host_build.DEFAULT_FLAGS)
    command = [host_build.compiler(), *host_build.DEFAULT_FLAGS, *host_build.BASE_FLAGS]
    assert start(command, header, tmp_path / "warm", tmp_path / "missing.so") is None
