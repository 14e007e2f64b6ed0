"""Products and attention of 16-bit operands on tensor cores: right in every spelling, and without float32 copies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions import write
from kernelwright.solutions.families import half_products
from kernelwright.solutions.kernels.cost import ProductSizes
from kernelwright.solutions.kernels.schedule import HALVES, TUNED, Schedule
from kernelwright.tasks import candidate_from_text


def task(returned: str, inputs: str, layer: str = "pass", kind: str = "half") -> str:
    """Returns a task of inputs a, b and so on; `inputs` are their shapes, or other text, split by `;`."""
    given = [f"torch.randn({x}, dtype=torch.{kind})" if x[0].isdigit() else x for x in inputs.split("; ")]
    return f"""
import torch
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layer}
    def forward(self, {", ".join("abcd"[: len(given)])}):
        return {returned}
def get_inputs():
    return [{", ".join(given)}]
def get_init_inputs():
    return []
""".replace("KIND", f"dtype=torch.{kind}")


ATTEND = "F.scaled_dot_product_attention(a, b, c{})"
PRODUCTS = {
    "both by rows": task("a @ b", "130, 70; 70, 90"),
    "both across": task("torch.tanh(a.T @ b.T) * 2", "65, 129; 40, 65"),
    "right across": task("torch.relu(a @ b.T)", "13, 72; 264, 72"),
    "batch": task("torch.bmm(a, b)", "3, 33, 70; 3, 70, 9"),
    "batch of pairs": task("torch.matmul(a, b.transpose(-2, -1))", "2, 3, 33, 64; 2, 3, 50, 64"),
    "stacked rows": task("torch.matmul(a, b)", "3, 33, 70; 70, 9"),
    "vector": task("a @ b", "90, 70; 70"),
    "sliced": task("a[:, 1:40] @ b[3:42]", "30, 50; 50, 70"),
    "also a float32 operand": task("a @ b + a", "70, 70; 70, 70"),
    "a chain": task("torch.relu(a @ b) @ b.T", "20, 40; 40, 50"),
    "functional layer": task("F.linear(a, b)", "20, 40; 50, 40", kind="bfloat16"),
    "layers": task(
        "self.m(F.gelu(self.l(a)))", "5, 3, 72", "self.l, self.m = nn.Linear(72, 130, KIND), nn.Linear(130, 33, KIND)"
    ),
}
ATTENTIONS = {
    "plain": task(ATTEND.format(""), "2, 3, 130, 64; 2, 3, 77, 64; 2, 3, 77, 64"),
    "causal": task(ATTEND.format(", is_causal=True, scale=0.3"), "1, 2, 65, 33; 1, 2, 100, 33; 1, 2, 100, 33"),
    "one batch": task(ATTEND.format(""), "3, 40, 80; 3, 50, 80; 3, 50, 80", kind="bfloat16"),
    "forbidden keys": task(
        ATTEND.format(", attn_mask=d"), "2, 3, 40, 64; 2, 3, 50, 64; 2, 3, 50, 64; torch.rand(2, 1, 1, 50) > 0.3"
    ),
    "added mask": task(ATTEND.format(", attn_mask=d"), "2, 3, 40, 64; 2, 3, 50, 64; 2, 3, 50, 64; 1, 3, 40, 50"),
    "grouped heads": task(
        ATTEND.format(", enable_gqa=True, is_causal=True"), "2, 6, 70, 64; 2, 2, 70, 64; 2, 2, 70, 64"
    ),
    "transposed": task(
        "F.scaled_dot_product_attention(a.transpose(1, 2), b.transpose(1, 2), c.transpose(1, 2)).transpose(1, 2)",
        "2, 40, 3, 64; 2, 40, 3, 64; 2, 40, 3, 64",
    ),
    "an operator behind": task(f"torch.relu({ATTEND.format('')}) * 2 + a", "2, 40, 64; 2, 50, 64; 2, 50, 64"),
}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2), pool=pool) as made:
        yield made


def judged(evaluator: Evaluator, source: str, text: str) -> tuple[str, str]:
    found = evaluator.evaluate(Task(task_id="task", source=source), candidate_from_text(text, "test"))
    return found.verdict, found.reason


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_right(evaluator: Evaluator, name: str) -> None:
    text = write(PRODUCTS[name], TUNED)
    assert "kw::HalfTile" in text
    assert judged(evaluator, PRODUCTS[name], text) == ("correct", "")


@pytest.mark.parametrize("way", HALVES)
def test_every_tiling_is_right(evaluator: Evaluator, way: str) -> None:
    source = PRODUCTS["both by rows"]
    assert judged(evaluator, source, write(source, Schedule(product=way))) == ("correct", "")


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_is_right(evaluator: Evaluator, name: str) -> None:
    text = write(ATTENTIONS[name], TUNED)
    assert "kw::Attention" in text
    assert judged(evaluator, ATTENTIONS[name], text) == ("correct", "")


def test_values_of_another_size_are_attended_by_steps(evaluator: Evaluator) -> None:
    source = task(ATTEND.format(""), "2, 3, 40, 64; 2, 3, 50, 64; 2, 3, 50, 32")
    assert judged(evaluator, source, write(source, TUNED)) == ("correct", "")


def test_operands_of_two_types_are_multiplied_as_float32(evaluator: Evaluator) -> None:
    source = task("a.float() @ b", "20, 40; torch.randn(40, 50)")
    text = write(source, Schedule(product="half64"))
    assert "kw::HalfTile" not in text
    assert judged(evaluator, source, text) == ("correct", "")


def test_large_products_get_large_tiles() -> None:
    assert half_products.best(ProductSizes(4096, 4096, 4096)) in ("half256", "halftall")
    assert half_products.best(ProductSizes(128, 8192, 8192)) == "half64"
