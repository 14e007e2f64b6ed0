"""Products and convolutions by pairs of f16 numbers on tensor cores, judged on the functional machine."""

from __future__ import annotations

import pytest

from kernelwright.evaluation import evaluate
from kernelwright.records import Candidate, SourceFile, Task
from kernelwright.solutions import write
from kernelwright.solutions.kernels.schedule import named

MODULE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.{layer}

    def forward(self, x):
        return torch.relu(self.layer(x) - 0.1)


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""
PRODUCT = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, A, B):
        return {expression}


def get_inputs():
    return [torch.randn({a}), torch.randn({b})]


def get_init_inputs():
    return []
"""
PRODUCTS = {
    "rows": PRODUCT.format(expression="torch.matmul(A, B) * 2.0", a="67, 130", b="130, 70"),
    "columns": PRODUCT.format(expression="torch.matmul(A.T, B.T)", a="130, 67", b="70, 130"),
    "batch": PRODUCT.format(expression="torch.bmm(A, B.transpose(1, 2))", a="3, 70, 90", b="3, 33, 90"),
    "linear": MODULE.format(layer="Linear(131, 95)", shape="77, 131"),
    "one": PRODUCT.format(expression="torch.matmul(A, B)", a="1, 1", b="1, 1"),
}
CONVOLUTIONS = {
    "dilated": MODULE.format(layer="Conv2d(70, 66, 3, stride=2, padding=1, dilation=2)", shape="2, 70, 13, 9"),
    "line": MODULE.format(layer="Conv1d(24, 33, 5, padding=2)", shape="3, 24, 61"),
    "volume": MODULE.format(layer="Conv3d(20, 40, (3, 2, 3), padding=(1, 0, 1), bias=False)", shape="1, 20, 5, 6, 7"),
    "groups": MODULE.format(layer="Conv2d(96, 40, 3, groups=2, padding=1)", shape="2, 96, 7, 6"),
    "transposed": MODULE.format(
        layer="ConvTranspose2d(40, 70, 3, stride=2, padding=1, output_padding=1)", shape="2, 40, 5, 6"
    ),
    "stride 3": MODULE.format(layer="ConvTranspose1d(66, 30, 4, stride=3, padding=1)", shape="2, 66, 20"),
    "transposed dilated": MODULE.format(layer="ConvTranspose2d(40, 7, 3, dilation=2, padding=1)", shape="1, 40, 6, 5"),
    "transposed groups": MODULE.format(
        layer="ConvTranspose3d(8, 12, (3, 4, 3), stride=(2, 2, 1), padding=(1, 2, 0), groups=2)", shape="1, 8, 3, 4, 3"
    ),
}


def judged(source: str, schedule: str) -> tuple[str, str, str]:
    """Returns the candidate's text, the verdict, and the findings of the machine."""
    text = write(source, named(schedule))
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")
    result = evaluate(Task(task_id="split", source=source), candidate)
    return text, result.verdict, result.reason


@pytest.mark.parametrize("way", ["split1", "split128", "split192", "deep4", "read1", "read64"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_right(name: str, way: str) -> None:
    text, verdict, reason = judged(PRODUCTS[name], f"product={way}")
    assert "kw::SplitTile" in text
    assert verdict == "correct", reason


@pytest.mark.parametrize("way", ["split1", "split128", "read1"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_right(name: str, way: str) -> None:
    text, verdict, reason = judged(CONVOLUTIONS[name], f"conv={way}")
    assert "kw::SplitTile" in text
    assert verdict == "correct", reason


def test_a_stride_with_a_dilation_is_transposed_directly() -> None:
    source = MODULE.format(layer="ConvTranspose2d(8, 7, 3, stride=2, dilation=2)", shape="1, 8, 6, 5")
    text, verdict, reason = judged(source, "conv=split128")
    assert "kw::SplitTile" not in text
    assert verdict == "correct", reason
