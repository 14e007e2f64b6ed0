"""Names of std that device code gets from libcu++."""

from __future__ import annotations

from kernelwright.machine import device_std, nvrtc


def test_every_name_is_there() -> None:
    names = sorted(device_std._HEADERS)
    text = "".join(f"namespace n{k} {{ using std::{name}; }}\n" for k, name in enumerate(names))
    result = nvrtc.compile_ptx(text + "using std::get;\n__global__ void k() {}\n", flags=("--std=c++20",))
    assert result.ok, result.log


def test_texts_that_name_none_stay_as_they_are() -> None:
    assert device_std.preamble("__global__ void k(float* x) { x[0] = std::max(x[0], std::get<0>(p)); }") == ""
    assert device_std.preamble("cuda::std::tuple<int> t; using std::max;") == ""


def test_lines_are_those_of_the_text() -> None:
    result = nvrtc.compile_ptx("__global__ void k(int* x) {\n  x[0] = std::popcount(1u);\n  wrong;\n}\n")
    assert not result.ok and "cuda.cu(3): error" in result.log


def test_complex_numbers_and_plain_ones_beside_each_other() -> None:
    text = (
        "__global__ void k(at::complex<double>* z, double* x) {\n"
        "  x[0] = std::abs(z[0]) + std::abs(x[1]) + std::abs(-1) + std::exp(z[1]).real() + std::pow(x[2], 2.0);\n"
        "  z[2] = std::pow(z[0], 2.0) / z[1] + 1.0; }\n"
    )
    result = nvrtc.compile_ptx(text)
    assert result.ok, result.log
