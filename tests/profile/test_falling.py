"""The ladder's fallbacks: a GPU is pretended, programs replace ncu, and the real target finds no device.

Everything but the card's name and ncu's output is real: files, processes, parsing, machine code, merging, advice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.evaluation.options import gpu_count
from kernelwright.profile import ProfileOptions, ladder, profile
from kernelwright.tasks import candidate_from_text, load_task

pytestmark = pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU: test_profile_gpu goes this way for real")

OUTPUT = Path(__file__).with_name("ncu_output")
CANDIDATE = r'''
import torch
from kernelwright.cuda import Module
kernels = Module(r"""
extern "C" __global__ void copy_kernel(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i];
}
""")
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.copy_kernel[(4, 1, 1), (256, 1, 1), 0](x.contiguous(), y, x.numel())
        return y
'''


@pytest.fixture
def ncu_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replaces ncu by a program with set output, on a machine that seems to have an H200."""
    monkeypatch.setattr(ladder, "gpu_count", lambda: 1)
    monkeypatch.setattr(ladder, "_card", lambda: ladder.Card("NVIDIA H200", "580.0", "sm_90a"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def install(script: str) -> None:
        path = tmp_path / "ncu"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return install


def _made(rung: str = "auto") -> ladder.Profile:
    options = ProfileOptions(backend="gpu", rung=rung, seconds=60)  # type: ignore[arg-type]
    return profile(load_task("row_softmax"), candidate_from_text(CANDIDATE, "copy.py"), options)


def test_counters_are_joined_with_the_machine_code(ncu_says: Callable[[str], None]) -> None:
    ncu_says(f"cat {OUTPUT}/base_units.txt")
    found = _made()
    assert (found.rung, found.card, found.missed, found.ceilings) == ("ncu", "NVIDIA H200", (), "datasheet")
    copy, rows = found.kernels
    assert copy.origin == "candidate" and copy.resources is not None and copy.resources.kernel == "copy_kernel"
    assert copy.occupancy is not None and (copy.occupancy.threads, copy.occupancy.fraction) == (256, 1.0)
    assert copy.roofline is not None and copy.roofline.bound == "memory"
    assert copy.roofline.bandwidth_share == pytest.approx(266_171_904 / 67.232e-6 / 4.8e12)
    assert rows.origin == "other" and rows.resources is None and rows.launches == 2


def test_forbidden_counters_and_a_failing_candidate_leave_the_machine_code(ncu_says: Callable[[str], None]) -> None:
    ncu_says("echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU counters'")
    found = _made()
    assert found.rung == "static" and found.kernels[0].resources is not None
    first, second = found.missed
    assert first.rung == "ncu" and first.reason.startswith("no-permission: ERR_NVGPUCTRPERM")
    assert second.rung == "trace" and second.reason.startswith("target-failed: ")


def test_what_the_target_says_comes_through_ncu(ncu_says: Callable[[str], None]) -> None:
    # As ncu does: runs the program that follows its own options, and tells of its status.
    ncu_says(
        """while [ $# -gt 0 ] && [ "$2" != -m ]; do shift; done
"$@" || echo '==ERROR== The application returned an error code (4).'
echo '==WARNING== No kernels were profiled.'"""
    )
    reason = _made().missed[0].reason
    assert reason.startswith("target-failed: ") and ("CUDA" in reason or "NVIDIA" in reason)
