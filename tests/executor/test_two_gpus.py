"""Executors on two real GPUs: each candidate gets one of them, and both are used."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import pytest
from judging import task

from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.options import visible_gpus
from kernelwright.executor import Executor
from kernelwright.executor.local import Local
from kernelwright.records import Candidate, Evaluation, SourceFile

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(len(visible_gpus()) < 2, reason=f"needs two GPUs, there are {len(visible_gpus())}"),
]

OPTIONS = EvalOptions(backend="gpu", trials=2, timing_seconds=0.2)
SECONDS = 300.0
ADDING = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = """
__global__ void plus(const float* x, float* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1.0f;  // {number}
}}
torch::Tensor forward(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  plus<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}}
"""
module = load_inline("plus", "torch::Tensor forward(torch::Tensor x);", source, ["forward"])
class ModelNew(nn.Module):
    def forward(self, x):
        return module.forward(x)
'''


def _judged(executor: Executor, count: int = 12) -> list[Evaluation]:
    wanted = task(1).model_copy(update={"source": task(1).source.replace("rows = 4", "rows = 4096")})
    jobs = []
    for number in range(count):
        file = SourceFile(path="c.py", content=ADDING.format(number=number))
        jobs.append(executor.submit(wanted, Candidate(sources=(file,), language="cuda"), OPTIONS))
    return [job.result(SECONDS) for job in jobs]


def _check(results: Sequence[Evaluation]) -> None:
    assert {r.verdict for r in results} == {"correct"}, [r.reason for r in results]
    assert all(r.timing is not None for r in results)
    used = Counter(r.environment.gpu_index for r in results)
    assert set(used) == set(visible_gpus()[:2]) and min(used.values()) >= 2, used


def test_local() -> None:
    with Local(4, gpus=visible_gpus()[:2]) as executor:
        _check(_judged(executor))


def test_ray() -> None:
    ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "kernelwright[ray]"')
    from kernelwright.executor.ray_actors import RayActors

    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(
        address="local", num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    try:
        with RayActors(4, backend="gpu") as executor:
            _check(_judged(executor))
    finally:
        ray.shutdown()
