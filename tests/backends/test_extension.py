"""The loader and the bridge: argument conversion, errors, operators forwarded to torch, recorded facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.backends.build import build
from kernelwright.backends.extension import Extension, normalised
from kernelwright.backends.host_library import TO_HOST, Host
from kernelwright.backends.host_memory import HOST
from kernelwright.builds import BuildRequest
from kernelwright.evaluation.candidate.fake_cuda import OperatorLog
from kernelwright.evaluation.candidate.fresh_memory import FreshMemory
from kernelwright.machine.runtime import Runtime
from kernelwright.machine.tensor_shadows import TensorShadows

SOURCE = (Path(__file__).parent / "wrapper_sources" / "host_only.cpp").read_text()


@pytest.fixture(scope="module")
def runtime(cache: Path) -> Runtime:
    return Runtime(lambda request: build(request, cache))


@pytest.fixture(scope="module")
def module(cache: Path, runtime: Runtime) -> Any:
    result = build(BuildRequest("extension", "host", cpp_source=SOURCE), cache)
    assert result.status == "ok", result.log
    return Extension(result, runtime)


def test_operators_give_what_torch_gives(module: Any) -> None:
    x = torch.randn(4, 5)
    got = module.many(x)
    expected = [x @ x.t(), torch.cat([x, x]).flip(1).cumsum(1), *x.max(1), x.sum(0, True).view(-1, 1) * 2 + 1]
    expected += [x.softmax(-1), x @ x.t(), x.relu(), 1 / x, 2 - x, x**2, x.std(1, unbiased=False)]
    expected += [
        x.abs().clamp_min(0.5).log(),
        x.half(),
        x[0],
        x.argmax(1),
        torch.arange(0, 10, 2),
        x.mean(1),
        x @ x.t(),
    ]
    expected += [x[0:2, 1], torch.conv2d(x[None, None], torch.ones(1, 1, 2, 2), None, 1, 1), torch.tensor([1.0, 2.5])]
    expected += [torch.full((2,), x.sum().item()), x.t(), x.relu(), x.expand(3, 4, 5), x.norm(), x.sort(1, True)[0]]
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_computing_operators_are_recorded_and_moves_are_not(module: Any, runtime: Runtime) -> None:
    runtime.begin_call()
    module.many(torch.randn(4, 5))
    names = [name for name, _ in runtime.library_ops]
    assert "matmul" in names and "softmax" in names and "view" not in names and "transpose" not in names
    assert ("matmul", 20) in runtime.library_ops
    assert runtime.own_calls == 1


def test_arguments(module: Any) -> None:
    assert module.numbers(1) == pytest.approx(3.6)
    assert module.numbers(1, 2, d=2, c=torch.tensor(3.0), e=1) == pytest.approx(108)
    assert module.optional() is None and module.optional(None) is None
    x = torch.ones(2)
    assert module.optional(x) is x and module.optional(x=x) is x
    assert module.text("hi") == "hi!" and module.mixed([1, 2, 3]) == (3, [0.5, 1.5], True)
    assert module.over(4) == 4 and module.over(torch.ones(2, 7)) == 7
    torch.testing.assert_close(module.scaled(x, 2), x * 2)


@pytest.mark.parametrize(
    "args",
    [(), ("1",), (1.5,), (2**40,), (None,), (1, 2, 3, 4, 5, 6), (torch.ones(3),), (object(),)],
    ids=lambda args: f"{len(args)}-{type(args[0]).__name__ if args else ''}",
)
def test_wrong_arguments_are_type_errors(module: Any, args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        module.numbers(*args)


def test_tensor_argument_is_never_none(module: Any) -> None:
    with pytest.raises(TypeError):
        module.boom(None)


def test_exceptions_keep_their_messages(module: Any) -> None:
    with pytest.raises(RuntimeError, match=r"want 2 dims, got 1 in \[3\]"):
        module.boom(torch.ones(3))
    with pytest.raises(RuntimeError, match="plain"):
        module.standard()
    with pytest.raises(RuntimeError, match="shape"):
        module.shapes(torch.ones(3))
    with pytest.raises(RuntimeError, match="expected scalar type Float but found Double"):
        module.typed(torch.ones(3).double())


def test_in_place_work_reaches_the_callers_tensor(module: Any) -> None:
    x = torch.zeros(4)
    module.fill(x)
    assert x.shape == (2, 2) and torch.equal(x, torch.full((2, 2), 4.0))


def test_fresh_memory_is_poisoned(module: Any) -> None:
    with OperatorLog(FreshMemory(TensorShadows())):
        assert module.fresh(torch.ones(8)).isnan().all()


def test_nothing_is_left_behind_but_what_is_kept(module: Any) -> None:
    before = len(Host.get().handles)
    for _ in range(20):
        module.many(torch.randn(3, 5))
        with pytest.raises(TypeError):
            module.over(torch.ones(2), 3)
    assert len(Host.get().handles) == before
    x = torch.ones(3)
    assert module.keep(x) is x and module.keep(torch.zeros(1)) is x
    assert len(Host.get().handles) == before + 1


def test_autograd_mode(module: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    assert not module.guarded(x).requires_grad and module.scaled(x, 2).requires_grad and torch.is_grad_enabled()


def test_unknown_name_is_an_attribute_error(module: Any) -> None:
    with pytest.raises(AttributeError):
        _ = module.nothing


def test_two_extensions_keep_their_functions_apart(cache: Path, runtime: Runtime) -> None:
    modules = []
    for k in (1, 2):
        kernel = f"__global__ void k(float* y) {{ y[threadIdx.x] = {k}.f; }}\n"
        forward = "torch::Tensor forward(torch::Tensor x) { k<<<1, 4>>>(x.data_ptr<float>()); return x; }\n"
        bind = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }\n'
        request = BuildRequest("extension", "two", "#include <torch/extension.h>\n" + kernel + forward + bind)
        modules.append(Extension(build(request, cache), runtime))
    for k, module in enumerate(modules, 1):
        assert module.forward(torch.zeros(4)).tolist() == [float(k)] * 4


def test_host_memory_is_out_of_a_kernels_reach(cache: Path) -> None:
    runtime = Runtime(lambda request: build(request, cache))
    source = """#include <torch/extension.h>
__global__ void k(float* y) { y[threadIdx.x] = 1.f; }
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::zeros({4});  // no device given: a CPU tensor
  k<<<1, 4>>>(y.data_ptr<float>());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
    module = Extension(build(BuildRequest("extension", "cpu", source), cache), runtime)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        module.forward(torch.zeros(4))
    assert runtime.faults


COPIES = """
#include <torch/extension.h>
#include <vector>
__global__ void k(float* y) { y[threadIdx.x] = 1.f; }
void to_host(torch::Tensor x) {
    std::vector<float> h(x.numel());
    cudaMemcpy(h.data(), x.data_ptr<float>(), x.nbytes(), cudaMemcpyDeviceToHost);
}
void in_rows(torch::Tensor x) {
    std::vector<float> h(x.numel());
    size_t width = x.size(1) * 4;
    cudaMemcpy2D(h.data(), width, x.data_ptr<float>(), width, width, x.size(0), cudaMemcpyDefault);
}
void between(torch::Tensor x) {
    auto y = torch::empty_like(x);
    cudaMemcpyAsync(y.data_ptr<float>(), x.data_ptr<float>(), x.nbytes(), cudaMemcpyDeviceToDevice);
}
"""


@pytest.mark.parametrize(("function", "elements"), [("to_host", 600), ("in_rows", 600), ("between", 0)])
def test_copies_to_the_host_are_recorded_and_others_are_not(cache: Path, function: str, elements: int) -> None:
    runtime = Runtime(lambda request: build(request, cache))
    names = ("to_host", "in_rows", "between")
    cpp = "".join(f"void {name}(torch::Tensor x);" for name in names)
    result = build(BuildRequest("extension", "copies", cuda_source=COPIES, cpp_source=cpp, functions=names), cache)
    assert result.status == "ok", result.log
    x = torch.ones(20, 30)
    runtime.begin_call()
    getattr(Extension(result, runtime), function)(x)
    assert [numel for name, numel in runtime.library_ops if name == TO_HOST] == ([elements] if elements else [])


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ("<<<1, 2048>>>", "block.x is 2048"),
        ("<<<0, 32>>>", "is 0"),
        ("<<<1, 32, 65536>>>", "dynamic shared memory"),
        ("", "without a launch configuration"),
    ],
)
def test_bad_launches(cache: Path, runtime: Runtime, launch: str, message: str) -> None:
    source = f"""#include <torch/extension.h>
__global__ void k(float* y) {{ y[threadIdx.x] = 1.f; }}
void forward(torch::Tensor x) {{ k{launch}(x.data_ptr<float>()); }}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""
    module = Extension(build(BuildRequest("extension", "bad", source), cache), runtime)
    with pytest.raises(RuntimeError, match=message):
        module.forward(torch.zeros(32))


def test_openmp_and_optimised_cpp(cache: Path, runtime: Runtime) -> None:
    source = """#include <omp.h>
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* a = x.data_ptr<float>(); float* b = y.data_ptr<float>();
  #pragma omp parallel for
  for (int64_t i = 0; i < x.numel(); ++i) b[i] = a[i] * 2;
  at::parallel_for(0, x.numel(), 16, [&](int64_t from, int64_t to) { for (auto i = from; i < to; ++i) b[i] += 1; });
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
    request = BuildRequest("extension", "omp", cpp_source=source, cpp_flags=("-O3", "-fopenmp"))
    result = build(request, cache)
    assert result.status == "ok", result.log
    runtime = Runtime(lambda request: build(request, cache))
    runtime.device = "cpu"  # a candidate for the processor: its host code may read every tensor
    x = torch.randn(1000)
    torch.testing.assert_close(Extension(result, runtime).forward(x), x * 2 + 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void k<float, 4>(float const*)", "k<float,4>"),
        ("k<long int, 3u>", "k<long, 3>"),
        ("void (anonymous namespace)::k(int)", "k"),
        ("void ns::k<c10::Half, (bool)1>(int)", "ns::k<c10::Half, (bool)1>"),
        ("k<unsigned char>", "void k<unsigned char>(unsigned char*)"),
        ("k<long long unsigned int>", "k<unsigned long>"),
    ],
)
def test_names_meet_in_one_spelling(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


LAMBDA = """#include <torch/extension.h>
template <class F> __global__ void each(F f, int n) { if (threadIdx.x < n) f(threadIdx.x); }
template <class T> void scaled(const T* in, T* out, int n, T by) {
  auto work = [=] __device__ (int i) { out[i] = in[i] * by + T(n); };
  each<<<1, 128>>>(work, n);
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  if (x.scalar_type() == torch::kDouble) scaled<double>(x.data_ptr<double>(), y.data_ptr<double>(), n, 3);
  else scaled<float>(x.data_ptr<float>(), y.data_ptr<float>(), n, 2);
  return y;
}
"""


def test_kernels_called_with_lambdas(cache: Path, runtime: Runtime) -> None:
    request = BuildRequest("extension", "lam", LAMBDA, "torch::Tensor forward(torch::Tensor x);", ("forward",))
    refused = build(request, cache)
    assert refused.status == "compile_error" and "cuda.cu(4): error: " in refused.log
    assert "requires --extended-lambda" in refused.log
    result = build(replace(request, cuda_flags=("--extended-lambda",)), cache)
    assert result.status == "ok", result.log
    module = Extension(result, runtime)
    for kind, by in ((torch.float32, 2), (torch.float64, 3)):
        x = torch.randn(100, dtype=kind)
        torch.testing.assert_close(module.forward(x), x * by + 100)


MOVING = """
#include <torch/extension.h>
using namespace torch::indexing;
torch::Tensor many(torch::Tensor x) {
    RECORD_FUNCTION("many", std::vector<c10::IValue>({x}));
    py::print("moving");
    TORCH_CHECK(at::toAccumulateType(at::kHalf, true) == at::kFloat);
    TORCH_CHECK(at::toAccumulateType(at::kInt, true) == at::kLong);
    auto y = torch::cat({torch::stack({x, x}), torch::constant_pad_nd(x, {0, 0}).unsqueeze(0)}, 0).repeat({1, 1, 1});
    y = torch::vstack({y.index({0}), y.index({1, Slice()}), y[2]});
    y.index_put_({Slice(0, 2), 1}, 7);
    y.index_put_({0, Slice()}, x.index({1}));
    return y;
}
torch::Tensor gather(torch::Tensor x, torch::Tensor at) { return x.index({at}); }
std::vector<torch::Tensor> forms(torch::Tensor x) {
    return {torch::empty_like(x, at::MemoryFormat::ChannelsLast), torch::empty_like(x, torch::MemoryFormat::Preserve),
            torch::empty({2, 3, 4, 5}, x.options().memory_format(at::MemoryFormat::ChannelsLast))};
}
bool host(torch::Tensor t) { return t.is_cpu() && t.device().is_cpu() && !t.is_cuda() && t.data_ptr<float>()[0] == 1; }
std::vector<torch::Tensor> round_trip(torch::Tensor x) {
    auto there = x.to(x.device().is_cpu() ? at::kCUDA : at::kCPU);
    there.fill_(3);
    return {there, there.to(x.device())};
}
"""


@pytest.fixture
def moving(cache: Path, runtime: Runtime) -> Any:
    names = ("many", "gather", "forms", "host", "round_trip")
    cpp = "torch::Tensor many(torch::Tensor x); torch::Tensor gather(torch::Tensor x, torch::Tensor at);"
    cpp += "std::vector<torch::Tensor> forms(torch::Tensor x); bool host(torch::Tensor t);"
    cpp += "std::vector<torch::Tensor> round_trip(torch::Tensor x);"
    result = build(BuildRequest("extension", "moving", cuda_source=MOVING, cpp_source=cpp, functions=names), cache)
    assert result.status == "ok", result.log
    return Extension(result, runtime)


def test_what_moves_in_python_moves_in_compiled_code(moving: Any, runtime: Runtime) -> None:
    x = torch.randn(3, 4)
    expected = torch.vstack([x, x, x])
    expected[0:2, 1] = 7
    expected[0] = x[1]
    runtime.begin_call()
    assert torch.equal(moving.many(x), expected) and runtime.library_ops == []
    assert torch.equal(moving.gather(x, torch.tensor([2, 0])), x[[2, 0]])
    assert [name for name, _ in runtime.library_ops] == ["index"]


def test_memory_formats_of_options(moving: Any) -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert all(y.is_contiguous(memory_format=torch.channels_last) for y in moving.forms(x))


def test_host_tensors_are_on_the_host_in_compiled_code(moving: Any, runtime: Runtime) -> None:
    x = torch.ones(5000)
    assert not moving.host(x)
    HOST.add(table := torch.ones(5000), fetched=False)
    HOST.add(copied := x.clone(), fetched=True)
    runtime.begin_call()
    assert moving.host(table) and [op for op in runtime.library_ops if op[0] == TO_HOST] == []
    assert moving.host(copied) and (TO_HOST, 5000) in runtime.library_ops
    there, back = moving.round_trip(table)
    assert there not in HOST and back in HOST and there.data_ptr() != back.data_ptr() and float(table[0]) == 1
    there, back = moving.round_trip(x)
    assert there in HOST and back not in HOST and float(x[0]) == 1
    assert not any(a.address <= there.data_ptr() < a.address + a.nbytes for a in runtime.allocations())
