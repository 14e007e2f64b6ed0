"""Host calls of NVIDIA's libraries: the calls that a policy allows, and the message for the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge.verdict import with_policy
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, LibraryRule, SourceFile, Task

WRAPPER = (Path(__file__).parents[1] / "backends" / "wrapper_sources" / "cublas_lt_epilogues.cu").read_text()
TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.fc = nn.Linear(features, outputs)
    def forward(self, x):
        return torch.relu(self.fc(x))

batch_size = 64
features = 96
outputs = 48

def get_inputs():
    return [torch.randn(batch_size, features)]

def get_init_inputs():
    return [features, outputs]
"""
CANDIDATE = f'''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
{WRAPPER}
"""
module = load_inline("lt", "", source, extra_ldflags=["-lcublasLt"])

class ModelNew(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.fc = nn.Linear(features, outputs)
    def forward(self, x):
        return module.linear(x, self.fc.weight, self.fc.bias, 6)
'''


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2, seed=3), pool=pool) as shared:
        yield shared


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [("from_scratch", "rejected"), ("libraries:cudnn", "rejected"), ("libraries:cublas", "correct")],
)
def test_cublas_lt_counts_as_cublas_and_as_nothing_else(
    evaluator: Evaluator, policy: LibraryRule, verdict: str
) -> None:
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=CANDIDATE),), language="cuda")
    result = evaluator.evaluate(Task(task_id="fc", source=TASK, policy=policy), candidate)
    assert result.verdict == verdict, result.reason
    assert result.library_ops == ("cublasLtMatmul",)
    assert verdict == "correct" or "cublasLtMatmul" in result.reason, result.reason


@pytest.mark.parametrize(
    ("missing", "policy", "said"),
    [
        ("cudnn.h", "from_scratch", "does not allow cudnn in any case"),
        ("cufft.h, cudnnCreate", "libraries:cudnn", "does not allow cufft in any case"),
        ("cudnn.h", "libraries:cudnn", ""),
        ("cudnn.h", "libraries", ""),
        ("cudaGraphLaunch", "from_scratch", ""),
    ],
)
def test_what_is_missing_and_not_allowed_anyway_is_said(missing: str, policy: LibraryRule, said: str) -> None:
    reason = with_policy(Failed("unsupported", f"missing: {missing}"), policy).reason
    assert reason.startswith(f"missing: {missing}") and (said in reason if said else reason.endswith(missing))
