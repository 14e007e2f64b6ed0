"""The builder as the judge sees it: two ways to build an extension for a GPU, each with its own time limit."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterator

import pytest

from kernelwright.builds import BuildRequest
from kernelwright.evaluation.processes import builder_client
from kernelwright.evaluation.processes.builder_client import BuilderClient
from kernelwright.evaluation.processes.pool import Pool

PLAIN = "#include <torch/extension.h>\ntorch::Tensor twice(torch::Tensor x) { return x + x; }\n"
BEYOND = PLAIN.replace("return", "torch::nn::Linear unused(3, 3); return")
"""Asks for a layer, which the stand-in does not have."""
ENDLESS = (
    "__global__ void scale(float* x) { float a[64];"
    + "".join(f"a[{k % 64}] = x[{k}] * {k} + a[{k * 7 % 64}];" for k in range(20_000))
    + " x[0] = a[3]; }\n"
)
"""Takes the compiler a minute, in little memory."""


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
    result = builder.build(request(PLAIN, ENDLESS), 3.0)
    assert result.status == "compile_error" and "did not finish within 3 s" in result.log
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


def bomb(kind: str) -> dict[str, object]:
    """Returns the request for a text of a few hundred bytes that no compiler can compile in its memory."""
    macros = "#define A0 +1.0f*x[i]\n"
    macros += "".join(f"#define A{k} {f'A{k - 1} ' * 16}\n" for k in range(1, 8))
    kernel = macros + "__global__ void f(float* x, int i) { x[i] = 0 A7; }\n"
    host = macros.replace("f*x[i]", "*x") + "double grow(double x) { return 0 A7; }\n"
    if kind == "device":
        return dataclasses.asdict(BuildRequest(kind="device", cuda_source=kernel))
    return dataclasses.asdict(BuildRequest(kind="extension", name="grow", cpp_source=host, functions=("grow",)))


@pytest.mark.parametrize("kind", ["device", "extension"])
def test_a_text_that_needs_too_much_memory_is_its_authors_fault(builder: BuilderClient, kind: str) -> None:
    found = builder.build(bomb(kind), 60.0)
    assert found.status == "compile_error" and "memory" in found.log, found
    assert builder.build(request(PLAIN), 60.0).status == "ok", "the next text has its whole share"


def test_a_compiler_that_needs_too_much_processor_time_is_stopped(
    builder: BuilderClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder_client, "COMPILER_SECONDS", 1.0)
    found = builder.build(dataclasses.asdict(BuildRequest(kind="device", cuda_source=ENDLESS)), 60.0)
    assert found.status == "compile_error" and "processor time" in found.log, found
