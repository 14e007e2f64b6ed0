"""Judges kernels over the device library's memory headers at sizes with tails, and on values that are hard to add."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions import Schedule, write
from kernelwright.tasks import candidate_from_text

TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
WIDE = Schedule(memory="wide")


def task(body: str, *shapes: str, init: str = "pass") -> str:
    inputs = ", ".join(s if "(" in s else f"torch.randn({s})" for s in shapes)
    return TASK.format(init=init, names=", ".join("xzw"[: len(shapes)]), body=body, inputs=inputs)


SOFTMAX = "torch.softmax(x, dim=-1)"
LOG_SOFTMAX = "torch.log_softmax(x, dim=1)"
COLUMNS = "self.b, self.s = nn.Parameter(torch.randn(30)), nn.Parameter(torch.randn(5, 1))"
CASES = {
    "relu of 5 elements": task("torch.relu(x)", "5"),
    "chain of 10007": task("F.gelu(x * 0.5) + z", "10007", "10007"),
    "chain of many": task("torch.sigmoid(x) * z - w", "60, 40, 500", "60, 40, 500", "60, 40, 500"),
    "columns and channels": task("x * self.s + self.b", "4, 5, 30", init=COLUMNS),
    "columns of four": task("(x + self.b).tanh()", "301, 4, 16", init="self.b = nn.Parameter(torch.randn(4, 16))"),
    "a number": task("x * self.s", "77, 33", init="self.s = nn.Parameter(torch.randn(1))"),
    "odd columns": task("torch.tanh(x + self.b)", "70, 301", init="self.b = nn.Parameter(torch.randn(301))"),
    "three columns": task("x * self.b", "7000, 3", init="self.b = nn.Parameter(torch.randn(3))"),
    "odd gap": task("x + z", "50, 9, 13, 7", "50, 1, 1, 7"),
    "odd channels": task("x * self.b", "40, 9, 7, 7", init="self.b = nn.Parameter(torch.randn(9, 1, 1))"),
    "rows": task("x - z", "77, 36", "77, 1"),
    "without the middle": task("x * z", "7, 9, 36", "7, 1, 36"),
    "without two middles": task("x * z + w", "3, 5, 7, 8", "3, 1, 1, 8", "1, 5, 1, 8"),
    "outer": task("x + z", "300, 1", "1, 129"),
    "a comparison": task("x > z", "1000, 13", "13"),
    "a mask": task("torch.where(x > 0, z, w)", "37, 100", "37, 100", "100"),
    "a triangle": task("torch.tril(x) * 2", "3, 65, 65"),
    "a view": task("torch.relu(x.transpose(1, 2) + 1)", "3, 33, 70"),
    "a flip": task("torch.flip(x, dims=[1]) * z", "9, 51", "9, 51"),
    **{f"softmax of {n}": task(SOFTMAX, f"{r}, {n}") for r, n in (
        (3, 1), (50, 2), (9, 31), (70, 64), (33, 100), (65, 128), (7, 1000), (5, 1024), (3, 5000), (2, 8192), (2, 8195),
        (1, 40000), (3, 33000),
    )},
    "log softmax of 3 dimensions": task(LOG_SOFTMAX, "3, 17, 45"),
    "log softmax of many": task(LOG_SOFTMAX, "2, 600, 3"),
    "layer norm": task("self.n(x)", "5, 7, 36", init="self.n = nn.LayerNorm(36)"),
    "layer norm of 2 dimensions": task("self.n(x + z)", "5, 7, 37", "5, 7, 37", init="self.n = nn.LayerNorm((7, 37))"),
    "rms norm": task("F.rms_norm(x, (300,)) * z", "9, 300", "300"),
    "rms norm of channels": task("x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)", "3, 20, 9, 11"),
    "a row's factor": task("torch.softmax(x * z, dim=1)", "9, 70", "9, 1"),
    "a row's late factor": task("torch.softmax(x, dim=1) * z", "9, 70", "9, 1"),
    "one late factor": task("F.layer_norm(x, (32,)) * z", "6, 32", "1"),
    "a channel's factor": task("(x * z).sum(dim=(2, 3))", "3, 5, 9, 8", "5, 1, 1"),
    "a masked softmax": task("torch.softmax(torch.where(z > 0, x, -1e9), dim=1)", "9, 70", "9, 70"),
    "a causal softmax": task("torch.softmax(torch.tril(x), dim=-1)", "3, 40, 40"),
    "softmax of a view": task("torch.softmax(x.transpose(0, 1), dim=-1)", "45, 32"),
    "sum": task("x.sum(dim=1)", "9, 401"), "sum of the middle": task("x.sum(dim=1)", "4, 100, 70"),
    "sum of the first": task("(x * x).sum(dim=0)", "1000, 40"), "sum of a few": task("x.sum(dim=1)", "500, 3"),
    "mean": task("x.mean(dim=(1, 2), keepdim=True) * 2", "5, 30, 41"),
    "mean of the first two": task("x.mean(dim=(0, 1))", "20, 30, 41"),
    "product": task("x.prod(dim=1)", "9, 30"), "largest": task("x.amax(dim=-1)", "301, 7"),
    "smallest": task("x.amin(dim=1)", "3, 40, 50"),
    "variance": task("x.var(dim=1, unbiased=True)", "9, 100"),
    "standard deviation of channels": task("x.std(dim=1, keepdim=True) + x", "3, 30, 17"),
    "norm": task("x / x.norm(dim=1, keepdim=True)", "30, 130"),
    "mean over 3 of 4": task("x.mean(dim=(0, 2, 3))", "3, 4, 5, 6"),
    "log of sums": task("torch.logsumexp(x, dim=1)", "30, 130"),
    "far from zero": task("self.n(x)", "torch.randn(5, 400) + 1000", init="self.n = nn.LayerNorm(400)"),
    "minus infinity": task(
        "torch.softmax(x.masked_fill(torch.ones(200, 200).triu(1).bool(), float('-inf')), dim=-1)", "200, 200"
    ),
    "sum of all": task("(x * 2).sum()", "37, 301"), "mean of all": task("x.mean() * 3", "5, 10001"),
    "sum of one": task("x.sum()", "1"), "product of all": task("x.prod()", "50"),
    "largest of all": task("x.amax()", "77, 9"),
    "loss": task("F.mse_loss(x, z)", "70, 301", "70, 301"),
    "hinge": task("torch.clamp(1 - x * z, min=0).mean()", "70, 30", "30"),
    "many blocks": task("x.sum()", "600, 1100"),
    "argmax": task("torch.argmax(x, dim=1)", "9, 300"),
    "argmin of the middle": task("torch.argmin(x, dim=1)", "5, 70, 33"),
    "argmax of equals": task("torch.argmax(x, dim=-1)", "torch.randint(0, 3, (40, 70)).float()"),
    "argmax kept": task("torch.argmax(x * z, dim=0, keepdim=True)", "70, 40", "70, 40"),
    **{f"cumsum of {n}": task("torch.cumsum(x, dim=1)", f"{r}, {n}") for r, n in (
        (9, 1), (3, 31), (9, 128), (9, 130), (3, 1000), (2, 2500), (2, 9000), (1, 5001)
    )},
    "cumprod of the first": task("torch.cumprod(x, dim=0)", "50, 33"),
    "cumsum of the middle": task("torch.cumsum(x * z, dim=1) * 2", "3, 50, 33", "3, 50, 33"),
    "scan and chain": task("torch.relu(torch.cumsum(x, dim=-1) + z)", "5, 301", "301"),
    "reversed": task("torch.cumsum(x.flip(1), dim=1).flip(1)", "5, 300"),
    "masked": task("torch.cumsum(x * z, dim=1)", "5, 300", "torch.randint(0, 2, (5, 300)).bool()"),
    "exclusive": task(
        "torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), x), dim=1)[:, :-1].cumsum(1)", "5, 301"
    ),
    "cummax": task("torch.cummax(x, dim=1)[0]", "5, 301"), "cummin": task("torch.cummin(x, dim=0).values", "51, 30"),
    "group norm": task("self.n(x)", "3, 6, 11, 13", init="self.n = nn.GroupNorm(3, 6)"),
    "group norm and chain": task("F.relu(self.n(x) * z)", "3, 6, 4, 8", "6, 1, 1", init="self.n = nn.GroupNorm(2, 6)"),
    "group norm of a matrix": task("self.n(x)", "30, 24", init="self.n = nn.GroupNorm(4, 24)"),
    "group norm without weights": task("F.group_norm(x, 2)", "3, 4, 301"),
    "instance norm": task("self.n(x) + x", "3, 5, 7, 9", init="self.n = nn.InstanceNorm2d(5, affine=True)"),
    "large instance norm": task("self.n(x)", "1, 2, 150, 200", init="self.n = nn.InstanceNorm2d(2)"),
    "batch norm": task("self.n(x)", "5, 6, 11, 13", init="self.n = nn.BatchNorm2d(6)"),
    "batch norm and chain": task("torch.relu(self.n(x)) * 2", "5, 3, 40, 40", init="self.n = nn.BatchNorm2d(3)"),
    "batch norm of many": task("self.n(x)", "7, 2, 5000", init="self.n = nn.BatchNorm1d(2)"),
    "batch norm of a matrix": task("self.n(x)", "70, 37", init="self.n = nn.BatchNorm1d(37)"),
    "batch norm without weights": task("self.n(x)", "7, 3, 20", init="self.n = nn.BatchNorm1d(3, affine=False)"),
    "transposed": task("x.t().contiguous()", "130, 67"), "transposed by four": task("x.t().contiguous()", "64, 200"),
    "permuted": task("x.permute(0, 2, 3, 1).contiguous()", "3, 5, 9, 8"),
    "permuted back": task("x.permute(0, 3, 1, 2).contiguous() * 2", "3, 9, 8, 6"),
    "swapped": task("x.transpose(1, 2).contiguous()", "3, 5, 9, 8"),
    "swapped odd": task("x.transpose(0, 1) + 1", "5, 9, 7"),
    "reversed dimensions": task("x.permute(2, 1, 0).contiguous()", "5, 9, 7"),
    "transposed and more": task("torch.relu(x.transpose(-1, -2)) * 0.5", "3, 33, 65"),
    "transposed and other": task("x.transpose(1, 2) + z", "3, 33, 65", "3, 65, 33"),
    "swapped and other": task("x.transpose(1, 2) * z", "3, 5, 9, 8", "3, 9, 5, 8"),
    "mean over 2 of 3": task("x.mean(dim=(0, 2), keepdim=True) + x", "5, 6, 70"),
    "largest over 3 of 4": task("x.amax(dim=(0, 1, 3))", "5, 6, 7, 8"),
    "mish": task("F.mish(x * 9)", "3001"),
    "max pool": task("F.max_pool2d(x, 2)", "3, 5, 18, 21"),
    "max pool with a border": task("F.max_pool2d(x, 3, 2, 1) + 1", "3, 5, 18, 21"),
    "dilated max pool": task("F.max_pool2d(x, 3, 1, 1, 2)", "2, 3, 15, 21"),
    "max pool rounded up": task("F.max_pool2d(x, 3, 2, ceil_mode=True)", "2, 3, 16, 22"),
    "max pool of lines": task("F.max_pool1d(x, 4, 3)", "3, 5, 71"),
    "max pool 3D": task("F.max_pool3d(x, 2)", "2, 3, 7, 8, 9"),
    "mean pool": task("self.p(x) * z", "2, 3, 16, 22", "3, 1, 1", init="self.p = nn.AvgPool2d(3, 1, 1)"),
    "uneven mean pool": task("F.avg_pool2d(x, (2, 3), (1, 2), (1, 0))", "2, 3, 16, 22"),
    "mean pool rounded up": task("F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)", "2, 3, 16, 22"),
    "mean pool without its border": task("F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", "2, 3, 16, 22"),
    "mean pool of lines": task("F.avg_pool1d(x, 8, 1, 4)", "3, 5, 71"),
    "mean pool 3D": task("F.avg_pool3d(x, 3, 2, 1)", "2, 3, 7, 8, 9"),
    "global pool": task("F.adaptive_avg_pool2d(x, 1).flatten(1)", "5, 6, 9, 11"),
    "global max pool": task("self.p(x)", "5, 6, 91", init="self.p = nn.AdaptiveMaxPool1d(1)"),
    "adaptive pool": task("F.adaptive_avg_pool2d(x, (3, 2))", "5, 6, 9, 11"),
    "sum of few long rows": task("(x * 2).sum(dim=1)", "3, 70001"),
    "sum of few long columns": task("x.sum(dim=0) + z", "20011, 5", "5"),
    "variance of few columns": task("x.var(dim=0)", "20011, 3"),
    "mean of a long column": task("x.mean(dim=0)", "40003, 1"),
    "largest of few": task("x.amax(dim=1, keepdim=True)", "1, 30000, 3"),
    "long layer norm": task("self.n(x)", "2, 300000", init="self.n = nn.LayerNorm(300000)"),
}  # fmt: skip

PLAIN = ("softmax of 1", "adaptive pool", "mean pool without its border")
"""The cases that the library does not cover."""


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(seed=11, trials=2), pool=pool) as shared:
        yield shared


@pytest.mark.parametrize("name", CASES)
def test_the_wide_way_is_correct(evaluator: Evaluator, name: str) -> None:
    source = CASES[name]
    text = write(source, WIDE)
    result = evaluator.evaluate(Task(task_id="t", source=source), candidate_from_text(text, "template"))
    assert result.verdict == "correct", f"{result.reason}\n{result.log}\n{text}"
    assert ("#include <kernelwright/" in text) == (name not in PLAIN)
