"""The same kernels on a real GPU: the machine's conformance cases, and the plain form as users call it."""

from __future__ import annotations

import ctypes

import cases_elementwise  # noqa: F401
import cases_features  # noqa: F401
import cases_products  # noqa: F401
import cases_rows  # noqa: F401
import numpy as np
import pytest
from conformance import CASES, Case, arrays_of, compare, compile_case, pack
from machine_launch import dims

from kernelwright.machine import driver as gpu

pytestmark = pytest.mark.gpu


def set_symbol(program: gpu.DeviceProgram, name: str, value: bytes) -> None:
    """Fills a `__constant__` variable, as cudaMemcpyToSymbol does."""
    address, size, driver = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.CDLL("libcuda.so.1")
    where = ctypes.byref(address), ctypes.byref(size)
    assert driver.cuModuleGetGlobal_v2(*where, program._module, name.encode()) == 0
    assert size.value == len(value)
    assert driver.cuMemcpyHtoD_v2(address, value, size) == 0


def check_on_gpu(case: Case) -> None:
    """Runs every launch of a case on the GPU and compares with what numpy expects."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    runs = case.runs()
    code = compile_case(case, runs, f"sm_{major}{minor}")
    torch.cuda.synchronize()
    program = gpu.DeviceProgram(code.cubin)
    for run in runs:
        for symbol, value in run.symbols.items():
            set_symbol(program, symbol, value.tobytes())
        before = arrays_of(run)
        memory = {k: torch.from_numpy(a.reshape(-1).view(np.uint8).copy()).cuda() for k, a in before.items()}
        entry = code.lowered[run.kernel]
        packed = pack(run, code.ptx, entry, {k: m.data_ptr() for k, m in memory.items()})
        program.launch(entry, dims(run.grid), dims(run.block), run.shared, packed, 0)
        torch.cuda.synchronize()
        after = {k: m.cpu().numpy().view(before[k].dtype).reshape(before[k].shape) for k, m in memory.items()}
        compare(case, run, after)


@pytest.mark.parametrize("name", sorted(CASES))
def test_case(name: str) -> None:
    check_on_gpu(CASES[name])


def test_plain_form() -> None:
    import torch

    from kernelwright.cuda import Module

    module = Module(
        """
        #include <limits>
        extern "C" __global__ void scale(const float* x, float* y, float factor, long long n) {
          extern __shared__ float s[];
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) { s[threadIdx.x] = factor * x[i]; y[i] = s[threadIdx.x]; }
        }
        template <typename T> __global__ void last(T* y) { y[0] = std::numeric_limits<T>::max(); }
        """
    )
    x = torch.randn(1000, device="cuda")
    for shared in (1024, 100 << 10):
        y = torch.full_like(x, float("nan"))
        module.scale[8, 128, shared](x, y, 2.5, 1000)
        assert torch.equal(y, x * 2.5)
    most = torch.zeros(1, dtype=torch.int32, device="cuda")
    module.get("last<int>")[1, 1](most)
    assert most.item() == 2**31 - 1
    with pytest.raises(ValueError, match="not on the GPU"):
        module.scale[8, 128, 1024](x.cpu(), y, 2.5, 1000)
    with pytest.raises(RuntimeError, match="CUDA error"):
        module.scale[8, 2048, 1024](x, y, 2.5, 1000)
