"""Tasks, candidates and verdicts for the tests of executors and of the queue."""

from __future__ import annotations

from kernelwright.records import Candidate, Evaluation, SourceFile, Task

REFERENCE = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return x + {number}
rows = 4
def get_inputs():
    return [torch.rand(rows, 33)]
def get_init_inputs():
    return []
"""
# Host C++: it needs no GPU compiler, and is built in milliseconds.
ADDING = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = """
#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i] + {number};
    return y;
}}
"""
module = load_inline(name="plus", cpp_sources=source, functions=["forward"])
class ModelNew(nn.Module):
    def forward(self, x):
        return module.forward(x.contiguous())
'''
SLEEPING = """
import time
import torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep({seconds})
        return x
"""


def task(number: int = 0) -> Task:
    return Task(task_id=f"plus-{number}", source=REFERENCE.format(number=number))


def broken_task() -> Task:
    return Task(task_id="broken", source=REFERENCE.replace("return x + {number}", "raise ValueError('no reference')"))


def candidate(number: int = 0) -> Candidate:
    return _of(ADDING.format(number=number), "cpp")


def python(number: int) -> Candidate:
    """Returns a candidate that takes the GPU's path, where host code could not touch tensors."""
    return _of(
        f"import torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x + {number}\n",
        "torch",
    )


def sleeping(seconds: float, number: int = 0) -> Candidate:
    return _of(SLEEPING.format(seconds=seconds) + f"# {number}\n", "torch")


def _of(text: str, language: str) -> Candidate:
    return Candidate(sources=(SourceFile(path="c.py", content=text),), language=language)  # type: ignore[arg-type]


def verdict(of: Task, given: Candidate, reason: str = "far off", name: str = "wrong") -> Evaluation:
    return Evaluation(
        task_id=of.task_id,
        task_hash=of.content_hash,
        candidate_id=given.content_hash,
        verdict=name,  # type: ignore[arg-type]
        reason=reason,
    )
