"""The rungs that need a GPU: bytes known beforehand, plausible times, ceilings near the data sheet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.profile import ProfileOptions, ceilings, ladder, ncu, profile
from kernelwright.records import Provenance, Task
from kernelwright.tasks import candidate_from_text

pytestmark = pytest.mark.gpu

ROWS, COLUMNS = 8192, 8192
BYTES = 4 * ROWS * COLUMNS
REFERENCE = f"""
import torch
rows, cols = {ROWS}, {COLUMNS}
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.randn(rows, cols)]
def get_init_inputs():
    return []
"""
CANDIDATE = r'''
import torch
from torch.utils.cpp_extension import load_inline
cuda = """
__global__ void copy_twice(const float4* x, float4* y, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) { float4 v = x[i]; v.x *= 2; v.y *= 2; v.z *= 2; v.w *= 2; y[i] = v; }
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    long n = x.numel() / 4;
    copy_twice<<<(n + 255) / 256, 256>>>((const float4*)x.data_ptr<float>(), (float4*)y.data_ptr<float>(), n);
    return y;
}
"""
ext = load_inline(name="copies", cpp_sources="torch::Tensor forward(torch::Tensor x);", cuda_sources=cuda,
                  functions=["forward"])
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return EXPRESSION
'''
TASK = Task(task_id="copy", source=REFERENCE, provenance=Provenance(origin="test"))


def _profiled(rung: str, expression: str = "ext.forward(x)") -> ladder.Profile:
    candidate = candidate_from_text(CANDIDATE.replace("EXPRESSION", expression), "copy.py")
    return profile(TASK, candidate, ProfileOptions(backend="gpu", rung=rung))  # type: ignore[arg-type]


@pytest.mark.skipif(ncu.find() is None, reason="ncu is not installed")
def test_counters_of_a_copy() -> None:
    try:
        found = _profiled("ncu")
    except Exception as error:
        if "no-permission" in str(error):
            pytest.skip(str(error))
        raise
    kernel = next(k for k in found.kernels if "copy_twice" in k.name)
    assert kernel.origin == "candidate" and kernel.block == (256, 1, 1) and kernel.launches == 1
    assert len(kernel.metrics) >= 20, sorted(set(ncu.METRICS) - set(kernel.metrics))
    assert kernel.metrics["dram_read"] == pytest.approx(BYTES, rel=0.1)
    # Lines that L2 still holds when the kernel ends are not written yet.
    assert BYTES * 0.6 < kernel.metrics["dram_write"] < BYTES * 1.1
    assert kernel.metrics["load_bytes_per_sector"] == pytest.approx(32, abs=1)
    doubled = kernel.metrics["fmul"] + kernel.metrics["fadd"]  # the compiler may add a value to itself
    assert doubled == pytest.approx(ROWS * COLUMNS, rel=0.01)
    assert kernel.roofline is not None and kernel.roofline.bound == "memory"
    # ncu counts registers as they are given out, in eights.
    assert kernel.resources is not None
    assert 0 <= kernel.metrics["registers"] - kernel.resources.registers < 8
    assert kernel.occupancy is not None and kernel.occupancy.fraction > 0.5


def test_times_of_a_copy() -> None:
    found = _profiled("trace")
    assert found.trace is not None and found.roofline is not None and found.ceilings == "measured"
    assert found.trace.own_share == pytest.approx(1.0) and found.trace.launches == 1
    (kernel,) = found.kernels
    assert kernel.time_us is not None and found.roofline.bytes == 2 * BYTES
    assert found.roofline.floor_ms * 0.9 < kernel.time_us / 1e3 < found.roofline.floor_ms * 3
    assert found.roofline.bound == "memory"
    assert kernel.grid == (ROWS * COLUMNS // 1024, 1, 1) and kernel.block == (256, 1, 1)


def test_library_work_is_not_the_candidates_own() -> None:
    found = _profiled("trace", "torch.cumsum(ext.forward(x) @ x, 1)")
    assert found.trace is not None and found.trace.own_share is not None and found.trace.own_share < 0.2
    assert {"candidate"} < {k.origin for k in found.kernels}
    assert any("in your own kernels" in line for line in found.advice)


def test_a_candidate_that_fails_there_falls_to_the_lowest_rung() -> None:
    candidate = candidate_from_text(CANDIDATE.replace("EXPRESSION", "ext.forward(x[0, 0, 0, 0])"), "copy.py")
    found = profile(TASK, candidate, ProfileOptions(backend="gpu"))
    assert found.rung == "static" and any("target-failed" in m.reason for m in found.missed)


def test_measured_ceilings_are_near_the_data_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    card = ladder._card()
    words = [sys.executable, "-c", ceilings.PROGRAM, card.driver]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found, sheet = ceilings.cached(card.name, card.driver, tmp_path), ceilings.datasheet(card.name)
    assert found is not None and found.source == "measured"
    assert 1 < found.launch_us < 30 and found.l2_bytes >= found.dram_bytes
    if sheet is None:
        pytest.skip(f"no data sheet is known of {card.name}")
    assert 0.5 < found.dram_bytes / sheet.dram_bytes < 1.1
    for kind, rate in found.flops.items():
        low = 0.5 if kind != "float64" else 0.2  # tensor cores take float64 products or not, by card
        assert low < rate / sheet.flops[kind] < (1.1 if kind != "float64" else 2.2), kind
