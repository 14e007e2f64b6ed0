"""Every sample wrapper from source to result: splitter, NVRTC, g++, loader, and the functional machine."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from handle_road import HandleRuntime, OnHandles
from wrappers import FOLDER, WRAPPERS, Wrapper
from wrappers_cudnn import CUDNN
from wrappers_more import MORE, REFUSED

from kernelwright.backends.build import build
from kernelwright.backends.extension import Extension
from kernelwright.builds import BuildRequest
from kernelwright.machine.runtime import Runtime


def load(wrapper: Wrapper, cache: Path, handles: bool = False) -> tuple[Any, Any]:
    """Returns a built wrapper's module and the runtime; with `handles`, its CUDA tensors have no bytes here."""
    runtime: Any = HandleRuntime(cache) if handles else Runtime(lambda request: build(request, cache))
    request = BuildRequest(
        "extension", wrapper.name, wrapper.cuda, wrapper.cpp, wrapper.functions, cuda_flags=wrapper.cuda_flags
    )
    result = runtime.compile(request)
    assert result.status == "ok", (result.missing, result.log)
    if handles and result.library:
        # A library of its own for each road: static variables hold tensors of the process's first.
        own = Path(result.library).with_suffix(".handles.so")
        result = replace(result, library=str(shutil.copy(result.library, own)))
    extension = Extension(result, runtime)
    return OnHandles(extension, runtime) if handles else extension, runtime


@pytest.mark.parametrize("wrapper", WRAPPERS + MORE + CUDNN, ids=lambda w: w.name)
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


ON_HANDLES = [w for w in WRAPPERS + MORE + CUDNN if w.name != "torch_library"]
"""`torch_library` calls registered operators directly: test_handles.py."""


@pytest.mark.parametrize("wrapper", ON_HANDLES, ids=lambda w: w.name)
def test_wrapper_computes_the_same_on_handles(wrapper: Wrapper, cache: Path) -> None:
    module, runtime = load(wrapper, cache, handles=True)
    for got, expected in wrapper.check(module):
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
        else:
            assert got == expected
    assert {name for name, _ in runtime.library_ops} >= set(wrapper.library)
    assert any(call[0] == "launch" for call in runtime.calls)
    assert not runtime.unsupported and not runtime.faults


@pytest.mark.parametrize("name", REFUSED)
def test_wrapper_that_does_not_build(name: str, cache: Path) -> None:
    status, word = REFUSED[name]
    source = (FOLDER / f"{name}.cu").read_text()
    result = build(BuildRequest("extension", name, source), cache)
    assert result.status == status, (result.missing, result.log)
    assert any(word in item for item in (result.missing if status == "unsupported" else (result.log,)))


TOUCHING = {
    "loop over all": "float s = 0; for (int i = 0; i < 4; ++i) s += ((float*)x.data_ptr())[i]; return x * s;",
    "first element": "float s = *x.data_ptr<float>(); return torch::full_like(x, s);",
    "accessor": "auto a = x.accessor<float, 1>(); return torch::full_like(x, a[0]);",
    "write": "auto y = torch::empty_like(x); y.data_ptr<float>()[0] = 1.f; return y;",
    "own allocation": "float* p; cudaMalloc(&p, 4); *p = 1.f; return x;",
    "memcpy": "float s; std::memcpy(&s, x.data_ptr(), 4); return torch::full_like(x, s);",
}
ALLOWED = {
    "copy": "auto h = x.cpu(); return torch::full_like(x, h.data_ptr<float>()[0]);",
    "to": "auto h = x.to(torch::kCPU); return torch::full_like(x, h.accessor<float, 1>()[0]);",
    "memcpy": "float s; cudaMemcpy(&s, x.data_ptr(), 4, cudaMemcpyDeviceToHost); return torch::full_like(x, s);",
    "item": "return torch::full_like(x, x[0].item<float>());",
    "host tensor": "auto h = torch::empty({4}); h[0] = x[0]; return torch::full_like(x, *h.data_ptr<float>());",
}


def _host_code(cache: Path, bodies: dict[str, str]) -> tuple[Any, Any]:
    functions = "".join(f"torch::Tensor f{k}(torch::Tensor x) {{ {body} }}\n" for k, body in enumerate(bodies.values()))
    defs = "".join(f'm.def("f{k}", &f{k});' for k in range(len(bodies)))
    source = f"#include <torch/extension.h>\n{functions}PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {defs} }}\n"
    return load(_Text("host_code", lambda m: [], text=source), cache, handles=True)


@dataclass(frozen=True)
class _Text(Wrapper):
    text: str = ""

    @property
    def cuda(self) -> str:
        return self.text


def test_host_code_cannot_use_device_pointers(cache: Path) -> None:
    module, runtime = _host_code(cache, TOUCHING)
    for k, name in enumerate(TOUCHING):
        x = torch.arange(1.0, 5.0)
        with pytest.raises(RuntimeError, match="device memory"):
            getattr(module, f"f{k}")(x)
        assert len(runtime.faults) == k + 1, name
        assert runtime.findings[-1]["severity"] == "fault" and f"f{k}()" in runtime.findings[-1]["evidence"]


def test_host_code_reads_what_it_has_copied(cache: Path) -> None:
    module, runtime = _host_code(cache, ALLOWED)
    for k in range(len(ALLOWED)):
        x = torch.arange(1.0, 5.0)
        assert torch.equal(getattr(module, f"f{k}")(x), torch.ones(4))
    assert not runtime.faults
