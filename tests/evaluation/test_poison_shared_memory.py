"""The kernel that fills shared memory with NaN, on the functional machine; on a GPU, the contents that kernels find."""

from __future__ import annotations

import numpy as np
import pytest

from kernelwright.evaluation.device.poison_shared_memory import ENTRY, PTX, THREADS
from kernelwright.machine import LaunchOptions, Program

READS = """
extern "C" __global__ void found(unsigned* y) {
  extern __shared__ unsigned s[];
  for (unsigned i = threadIdx.x; i < 2048; i += blockDim.x) y[blockIdx.x * 2048 + i] = s[i];
}
"""


def test_it_fills_what_it_is_told_and_stays() -> None:
    """It fills fewer bytes than there are; an access beyond them would be a finding."""
    words = 5000
    args = [words.to_bytes(4, "little"), (50_000).to_bytes(8, "little"), bytes(4)]
    loaded = Program.load(PTX)
    report = loaded.launch(ENTRY, (3, 1, 1), (THREADS, 1, 1), args, words * 4, [], LaunchOptions(watch=True))
    assert not report.warnings, report.warnings
    assert report.counters["shared_stores"] == 3 * words


@pytest.mark.gpu
def test_shared_memory_holds_nan_afterwards() -> None:
    import torch

    from kernelwright.evaluation.device.devices import CudaDevice
    from kernelwright.machine import driver
    from kernelwright.machine.nvrtc import compile_ptx

    device = CudaDevice()
    result = compile_ptx(READS)
    assert result.ok, result.log
    module = driver.LoadedModule(result.ptx, b"")
    y = torch.zeros(512 * 2048, dtype=torch.int32, device="cuda")
    device.poison_chip()
    pointer = y.data_ptr().to_bytes(8, "little")
    driver.launch(module.function("found"), (512,), (256,), 8192, [pointer], 0)
    torch.cuda.synchronize()
    assert np.mean(y.cpu().numpy() == -1) > 0.99
