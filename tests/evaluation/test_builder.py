"""The builder as the judge sees it: two ways to build an extension for a GPU, each with its own time limit."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterator

import pytest

from kernelwright.builds import BuildRequest
from kernelwright.evaluation.processes.builder_client import BuilderClient
from kernelwright.evaluation.processes.pool import Pool

PLAIN = "#include <torch/extension.h>\ntorch::Tensor twice(torch::Tensor x) { return x + x; }\n"
BEYOND = PLAIN.replace("return", "torch::nn::Linear unused(3, 3); return")
"""Asks for a layer, which the stand-in does not have."""
ENDLESS = (
    "#define A(x) x x x x x x x x x x\n#define B(x) A(A(A(A(x))))\n"
    "__device__ int junk(int a) { B(B(a += a * 3;)) return a; }\n"
    "__global__ void scale(float* x) { x[threadIdx.x] *= junk(2); }\n"
)


@pytest.fixture
def builder() -> Iterator[BuilderClient]:
    with Pool() as pool:
        made = BuilderClient(pool)
        yield made
        made.close()


def request(cpp: str, cuda: str = "") -> dict[str, object]:
    made = BuildRequest(
        kind="extension", name="twice", cpp_source=cpp, cuda_source=cuda, functions=("twice",), arch="sm_90a"
    )
    return dataclasses.asdict(made)


def test_a_device_text_without_end_has_the_time_of_our_own_build(builder: BuilderClient) -> None:
    started = time.monotonic()
    result = builder.build(request(PLAIN, ENDLESS), 6.0)
    assert result.status == "compile_error" and "did not finish within 6 s" in result.log
    assert time.monotonic() - started < 30.0
    assert builder.build(request(PLAIN), 60.0).status == "ok"


def test_what_the_stand_in_lacks_goes_on_to_torch(builder: BuilderClient) -> None:
    found = builder.build(request(BEYOND), 60.0)
    if shutil.which("ninja") is None:
        assert found.status == "unsupported", found
        pytest.skip("torch builds extensions with ninja, which is not installed")
    assert found.status == "ok" and found.built_by == "load_inline", found
    headers = builder.pool.cache / "builds" / "torch-headers"
    assert list(headers.glob("*/torch_extension.h.gch")) and not list(headers.glob("*/*.gch.*")), "made once for all"
    again = builder.build(request(BEYOND), 60.0)
    assert again.built_by == "load_inline" and again.seconds.get("cached")
