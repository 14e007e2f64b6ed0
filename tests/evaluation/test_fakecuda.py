"""The pretended GPU: devices that tensors report, and other facts that candidates find without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from relu_task import DOUBLED

from kernelwright.backends.host_memory import HOST
from kernelwright.backends.triton import triton_support
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.candidate.fake_cuda import FakeCuda, OperatorLog
from kernelwright.evaluation.candidate.fake_torch import Generator, _legacy, _on_host
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

HEAD = """
import faulthandler, sys
import numpy as np
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
SOURCE = r'''
#include <torch/extension.h>
__constant__ float FACTOR[2];
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR[1] * fmaxf(x[i], 0.f);
}
void set(torch::Tensor f) {
    TORCH_CHECK(f.device().is_cpu() && !f.is_cuda());
    TORCH_CHECK(f.data_ptr<float>()[1] == 2.f);
    cudaMemcpyToSymbol(FACTOR, f.data_ptr<float>(), 8);
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    k<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
torch::Tensor on_host(torch::Tensor x) {
    auto y = torch::empty(x.sizes(), torch::kFloat32);
    for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 2 * std::max(x.data_ptr<float>()[i], 0.f);
    return y;
}
'''
m = load_inline(name="m", cpp_sources="void set(torch::Tensor f); torch::Tensor run(torch::Tensor x);"
                "torch::Tensor on_host(torch::Tensor x);", cuda_sources=SOURCE, functions=["set", "run", "on_host"])
m.set(torch.from_numpy(np.array([0.0, 2.0], np.float32)))
"""
PRETENCES = """
sys.stdout.reconfigure(line_buffering=True)
sys.stdout.buffer.write(b"bytes")
faulthandler.enable()
torch.set_default_device("cuda")
assert torch.get_default_device().type == "cuda"
line = nn.Linear(3, 4)
with torch.device("cuda"):
    assert nn.Linear(3, 4).to(torch.cuda.current_device()).weight.is_cuda
with torch.cuda.nvtx.range("all"):
    torch.cuda.nvtx.range_push("k"), torch.cuda.nvtx.range_pop(), torch.cuda.nvtx.mark("k")
torch.randn(3, generator=torch.Generator(device="cuda").manual_seed(3), device="cuda")
torch.cuda.memory_summary(), torch.cuda.reset_max_memory_allocated(), torch.cuda.initial_seed()
torch.cuda.set_sync_debug_mode("default")
assert isinstance(torch.cuda.FloatTensor(2, 3), torch.cuda.FloatTensor)

class ModelNew(nn.Module):
    def forward(self, x):
        return m.run(x)
"""
OPERATORS = """
@torch.library.custom_op("pretended::one", mutates_args=(), device_types="cuda")
def one(x: torch.Tensor) -> torch.Tensor:
    assert x.is_cuda
    return {one}

library = torch.library.Library("pretended_too", "DEF")
library.define("two(Tensor x) -> Tensor")
library.impl("two", lambda x: {two}, "CUDA")
library.impl("two", lambda x: x, "CPU")

class ModelNew(nn.Module):
    def forward(self, x):
        return {call}
"""
MODEL = "\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(seed=3, timeout=30), pool=pool) as shared:
        yield shared


@pytest.fixture
def fake() -> Iterator[list[torch.Tensor]]:
    registered: list[torch.Tensor] = []
    with FakeCuda(registered.append):
        yield registered


def judged(evaluator: Evaluator, text: str) -> Evaluation:
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=HEAD + text),), language="cuda")
    return evaluator.evaluate(Task(task_id="t", source=DOUBLED), candidate)


def test_devices_by_number(fake: list[torch.Tensor]) -> None:
    assert torch.zeros(2, device=0).is_cuda and torch.device(0) == torch.device("cuda", 0)
    x = torch.zeros(3)
    assert x.to(0) is x and x.to(device=0) is x and torch.empty(2, device=x.get_device()).is_cuda
    assert torch.nn.Linear(2, 2, device=0).to(0).weight.is_cuda


def test_the_host_has_memory_of_its_own(fake: list[torch.Tensor]) -> None:
    x = torch.zeros(3)
    for host in (x.cpu(), x.to("cpu"), x.to(device="cpu"), x.to(torch.device("cpu"), torch.float32)):
        assert host.is_cpu and not host.is_cuda and host.device.type == "cpu" and host.get_device() == -1
        host += 1
        assert host.cpu() is host
        for there in (host.cuda(), host.to("cuda"), host.to(x.device), host.to(0), host.to(x)):
            assert there.is_cuda and there.device.type == "cuda"
            there += 1
        assert host.tolist() == [1.0, 1.0, 1.0]
    assert x.is_cuda and x.cuda() is x and x.tolist() == [0.0, 0.0, 0.0]


def test_what_is_made_of_host_tensors_is_on_the_host(fake: list[torch.Tensor]) -> None:
    host, x = torch.ones(4, device="cpu"), torch.ones(4)
    assert all(t.is_cpu for t in (host * 2, host[1:], torch.cat([host, host]), torch.empty_like(host)))
    assert (host + x).is_cuda and torch.zeros_like(host, device="cuda").is_cuda and torch.zeros(3).is_cuda
    table = _on_host(torch.from_numpy)(np.ones(4, np.float32))
    assert table.is_cpu and not HOST.fetched(table)
    assert HOST.fetched(x.cpu()) and not HOST.fetched(host)
    host.copy_(x)
    assert host.is_cpu and HOST.fetched(host)


def test_arrays_are_copied_to_the_device(fake: list[torch.Tensor]) -> None:
    staging = np.ones(4, np.float32)
    there = [torch.as_tensor(staging, device="cuda"), torch.as_tensor(staging).to("cuda")]
    there.append(_on_host(torch.from_numpy)(staging).cuda())
    staging[:] = 7
    assert all(t.is_cuda and t.tolist() == [1.0] * 4 for t in there) and torch.as_tensor(staging).is_cpu


def test_weights_and_inputs_are_on_the_device(fake: list[torch.Tensor]) -> None:
    weight = torch.ones(4, device="cpu")
    assert weight.is_cpu
    OperatorLog().adopt([weight], fixed=True)
    assert weight.is_cuda


def test_kernels_do_not_reach_the_host(fake: list[torch.Tensor]) -> None:
    torch.ones(4, device="cpu").data_ptr()
    assert fake == []
    torch.ones(4).data_ptr()
    assert len(fake) == 1


def test_what_torch_lacks_without_cuda_is_no_fault_of_the_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    monkeypatch.setattr(FakeCuda, "unsupported", found)
    for message in ("module 'torch._C' has no attribute '_cuda_graphs'", "Torch not compiled with CUDA enabled"):
        with pytest.raises(RuntimeError), FakeCuda(lambda _t: None):
            raise RuntimeError(message)
    with pytest.raises(AttributeError), FakeCuda(lambda _t: None):
        raise AttributeError("module 'torch' has no attribute 'emptyy'")
    assert found == ["torch._C._cuda_graphs", "torch: Torch not compiled with CUDA enabled"]


def test_generators_and_old_classes(fake: list[torch.Tensor]) -> None:
    made = Generator(device="cuda")
    assert isinstance(made, torch.Generator) and made.device.type == "cuda" and made.manual_seed(3) is made
    old = _legacy("HalfTensor", torch.float16)
    assert old(2, 3).shape == (2, 3) and old([1, 2]).tolist() == [1.0, 2.0]
    assert isinstance(old(1), old) and not isinstance(torch.ones(1), old)


def test_what_is_pretended_changes_no_result(evaluator: Evaluator) -> None:
    result = judged(evaluator, PRETENCES)
    assert result.verdict == "correct", f"{result.reason}\n{result.log}"


@pytest.mark.parametrize("call", ["one(x)", "torch.ops.pretended_too.two(x)"])
def test_operators_for_cuda_are_what_computes(evaluator: Evaluator, call: str) -> None:
    result = judged(evaluator, OPERATORS.format(one="m.run(x)", two="m.run(x)", call=call))
    assert result.verdict == "correct", f"{result.reason}\n{result.log}"


@pytest.mark.parametrize("call", ["one(x)", "torch.ops.pretended_too.two(x)"])
@pytest.mark.parametrize(
    "body", ["m.run(x) * 0 + 2 * torch.relu(x)", "m.run(torch.from_numpy(np.maximum(x.cpu().numpy(), 0)).cuda())"]
)
def test_what_they_call_is_seen(evaluator: Evaluator, call: str, body: str) -> None:
    result = judged(evaluator, OPERATORS.format(one=body, two=body, call=call))
    assert result.verdict == "rejected", result.reason


def test_a_copy_on_the_host_is_no_way_to_compute_there(evaluator: Evaluator) -> None:
    result = judged(evaluator, MODEL + "        return m.run(m.on_host(x.cpu()).cuda() / 2)")
    assert result.verdict == "rejected", result.reason
    kernel = MODEL + "        y = m.run(x)\n        y.copy_(m.on_host(x.cpu()))\n        return y"
    assert judged(evaluator, kernel).verdict == "rejected"


def test_compiled_code_does_not_launch_on_the_host(evaluator: Evaluator) -> None:
    assert judged(evaluator, MODEL + "        return m.run(torch.zeros(x.shape, device='cpu'))").verdict != "correct"


PLAIN = """
text = '''extern "C" __global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.f * fmaxf(x[i], 0.f);
}'''
"""
LAUNCHES = {
    "module": PLAIN
    + "from kernelwright.cuda import Module\nmodule = Module(text)\ndef launch(x, y):\n"
    + "    module.k[(x.numel() + 255) // 256, 256](x, y, x.numel())\n",
    "torch": PLAIN
    + "kernel = torch.cuda._compile_kernel(text, 'k')\ndef launch(x, y):\n"
    + "    kernel(((x.numel() + 255) // 256, 1, 1), (256, 1, 1), (x, y, x.numel()))\n",
    "triton": """
import triton, triton.language as tl
@triton.jit
def k(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2.0 * tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)
def launch(x, y):
    k[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
""",
}


@pytest.mark.parametrize("form", LAUNCHES)
def test_no_kernel_that_python_launches_is_given_host_memory(evaluator: Evaluator, form: str) -> None:
    if form == "triton" and not triton_support.installed():
        pytest.skip("Triton is not installed")
    body = "        y = torch.empty_like(x)\n        launch(GIVEN, y)\n        return y"
    right = judged(evaluator, LAUNCHES[form] + MODEL + body.replace("GIVEN", "x.clone()"))
    assert right.verdict == "correct", right.reason
    wrong = judged(evaluator, LAUNCHES[form] + MODEL + body.replace("GIVEN", "x.cpu()"))
    assert wrong.verdict == "runtime_error" and "ValueError" in wrong.reason, wrong.reason
    assert "GPU" in wrong.reason or "CUDA" in wrong.reason or "cpu tensor" in wrong.reason


MOVED = """
m2 = load_inline("moved", "torch::Tensor moved(torch::Tensor x);", r'''
#include <torch/extension.h>
__global__ void scaled(const float* x, float* y, const float* f, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = f[1] * fmaxf(x[i], 0.f);
}
torch::Tensor moved(torch::Tensor x) {
    float table[2] = {1.f, 2.f};
    auto host = torch::from_blob(table, {2}), f = FACTOR;
    auto y = torch::empty_like(x);
    scaled<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), f.data_ptr<float>(), x.numel());
    return y;
}
''', functions=["moved"])
class ModelNew(nn.Module):
    def forward(self, x):
        return m2.moved(x)
"""


@pytest.mark.parametrize(
    "factor",
    [
        "torch::tensor({1.f, 2.f}).to(torch::kCUDA)",
        "host.to(x.device())",
        "host.cuda()",
        "torch::tensor({1, 2}).to(x.options())",
        "torch::tensor({1.0, 2.0}).to(x.device(), torch::kFloat)",
    ],
)
def test_what_compiled_code_moves_to_the_device_is_there(evaluator: Evaluator, factor: str) -> None:
    result = judged(evaluator, MOVED.replace("FACTOR", factor))
    assert result.verdict == "correct", f"{result.reason}\n{result.log}"


def test_what_compiled_code_leaves_on_the_host_is_not(evaluator: Evaluator) -> None:
    assert judged(evaluator, MOVED.replace("FACTOR", "host.clone()")).verdict == "runtime_error"


def test_jiterator_is_missing_and_no_fault(evaluator: Evaluator) -> None:
    text = MODEL + "        return twice(x)\n"
    made = 'twice = torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x + x; }")\n'
    result = judged(evaluator, made + text)
    assert result.verdict == "unsupported" and "torch.cuda.jiterator" in result.reason, result.reason
