"""Lines of compiler and machine messages, mapped back to the candidate's own file."""

from __future__ import annotations

import pytest

from kernelwright.backends.source_text.plain import plain_extension_source
from kernelwright.evaluation.text import source_lines

SOURCE = """
#include <cuda_runtime.h>
__global__ void __launch_bounds__(256) scale(float* x) {
    x[threadIdx.x] *= 2;
    x[threadIdx.x] *= 2;
    x[0] = missing;
}
"""
FILE = f'import torch\n\nother = """\n__global__ void second(int* y) {{}}\n"""\ncode = """{SOURCE}"""\n'


def requests(*sources: str) -> list[dict[str, object]]:
    return [{"cuda_source": s} for s in sources]


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(FILE.split("\n"), 1) if text in line)


def test_a_text_that_is_built_again_for_an_instance_is_no_other_text() -> None:
    again = {"kind": "instances", "cuda_source": SOURCE.replace("int", "long")}
    assert source_lines.of_kernel(FILE, [*requests(SOURCE), again], "scale<float>", 4) == line_of("*= 2;")


@pytest.mark.parametrize("kernel", ["scale", "_Z5scalePf"])
def test_line_of_a_kernel(kernel: str) -> None:
    found = source_lines.of_kernel(FILE, requests("\n__global__ void second(int* y) {}\n", SOURCE), kernel, 6)
    assert found == line_of("missing")


def test_line_of_a_text_that_was_put_together() -> None:
    made = "#define N 4\n" + SOURCE
    assert source_lines.of_kernel(FILE, requests(made), "scale", 7) == line_of("missing")
    assert source_lines.of_kernel(FILE, requests(made), "scale", 5) is None  # two lines of the file read like that one
    assert source_lines.of_kernel(FILE, requests(made), "scale", 1) is None


@pytest.mark.parametrize("line", [None, 0, -3, 10_000, "6", True, 2.5])
def test_lines_that_are_none(line: object) -> None:
    assert source_lines.of_kernel(FILE, requests(SOURCE), "scale", line) is None


def test_a_kernel_of_two_sources_has_no_line() -> None:
    assert source_lines.of_kernel(FILE, requests(SOURCE, SOURCE + "\n"), "scale", 6) is None


def test_line_of_a_compile_error() -> None:
    log = 'cuda.cu(6): error: identifier "missing" is undefined'
    assert source_lines.of_error(FILE, {"cuda_source": SOURCE}, log) == line_of("missing")
    assert source_lines.of_error(FILE, {"cpp_source": SOURCE}, "main.cpp:6:12: error: what") == line_of("missing")
    assert source_lines.of_error(FILE, {"cuda_source": SOURCE}, "ld: undefined symbol") is None


PLAIN = "#include <torch/types.h>\n" + SOURCE + "torch::Tensor forward(torch::Tensor x) { return x; }\n"


@pytest.mark.parametrize("binding", ["", 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }\n'])
def test_every_line_of_a_plain_file_is_its_own(binding: str) -> None:
    """Lines that read alike and empty lines have their own numbers, too, although the build's text has other lines."""
    text = PLAIN + binding
    built = plain_extension_source("plain", text, cuda=True).cuda_source
    lines = range(1, text.count("\n") + 2)
    assert [source_lines.of_kernel(text, requests(built), "scale", n) for n in lines] == list(lines)


def test_a_line_behind_a_file_s_own_line_directive() -> None:
    text = 'code = """\n#line 40\n__global__ void k(int* y) {\n  y[0] = 1;\n}\n"""\n'
    source = text.split('"""')[1]
    assert source_lines.of_kernel(text, requests(source), "k", 41) == 4
