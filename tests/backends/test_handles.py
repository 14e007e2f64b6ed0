"""Compiled host code where CUDA tensors are handles: device memory is out of its reach, and copies are calls."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from handle_road import DeviceOperators, HandleRuntime, OnHandles

from kernelwright.backends.extension import Extension
from kernelwright.backends.host_library import Host
from kernelwright.builds import BuildRequest

SOURCE = (Path(__file__).parent / "wrapper_sources" / "on_handles.cu").read_text()


@pytest.fixture
def runtime(cache: Path) -> HandleRuntime:
    return HandleRuntime(cache)


@pytest.fixture
def module(runtime: HandleRuntime) -> Any:
    result = runtime.compile(BuildRequest("extension", "on_handles", SOURCE))
    assert result.status == "ok", (result.missing, result.log)
    return OnHandles(Extension(result, runtime), runtime)


def done(runtime: HandleRuntime, kind: str) -> list[tuple[Any, ...]]:
    """Returns the recorded calls of a kind."""
    return [call for call in runtime.calls if call[0] == kind]


X = torch.arange(1.0, 9.0)
INVALID = 1


@pytest.mark.parametrize(
    ("kind", "status"),
    [("to device", 0), ("to host", 0), ("default", 0), ("host is target", INVALID), ("host is source", INVALID)],
)
def test_a_copy_goes_where_its_kind_says(module: Any, runtime: HandleRuntime, kind: str, status: int) -> None:
    assert module.copied(X.clone(), kind) == status
    assert len(done(runtime, "upload")) + len(done(runtime, "download")) == (1 if status == 0 else 0)


def test_a_copy_between_host_addresses_is_no_record(module: Any, runtime: HandleRuntime) -> None:
    assert module.host_to_host() == 7 and not runtime.calls


def test_an_unknown_direction_is_refused(module: Any) -> None:
    assert module.copied(X.clone(), "nonsense") == 21


def test_rows_are_copied_with_their_pitches(module: Any, runtime: HandleRuntime) -> None:
    x = torch.arange(12.0).view(3, 4)
    assert torch.equal(module.left_half(x.clone()), x[:, :2])
    assert [nbytes for _, nbytes in done(runtime, "download")] == [8, 8, 8]
    runtime.calls.clear()
    assert torch.equal(module.whole_rows(x.clone()), x)
    assert done(runtime, "download") == [("download", 48)]


def test_memory_is_set_on_the_device_only(module: Any, runtime: HandleRuntime) -> None:
    assert torch.equal(module.cleared(X.clone()), torch.zeros(8))
    assert done(runtime, "fill") == [("fill", 0, 32)]
    assert module.set_on_host() == INVALID


def test_memory_is_freed_once(module: Any) -> None:
    assert module.freed() == [0, INVALID, INVALID]


def test_device_variables_are_written_and_read(module: Any, runtime: HandleRuntime) -> None:
    table = torch.tensor([2.0, 3.0, 4.0, 5.0])
    assert torch.equal(module.by_table(X[:4].clone(), table.tolist()), X[:4] * table)
    assert torch.equal(module.table_of_device(X[:4].clone()), X[:4] * X[:4])
    assert module.read_table() == pytest.approx(X[:4].tolist())


def test_an_instance_built_later_sees_what_was_written_earlier(module: Any, runtime: HandleRuntime) -> None:
    module.write_table([2.0, 3.0, 4.0, 5.0])
    before = len(runtime.machine.builds)
    assert torch.equal(module.by_table_of(X[:4].double()), X[:4].double() * torch.tensor([2.0, 3.0, 4.0, 5.0]))
    assert len(runtime.machine.builds) == before + 1, "the instance was built at the launch"


def test_the_address_of_a_variable_is_the_devices(module: Any) -> None:
    assert module.through_address(X[:4].clone()).tolist() == [9.0, 9.0, 9.0, 9.0]


def test_tensors_over_device_memory_are_handles(module: Any) -> None:
    assert torch.equal(module.second_half(X.clone()), X[4:] * 2)
    own = module.over_own_memory()
    assert own.tolist() == [3.0, 3.0, 3.0, 3.0]


def test_tensors_over_host_memory_are_the_hosts(module: Any) -> None:
    assert module.over_host_array().tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(RuntimeError, match="resides on host memory"):
        module.host_array_as_cuda()
    with pytest.raises(RuntimeError, match="CPU tensor over device memory"):
        module.device_as_host(X.clone())


def test_tensors_move_between_host_and_device(module: Any) -> None:
    there, back, same = module.moved(X.clone())
    assert torch.equal(there, X + 1) and torch.equal(back, X + 1) and same
    assert module.places(X.clone()) == [True, False, True, False, True]


def test_values_are_read_by_operators(module: Any, runtime: HandleRuntime) -> None:
    assert module.first(X.clone()) == 1.0
    assert "_local_scalar_dense" in [call[1] for call in done(runtime, "operator")]


def test_a_library_call_is_recorded_as_the_routine(module: Any, runtime: HandleRuntime) -> None:
    a, b = torch.randn(5, 7), torch.randn(7, 3)
    torch.testing.assert_close(module.product(a, b), a @ b)
    assert ("cublasSgemm", 15) in runtime.library_ops
    assert all(call[2] == "cublasSgemm" for call in done(runtime, "operator") if call[1] in ("bmm", "mul", "copy_"))
    assert {"bmm", "copy_"} <= {call[1] for call in done(runtime, "operator")}


def test_a_fault_is_an_error_where_host_code_waits(module: Any, runtime: HandleRuntime) -> None:
    with pytest.raises(RuntimeError, match="illegal memory access"):
        module.far_store(X.clone(), False)
    with pytest.raises(RuntimeError, match=r"illegal memory access was encountered \(cuda.cu:\d+\)"):
        module.far_store(X.clone(), True)
    assert runtime.faults


def test_no_host_function_counts_as_a_kernel(module: Any, runtime: HandleRuntime) -> None:
    module.cleared(X.clone())
    assert runtime.own_calls == 0


TOUCHING = ["read", "write", "by_blas", "by_memcpy", "through_callback"]


@pytest.mark.parametrize("way", TOUCHING)
def test_host_code_that_touches_device_memory_faults(module: Any, runtime: HandleRuntime, way: str) -> None:
    with pytest.raises(RuntimeError, match="device memory"):
        module.touched(X.clone(), way)
    assert [fault.kind for fault in runtime.faults] == ["host-access"]
    assert "0x2000" in runtime.faults[0].message
    assert torch.equal(module.cleared(X.clone()), torch.zeros(8)), "later calls work"


def test_a_fault_leaves_no_launch_half_prepared(module: Any) -> None:
    with pytest.raises(RuntimeError, match="device memory"):
        module.touched(X.clone(), "arguments")
    assert torch.equal(module.second_half(X.clone()), X[4:] * 2)


@pytest.mark.parametrize("way", ["mmap", "mprotect"])
def test_pages_of_its_own_in_the_range_give_it_nothing(module: Any, runtime: HandleRuntime, way: str) -> None:
    x = X.clone()
    if way == "mmap":
        assert module.mapped_over(x) == 0.0, "its own page"
        assert torch.equal(x, X), "what it stores there stays there"
    else:
        assert module.opened(x) != 0, "there is no page to open"


def test_a_thread_that_touches_device_memory_ends_the_process(cache: Path) -> None:
    script = (
        "import sys; from pathlib import Path; import torch\n"
        "from handle_road import HandleRuntime, OnHandles\n"
        "from kernelwright.backends.extension import Extension\nfrom kernelwright.builds import BuildRequest\n"
        "runtime = HandleRuntime(Path(sys.argv[1]))\n"
        "result = runtime.compile(BuildRequest('extension', 'on_handles', Path(sys.argv[2]).read_text()))\n"
        "OnHandles(Extension(result, runtime), runtime).by_thread(torch.ones(8))\n"
    )
    source = Path(__file__).parent / "wrapper_sources" / "on_handles.cu"
    command = [sys.executable, "-c", script, str(cache), str(source)]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert ended.returncode == -signal.SIGSEGV, ended.stderr
    assert "device memory" in ended.stderr


@pytest.mark.parametrize("way", ["cudaMallocHost", "cudaHostRegister", "pinned options", "in a struct"])
def test_a_kernel_given_pinned_memory_is_unsupported(module: Any, runtime: HandleRuntime, way: str) -> None:
    with pytest.raises(RuntimeError, match="pinned host memory"):
        module.zero_copy(X.clone(), way)
    assert runtime.unsupported == ["a kernel's access to pinned host memory (zero-copy)"]


def test_pinned_memory_is_copied_from(module: Any, runtime: HandleRuntime) -> None:
    assert torch.equal(module.staged(X.clone()), X * 2) and not runtime.unsupported


def test_registered_operators_run_on_handles(cache: Path) -> None:
    source = """#include <torch/extension.h>
__global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
torch::Tensor run(const torch::Tensor& x) {
  TORCH_CHECK(x.is_cuda());
  auto y = torch::empty_like(x);
  twice<<<1, x.numel()>>>(x.data_ptr<float>(), y.data_ptr<float>());
  return y + 1;
}
torch::Tensor on_host(const torch::Tensor& x) { return x * 3; }
TORCH_LIBRARY(kw_handles_test, m) { m.def("twice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(kw_handles_test, CUDA, m) { m.impl("twice", &run); }
TORCH_LIBRARY_IMPL(kw_handles_test, CPU, m) { m.impl("twice", &on_host); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}
"""
    runtime = HandleRuntime(cache)
    Extension(runtime.compile(BuildRequest("extension", "operators", source)), runtime)
    x = runtime.handle(X)
    with DeviceOperators(runtime):
        made = torch.ops.kw_handles_test.twice(x)
        assert torch.equal(torch.ops.kw_handles_test.twice(X), X * 3)
    assert torch.equal(runtime.contents(made), X * 2 + 1)
    assert [call[1] for call in done(runtime, "operator")] == ["add"]


def test_both_roads_in_one_process(module: Any, cache: Path) -> None:
    source = SOURCE.replace("on_handles", "in_process")
    machine = HandleRuntime(cache).machine
    other = Extension(machine.compile(BuildRequest("extension", "other", source)), machine)
    x = X.clone()
    assert torch.equal(other.cleared(x), torch.zeros(8))
    assert torch.equal(module.cleared(X.clone()), torch.zeros(8))
    assert not Host.get().running


def test_threads_take_turns(module: Any) -> None:
    def work(k: int) -> bool:
        x = torch.full((8,), float(k))
        return all(torch.equal(module.second_half(x.clone()), x[4:] * 2) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


@pytest.mark.parametrize(
    "name",
    """cudaMallocManaged cudaHostGetDevicePointer cudaGraphAddKernelNode cudaGraphExecUpdate cudaIpcGetMemHandle
    cuMemCreate cudaMemcpyPeer cudaDeviceEnablePeerAccess cudaLaunchHostFunc cudaMallocArray cudaCreateTextureObject
    cudaMemPrefetchAsync cudaMallocFromPoolAsync cudaPointerGetAttributes""".split(),
)
def test_a_missing_entry_point_is_unsupported_by_name(runtime: HandleRuntime, name: str) -> None:
    source = f"#include <torch/extension.h>\nvoid f(torch::Tensor x) {{ {name}(x.data_ptr(), 4); }}\n"
    source += 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }\n'
    result = runtime.compile(BuildRequest("extension", "missing", source))
    assert (result.status, result.missing) == ("unsupported", (name,)), result.log
