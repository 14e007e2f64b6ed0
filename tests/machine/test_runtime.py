"""The runner's CUDA runtime and the plain form, with a real builder: launches, bounds, facts, conversions."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from kernelwright import cuda
from kernelwright.backends.build import build
from kernelwright.builds import KernelBuildFailed
from kernelwright.cuda import Module, compile_kernel
from kernelwright.errors import UsageError
from kernelwright.machine import runtime as machine_runtime
from kernelwright.machine.runtime import Runtime

SCALE = r"""
extern "C" __global__ void scale(const float* x, float* y, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}
__global__ void count(int* y, long long start, bool up, unsigned char step) {
  y[threadIdx.x] = (int)(start >> 32) + (up ? 1 : -1) * (int)threadIdx.x * step;
}
template <typename T, int N>
__global__ void repeat(const T* x, T* y) { for (int k = 0; k < N; k++) y[threadIdx.x * N + k] = x[threadIdx.x]; }
extern "C" __global__ void reach(float* y, long long i) { y[i] = 1.0f; }
extern "C" __global__ void sums(double* y, double a, float* nothing) { y[0] = nothing ? -1.0 : a; }
extern "C" __global__ void racing(float* y) { __shared__ float s; s = threadIdx.x; __syncthreads(); y[0] = s; }
extern "C" __global__ void shared_size(int* y) {
  extern __shared__ int s[];
  s[threadIdx.x] = 7;
  y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void forever(volatile int* y) { while (true) y[0] = y[0] + 1; }
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("builds")


@pytest.fixture
def runtime(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    made = Runtime(lambda request: build(request, cache))
    monkeypatch.setattr(cuda, "_current", made)
    made.begin_call()
    yield made


def test_plain_form(runtime: Runtime) -> None:
    module = Module(SCALE)
    x, y = torch.randn(1000), torch.full((1000,), float("nan"))
    module.scale[8, 128](x, y, 2.5, 1000)
    assert torch.equal(y, x * 2.5)
    module.scale[(8, 1, 1), (128,)](x, y, 2, x.numel())  # an int for a float
    assert torch.equal(y, x * 2)
    counts = torch.zeros(4, dtype=torch.int32)
    module.count[1, 4](counts, 3 << 32, True, 255)  # a plain __global__ function, 64-bit, bool and byte arguments
    assert counts.tolist() == [3, 258, 513, 768]
    out = torch.zeros(6, dtype=torch.int64)
    module.get("repeat<long long, 2>")[1, 3](torch.arange(3), out)
    assert out.tolist() == [0, 0, 1, 1, 2, 2]
    sevens = torch.zeros(32, dtype=torch.int32)
    module.shared_size[1, 32, 128, None](sevens)
    assert sevens.tolist() == [7] * 32


def test_views_and_scalars(runtime: Runtime) -> None:
    module = Module(SCALE)
    x = torch.arange(20.0)
    module.scale[1, 32](x[5:], x[15:], np.float32(0.5), np.int64(5))  # memory of one tensor, read and written
    assert x[15:].tolist() == [2.5, 3, 3.5, 4, 4.5]
    y = torch.zeros(1, dtype=torch.float64)
    module.sums[1, 1](y, 0.1, None)
    assert y.item() == 0.1


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (("x", "x", 1.0), TypeError, "takes 4 arguments, 3 were given"),
        (("x", "x", "x", 4), TypeError, "argument 2 of scale is a tensor"),
        (("x", "x", 1.0, 2.5), TypeError, "argument 3 of scale is a float"),
        (("x", "x", 1.0, 1 << 40), OverflowError, "does not fit into the parameter's 4 bytes"),
        (("x", "x", 1.0, None), TypeError, "argument 3 of scale is a NoneType"),
        (("x", np.zeros(4), 1.0, 4), TypeError, "argument 1 of scale is a ndarray"),
        (("x", "y", 1.0, 4), TypeError, "argument 1 of scale is a str"),
    ],
)
def test_wrong_arguments(runtime: Runtime, args: tuple[object, ...], error: type[Exception], message: str) -> None:
    given = [torch.zeros(4) if isinstance(a, str) and a == "x" else a for a in args]
    with pytest.raises(error, match=message):
        Module(SCALE).scale[1, 32](*given)
    assert not runtime.end_call().launches


def test_wrong_configurations(runtime: Runtime) -> None:
    kernel = Module(SCALE).reach
    for config in (1, (1,), (1, 1, 1, 1, 1)):
        with pytest.raises(TypeError, match="is needed"):
            kernel[config]
    with pytest.raises(TypeError, match="one to three dimensions"):
        kernel[(1, 1, 1, 1), 1]
    for grid, block, shared in [(0, 1, 0), (1, 2048, 0), (1, 1, 1 << 20), (-1, 1, 0)]:
        with pytest.raises(RuntimeError, match="CUDA error: invalid configuration argument"):
            kernel[grid, block, shared](torch.zeros(4), 0)
    assert [f.kind for f in runtime.faults] == ["invalid-launch"] * 4


def test_wrong_modules(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="no __global__ function"):
        Module("int x;")
    with pytest.raises(AttributeError, match=r"no kernel 'scales'; it has scale, count"):
        Module(SCALE).scales  # noqa: B018
    with pytest.raises(KernelBuildFailed, match=r"cuda.cu\(2\): error"):
        Module("__global__ void k(float* y) {\n  y[0] = nothing; }")
    with pytest.raises(KernelBuildFailed, match="does not know"):
        Module('extern "C" __global__ void k() { asm volatile("tcgen05.wait::ld.sync.aligned;"); }')
    assert [result.status for result in runtime.builds] == ["ok", "compile_error", "ok"]
    assert runtime.unsupported == ["ptx: tcgen05.wait::ld"]


def test_faults_are_what_a_gpu_says_and_are_kept(runtime: Runtime) -> None:
    module, y = Module(SCALE), torch.zeros(10)
    with pytest.raises(RuntimeError, match="CUDA error: an illegal memory access was encountered"):
        module.reach[1, 1](y, 10)
    runtime.budget = 100_000
    with pytest.raises(RuntimeError, match="CUDA error: the launch timed out"):
        module.forever[1, 32](torch.zeros(1, dtype=torch.int32))
    assert [f.kind for f in runtime.faults] == ["out-of-bounds-write", "instruction-budget"]
    first = runtime.findings[0]
    assert (first["rule"], first["severity"], first["kernel"]) == ("out-of-bounds-write", "fault", "reach")
    assert SCALE.splitlines()[first["line"] - 1].startswith('extern "C" __global__ void reach')
    for part in ("in kernel reach", "block (0, 0, 0), thread (0, 0, 0)", "st.global"):
        assert part in first["evidence"]


def test_races_are_warnings_told_once(runtime: Runtime) -> None:
    module, y = Module(SCALE), torch.zeros(1)
    for _ in range(3):
        module.racing[1, 64](y)
    assert {f["rule"] for f in runtime.findings} == {"data-race"}
    assert {f["severity"] for f in runtime.findings} == {"warning"}
    assert len({f["line"] for f in runtime.findings}) == len(runtime.findings)


def test_facts_of_a_call(runtime: Runtime) -> None:
    module = Module(SCALE)
    x, y = torch.randn(64), torch.zeros(64)
    module.scale[2, 32](x, y, 1.0, 64)
    module.scale[2, 32](x, y, 1.0, 50)
    module.reach[1, 1](y, 0)
    runtime.own_calls += 1
    facts = runtime.end_call()
    assert [(r.kernel, r.count) for r in facts.launches] == [("scale", 2), ("reach", 1)]
    assert all(r.instructions > 0 for r in facts.launches)
    assert facts.written == {y.data_ptr(): 4 * (64 + 50 + 1)}
    assert facts.read == {x.data_ptr(): 4 * (64 + 50)}
    assert facts.own_calls == 1
    runtime.begin_call()
    assert runtime.end_call() == machine_runtime.CallFacts()


def test_only_living_tensors_are_memory(runtime: Runtime) -> None:
    module = Module(SCALE)
    x, y = torch.zeros(64), torch.zeros(64)
    module.scale[1, 64](x, y, 1.0, 64)
    view, address = x[3:5], x.data_ptr()
    del x
    gc.collect()
    module.reach[1, 1](y, 0)
    assert address in [a.address for a in runtime.allocations()]  # the view keeps it
    del view
    gc.collect()
    assert [a.address for a in runtime.allocations()] == [y.data_ptr()]


def test_tensors_that_share_memory_are_one_range(runtime: Runtime) -> None:
    values = np.zeros(100, np.float32)
    whole, part, again = torch.from_numpy(values), torch.from_numpy(values[40:]), torch.from_numpy(values)
    for tensor in (part, whole, again):
        runtime.register(tensor)
    assert [(a.address, a.nbytes) for a in runtime.allocations()] == [(whole.data_ptr(), 400)]
    Module(SCALE).reach[1, 1](part, 59)
    assert values[99] == 1
    del again  # the youngest of those with this address goes; the others stay
    gc.collect()
    assert [a.nbytes for a in runtime.allocations()] == [400]


def test_a_storage_that_grows(runtime: Runtime) -> None:
    y = torch.zeros(4)
    runtime.register(y)
    y.resize_(1000)
    assert [(a.address, a.nbytes) for a in runtime.allocations()] == [(y.data_ptr(), 4000)]
    runtime.register(torch.empty(0))
    assert len(runtime.allocations()) == 1


def test_blocks_run_in_another_order_in_each_call(runtime: Runtime) -> None:
    kernel = Module('extern "C" __global__ void last(int* y) { y[0] = blockIdx.x; y[1 + blockIdx.x] = 1; }').last
    seen = []
    for _ in range(6):
        runtime.begin_call()
        y = torch.zeros(65, dtype=torch.int32)
        kernel[64, 1](y)
        assert y[1:].sum() == 64
        seen.append(int(y[0]))
    assert {0, 63} < set(seen)
    assert len(set(seen)) >= 3


def test_programs_are_loaded_once(runtime: Runtime) -> None:
    results = [Module(SCALE) and runtime.builds[-1] for _ in range(2)]
    assert runtime.program(results[0]) is runtime.program(results[1])


def test_torchs_own_compile_kernel(runtime: Runtime) -> None:
    kernel = compile_kernel(SCALE, "sums")
    y = torch.zeros(1, dtype=torch.float64)
    kernel(grid=(1, 1, 1), block=(1, 1, 1), args=[y, 0.25, torch.zeros(1)])
    assert y.item() == -1
    instance = compile_kernel(SCALE, "repeat<float, 2>", nvcc_options=["-lineinfo"])
    out = torch.zeros(6)
    instance((1, 1, 1), (3, 1, 1), [torch.arange(3.0), out])
    assert out.tolist() == [0, 0, 1, 1, 2, 2]


def test_torchs_own_compile_kernel_passes_floats_as_doubles(runtime: Runtime) -> None:
    x, y = torch.ones(4), torch.zeros(4)
    kernel = compile_kernel(SCALE, "scale")
    kernel(grid=(1, 1, 1), block=(4, 1, 1), args=[x, y, 2.5, 4])
    assert y.tolist() == [0] * 4  # the low half of the double 2.5, as on a GPU
    with pytest.raises(TypeError, match="Unsupported argument type"):
        kernel(args=[x, y, np.float32(2.5), 4])
    big = compile_kernel(SCALE, "shared_size")
    with pytest.raises(RuntimeError, match="set_shared_memory_config"):
        big((1, 1, 1), (32, 1, 1), [torch.zeros(32, dtype=torch.int32)], shared_mem=60_000)
    big.set_shared_memory_config(60_000)
    big((1, 1, 1), (32, 1, 1), [torch.zeros(32, dtype=torch.int32)], shared_mem=60_000)


def test_outside_of_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="needs a GPU") as error:
        Module(SCALE).scale  # noqa: B018
    assert "kernelwright eval" in str(error.value.hint)


def test_signatures_are_read_from_ptx() -> None:
    ptx = """
    .visible .entry other(.param .u32 a) { ret; }
    .visible .entry k(
        .param .u64 .ptr .align 1 k_param_0,
        .param .f32 k_param_1, .param .align 8 .b8 k_param_2[24], .param .f64 k_param_3, .param .u8 k_param_4
    )
    .maxntid 128, 1, 1
    { ret; }
    .visible .entry none() { ret; }
    """
    found = [(p.size, p.real) for p in cuda.parameters(ptx, "k")]
    assert found == [(8, False), (4, True), (24, False), (8, True), (1, False)]
    assert cuda.parameters(ptx, "none") == ()
    with pytest.raises(AttributeError):
        cuda.parameters(ptx, "missing")


def test_a_call_that_leaves_device_memory_behind_is_warned_about(runtime: Runtime) -> None:
    source = r"""
    __global__ void leave(long long* p) { *p = (long long)malloc(100); }
    __global__ void tidy(long long* p) { int* q = (int*)malloc(8); *p = q[0] = 3; free(q); printf("%d\n", q != 0); }
    """
    module, p = Module(source), torch.zeros(1, dtype=torch.int64)
    module.tidy[1, 1](p)
    runtime.end_call()
    assert not runtime.findings and runtime.printed == ["1\n"]
    runtime.begin_call()
    module.leave[1, 1](p)
    runtime.end_call()
    assert [(f["rule"], f["severity"]) for f in runtime.findings] == [("heap-leak", "warning")]
    assert "1 blocks (100 bytes)" in runtime.findings[0]["evidence"]
