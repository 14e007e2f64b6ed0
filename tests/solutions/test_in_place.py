"""Kernels that read and write 16-bit tensors in their own type: right, and without conversions on the host."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions import write
from kernelwright.solutions.forms import export
from kernelwright.solutions.kernels.schedule import CANONICAL, TUNED, Schedule
from kernelwright.tasks import candidate_from_text

IN_PLACE = Schedule(in_place=True)
_CONVERSION = re.compile(r"\.(?:float|half|bfloat16)\(\)")


def task(returned: str, inputs: str, layer: str = "", kind: str = "half") -> str:
    text = f"""
import torch
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {f"self.layer = {layer}" if layer else "pass"}
    def forward(self, a, b):
        return {returned}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
    return text.replace("KIND", f"dtype=torch.{kind}")


TWO = "torch.randn(13, 70, KIND), torch.randn(13, 70, KIND)"
IMAGES = "torch.randn(2, 3, 13, 11, KIND), torch.randn(2, 8, 13, 11, KIND)"
WHOLLY = {
    "elementwise": task("torch.tanh(a) * b", TWO),
    "two results": task("(torch.relu(a), a * b)", TWO),
    "one float32 operand": task("a * b", "torch.randn(13, 70, KIND), torch.randn(13, 70)"),
    "product": task("torch.relu(a @ b.T)", TWO),
    "bias behind strides": task("a @ b.T + self.layer", TWO, "nn.Parameter(torch.randn(13, KIND))"),
    "batched": task("torch.bmm(a, b)", "torch.randn(3, 13, 70, KIND), torch.randn(3, 70, 9, KIND)"),
    "linear": task("F.gelu(self.layer(a)) + b.sum()", TWO, "nn.Linear(70, 50, KIND)"),
    "no bias": task("self.layer(a) * 2", TWO, "nn.Linear(70, 50, bias=False, KIND)"),
    "convolution": task("torch.relu(self.layer(a)) + b", IMAGES, "nn.Conv2d(3, 8, 3, padding=1, KIND)"),
    "pooling": task("F.avg_pool2d(a, 2)", IMAGES),
    "bfloat16": task("torch.sigmoid(self.layer(a))", TWO, "nn.Linear(70, 50, KIND)", "bfloat16"),
}
"""Tasks whose kernels use every 16-bit tensor element by element."""


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=3), pool=pool) as made:
        yield made


def judged(evaluator: Evaluator, source: str, text: str) -> tuple[str, str]:
    found = evaluator.evaluate(Task(task_id="task", source=source), candidate_from_text(text, "test"))
    return found.verdict, found.reason


@pytest.mark.parametrize("name", WHOLLY)
def test_no_tensor_is_converted(evaluator: Evaluator, name: str) -> None:
    text = write(WHOLLY[name], IN_PLACE)
    forward = text.partition("def forward")[2]
    assert not _CONVERSION.search(forward), forward
    assert judged(evaluator, WHOLLY[name], text) == ("correct", "")


ROWS = {
    "softmax over a norm": task("torch.softmax(self.layer(a), dim=-1) + b", TWO, "nn.LayerNorm(70, KIND)"),
    "middle dimension": task("torch.mean(a, dim=1) * 2", IMAGES),
    "place": task("torch.argmax(a * b, dim=1)", TWO),
}
"""Tasks whose rows are read by the headers of the tile library."""


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_read_in_place(evaluator: Evaluator, name: str) -> None:
    text = write(ROWS[name], TUNED)
    assert "kw::rows" in text or "kw::columns" in text
    assert not _CONVERSION.search(text.partition("def forward")[2]), text
    assert judged(evaluator, ROWS[name], text) == ("correct", "")


@pytest.mark.parametrize("name", ["cumulative sum", "tensor cores"])
def test_what_must_be_converted_stays_right(evaluator: Evaluator, name: str) -> None:
    source = {
        "cumulative sum": task("torch.cumsum(a, dim=1)", TWO),
        "tensor cores": task("self.layer(a)", TWO, "nn.Linear(70, 50, KIND)"),
    }[name]
    schedule = Schedule(product="tensor", in_place=True) if name == "tensor cores" else TUNED
    assert judged(evaluator, source, write(source, schedule)) == ("correct", "")


def test_the_exported_form_has_the_types(evaluator: Evaluator) -> None:
    text = export(write(WHOLLY["linear"], IN_PLACE))
    assert "kernelwright" not in text and "struct Half" in text
    assert judged(evaluator, WHOLLY["linear"], text) == ("correct", "")


def test_float32_tasks_and_the_canonical_schedule_are_as_they_were() -> None:
    single = task("torch.relu(self.layer(a)) + b.sum()", TWO, "nn.Linear(70, 50, KIND)", "float32")
    assert write(single, IN_PLACE) == write(single, CANONICAL)
    assert "kw::" not in write(WHOLLY["linear"], CANONICAL)
