"""Every sample wrapper from source to result: splitter, NVRTC, g++, loader, and the machine that runs kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from wrappers import WRAPPERS, Wrapper
from wrappers_more import MORE

from kernelwright.backends.build import build
from kernelwright.backends.extension import Extension
from kernelwright.builds import BuildRequest
from kernelwright.machine.runtime import Runtime


def load(wrapper: Wrapper, cache: Path) -> tuple[Any, Runtime]:
    runtime = Runtime(lambda request: build(request, cache))
    request = BuildRequest(
        "extension", wrapper.name, wrapper.cuda, wrapper.cpp, wrapper.functions, cuda_flags=wrapper.cuda_flags
    )
    result = runtime.compile(request)
    assert result.status == "ok", (result.missing, result.log)
    return Extension(result, runtime), runtime


@pytest.mark.parametrize("wrapper", WRAPPERS + MORE, ids=lambda w: w.name)
def test_wrapper_computes_what_it_says(wrapper: Wrapper, cache: Path) -> None:
    module, runtime = load(wrapper, cache)
    runtime.begin_call()
    for got, expected in wrapper.check(module):
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
        else:
            assert got == expected
    recorded = {name for name, _ in runtime.library_ops}
    assert recorded >= set(wrapper.library)
    facts = runtime.end_call()
    assert facts.launches and facts.own_calls
    assert not runtime.unsupported and not runtime.faults
