"""NVRTC's binding: accepted texts, the messages and cost of failures, and the headers that replace the host's."""

from __future__ import annotations

import time

import numpy as np
import pytest
from machine_launch import launch

from kernelwright.errors import MachineError
from kernelwright.machine import Program, nvrtc
from kernelwright.machine.nvrtc import compile_ptx

KERNEL = 'extern "C" __global__ void k(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = 1.0f; }\n'


def with_include(header: str, body: str = "y[0] = 1.0f;") -> str:
    return f'#include <{header}>\nextern "C" __global__ void k(float* y) {{ {body} }}\n'


def values(text: str, count: int, *flags: str) -> list[float]:
    """Runs `k(float* y)` of a text by one thread and returns the `count` floats that it stores."""
    result = compile_ptx(text, flags=flags)
    assert result.ok, result.log
    y = np.full(count, np.nan, np.float32)
    launch(Program.load(result.ptx), "k", 1, 1, [y])
    return [float(v) for v in y]


def cpu_seconds(text: str) -> float:
    """Returns the least CPU time of three compilations: other load on the machine does not count."""
    spent = []
    for _ in range(3):
        start = time.process_time()
        compile_ptx(text)
        spent.append(time.process_time() - start)
    return min(spent)


def test_compiles_with_line_information() -> None:
    result = compile_ptx(KERNEL, name="mine.cu")
    assert result.ok
    assert ".visible .entry k(" in result.ptx
    assert ".loc" in result.ptx and "mine.cu" in result.ptx


def test_names_of_template_instances() -> None:
    text = "template <typename T, int N> __global__ void fill(T* y) { y[threadIdx.x] = T(N); }"
    wanted = ("fill<float, 3>", "fill<c10::Half, 2>")
    result = compile_ptx(text, expressions=wanted)
    assert result.ok, result.log
    assert set(result.lowered) == set(wanted)
    assert set(result.lowered.values()) == set(Program.load(result.ptx).kernels)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('\n\nextern "C" __global__ void k(float* y) { y[0] = undefined_name; }', "(3)", "undefined_name"),
        ('#include <torch/extension.h>\nextern "C" __global__ void k(float* y) {\n  y[0] = 1.0f\n}', "(4)", "expected"),
        ("__global__ void k(__half2* y, at::Half* z) {\n  y[0].nothing();\n}", "(2)", "nothing"),
    ],
)
def test_errors_name_the_authors_line(text: str, place: str, message: str) -> None:
    result = compile_ptx(text)
    assert not result.ok and result.ptx == ""
    line = next(line for line in result.log.splitlines() if "error" in line)
    assert place in line and message in line


@pytest.mark.parametrize("bounds", ["", "__launch_bounds__(64) "])
def test_a_kernel_may_have_the_name_of_a_type_whose_header_it_does_not_include(bounds: str) -> None:
    assert compile_ptx(f"__global__ void {bounds}half(float* x) {{ x[threadIdx.x] *= 0.5f; }}").ok
    assert compile_ptx("__global__ void k(half* x) { int half_of = 2; x[0] = __float2half(half_of); }").ok


def test_an_unknown_header_is_named() -> None:
    result = compile_ptx(with_include("cufftdx.hpp"))
    assert not result.ok
    assert 'cannot open source file "cufftdx.hpp"' in result.log


@pytest.mark.parametrize(
    "text", ["", "\0\0", "\udcff\udcfe", "}" * 1000, "#include __FILE__", "/* never closed", "#error x"]
)
def test_hostile_texts_are_results(text: str) -> None:
    result = compile_ptx(text, expressions=("k", "", "k<\udcff>", "a;b"))
    assert not result.ok and result.log


def test_flags() -> None:
    limit = with_include("cmath", "y[0] = LIMIT; y[1] = __cplusplus;")
    assert values(limit, 2, "-DLIMIT=2.5f") == [2.5, 201703]
    assert values(limit, 2, "-DLIMIT=1", "--std=c++20") == [1, 202002]
    divide = 'extern "C" __global__ void k(float* y) { y[0] = y[1] / y[2]; }'
    assert "div.rn.f32" in compile_ptx(divide).ptx
    assert "div.approx.ftz.f32" in compile_ptx(divide, flags=["--use_fast_math"]).ptx
    others = [
        "-O3",
        "-Xcompiler",
        "-fPIC",
        "-lineinfo",
        "-gencode=arch=compute_80,code=sm_80",
        "-I/etc",
        "--no-such-flag",
    ]
    assert compile_ptx(KERNEL, flags=others).ptx == compile_ptx(KERNEL).ptx


@pytest.mark.parametrize(
    "header",
    """cstdio cmath math.h stdint.h cstdint vector string map random algorithm iostream limits cfloat mutex optional
    type_traits utility cassert torch/extension.h torch/torch.h ATen/ATen.h ATen/cuda/CUDAContext.h ATen/Dispatch.h
    c10/cuda/CUDAGuard.h c10/cuda/CUDAException.h c10/util/Half.h pybind11/pybind11.h cuda.h cuda_runtime.h
    device_launch_parameters.h cuda_fp16.h cuda_bf16.h cuda_fp8.h mma.h cuda_pipeline.h""".split(),
)
def test_headers(header: str) -> None:
    assert values(with_include(header), 1) == [1.0]


def test_what_headers_of_the_host_give() -> None:
    body = """
    y[0] = std::numeric_limits<float>::max(); y[1] = FLT_MAX; y[2] = (float)M_PI; y[3] = INT_MAX; y[4] = INFINITY;
    y[5] = std::max(2, 3) + std::min(1.5f, 2.5f); y[6] = (float)sizeof(int64_t) + sizeof(uint8_t);
    y[7] = std::sqrt(4.0f); y[8] = std::is_same<std::conditional_t<true, int, float>, int>::value; y[9] =
    y[9] = std::numeric_limits<int64_t>::max(); y[10] = std::abs(-2.5f) + std::fabs(-1.0f) + std::pow(2.0f, 3.0f);
    y[11] = std::isnan(NAN) + std::isinf(1.0f);
    float a = 1, b = 2; std::swap(a, b); y[12] = a; y[13] = -std::numeric_limits<double>::infinity();
    """
    most = float.fromhex("0x1.fffffep127")
    expected = [most, most, float.fromhex("0x1.921fb6p1"), 2.0**31, float("inf"), 4.5, 9, 2, 1, 2.0**63, 11.5, 1, 2]
    assert values(with_include("torch/extension.h", body), 14) == [*expected, float("-inf")]


def test_torchs_half_types_compute_in_float() -> None:
    body = """
    at::Half h = 0.1f; c10::BFloat16 b(0.1f); at::opmath_type<at::Half> wide = h;
    h += h; b = b * 3; y[0] = h; y[1] = b; y[2] = wide; y[3] = h > b; y[4] = sizeof(h) + sizeof(b);
    y[5] = std::numeric_limits<c10::Half>::max(); y[6] = float(h + 1.0f);
    """
    found = values(with_include("torch/extension.h", body), 7)
    assert found == [0.199951171875, 0.30078125, 0.0999755859375, 0, 4, 65504, 1.199951171875]


def test_compilation_is_cheap() -> None:
    plain = with_include("torch/extension.h", "y[threadIdx.x] += 1.0f;")
    groups = "namespace cg = cooperative_groups; cg::this_thread_block().sync(); y[0] = 1.0f;"
    assert cpu_seconds(plain) < 0.06
    assert cpu_seconds(plain.replace("+=", "= undefined +")) < 0.06
    assert cpu_seconds(with_include("cooperative_groups.h", groups)) < 0.3  # over a second with all that it can include


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(nvrtc, "_wheel_folders", lambda: [])
    monkeypatch.setattr(nvrtc.ctypes, "CDLL", nothing)
    nvrtc.load.cache_clear()
    try:
        with pytest.raises(MachineError) as error:
            nvrtc.load()
        assert "pip install" in str(error.value.hint)
    finally:
        monkeypatch.undo()
        nvrtc.load.cache_clear()
