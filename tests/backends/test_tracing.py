"""A name that an included header of a library declares, and that is missing here, is no mistake of the author."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.backends.build import build
from kernelwright.builds import BuildRequest

TEXT = """#include <torch/extension.h>
{include}
__global__ void k(const float* x, float* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] {device};
}}
torch::Tensor f(torch::Tensor x) {{
  {host}
  auto y = torch::empty_like(x);
  k<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
  return y;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("f", &f); }}
"""


def _built(cache: Path, include: str = "", device: str = "", host: str = "") -> tuple[str, tuple[str, ...]]:
    source = TEXT.format(include=include, device=device, host=host)
    result = build(BuildRequest("extension", "traced", source), cache, by_torch=False)
    return result.status, result.missing


@pytest.mark.parametrize(
    ("include", "device", "host", "missing"),
    [
        ("#include <Python.h>", "", "PyLong_FromLong(3);", "PyLong_FromLong of Python.h"),
        (
            "#include <ATen/cuda/AsmUtils.cuh>",
            "+ getLaneId()",
            "",
            "getLaneId of ATen/cuda/AsmUtils.cuh",
        ),
        (
            "#include <ATen/native/cuda/GridSampler.cuh>\n#define INSIDE(i) within_bounds_2d(i, i, 4, 4)",
            "+ INSIDE(i)",
            "",
            "within_bounds_2d of ATen/native/cuda/GridSampler.cuh",
        ),
    ],
)
def test_a_missing_name_says_its_header(cache: Path, include: str, device: str, host: str, missing: str) -> None:
    assert _built(cache, include, device, host) == ("unsupported", (missing,))


@pytest.mark.parametrize("include", ["", "#include <ATen/native/cuda/GridSampler.cuh>", "#include <Python.h>"])
@pytest.mark.parametrize(("device", "host"), [("+ my_typo(i)", ""), ("", "my_typo(x);")])
def test_a_name_of_nobody_is_the_authors(cache: Path, include: str, device: str, host: str) -> None:
    assert _built(cache, include, device, host) == ("compile_error", ())


PASTED = {
    "end": ("k_float", "k_##T"),
    "middle": ("pre_float_k", "pre_##T##_k"),
    "start": ("float_k", "T##_k"),
    "arguments": ("k_float", "k_##T<4>"),
}


@pytest.mark.parametrize("place", PASTED)
def test_a_kernels_name_is_pasted_together_in_a_launch(cache: Path, place: str) -> None:
    name, pasted = PASTED[place]
    head = "template <int N> " if "<" in pasted else ""
    text = TEXT.format(include="", device="", host="").replace("__global__ void k(", f"{head}__global__ void {name}(")
    call = f"#define CALL(T) {pasted}<<<1, 64>>>(x.data_ptr<T>(), y.data_ptr<T>(), (int)x.numel())\n"
    start, _, rest = text.partition("torch::Tensor f(")
    body = rest.replace("k<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel())", "CALL(float)")
    source = f"{start}{call}torch::Tensor f({body}"
    result = build(BuildRequest("extension", "pasted", source), cache, by_torch=False)
    assert result.status == "ok", result.log


def test_checks_have_torchs_shape(cache: Path) -> None:
    host = (
        'TORCH_CHECK(x.dim() > 0, "a") TORCH_INTERNAL_ASSERT(true) TORCH_CHECK_VALUE(true) TORCH_WARN("w")'
        ' TORCH_CHECK_EQ(1, 1) << "more"; AT_ASSERTM(true, "m"); if (x.dim() > 9) TORCH_CHECK(false, "no");'
    )
    assert _built(cache, host=host) == ("ok", ())


def test_names_of_branches_that_are_not_taken_count_for_nobody(cache: Path) -> None:
    include = (
        "#ifndef USE_ROCM\n#include <cub/cub.cuh>\n"
        "#else\n#include <hipcub/hipcub.hpp>\nnamespace cub = hipcub;\n#endif\n"
        "template <int N> struct Traits { using Sort = cub::BlockRadixSort<float, N, 4>; Sort* sort; };"
    )
    status, missing = _built(cache, include, host="Traits<64> t;")
    assert (status, missing) == ("unsupported", ("cub::BlockRadixSort",))
