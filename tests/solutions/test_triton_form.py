"""The Triton form: candidates parse, are judged correct where Triton is installed, and other operators raise."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator

import pytest
from shaped_tasks import CONVOLUTIONS, PRODUCTS, task

from kernelwright import generate
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions import write
from kernelwright.solutions.read.reading import Unreadable
from kernelwright.tasks import candidate_from_text

CHAIN = task("return torch.tanh(F.leaky_relu(x, 0.2) * self.s + torch.sigmoid(x)) - x / 3", "torch.randn(6, 200)",
             init="self.s = 2")  # fmt: skip
SOFTMAX = task("return torch.softmax(x, dim=1) * 2.0", "torch.randn(6, 37, 5)")
SCALED = task("return torch.log_softmax(x, dim=1) * self.s", "torch.randn(6, 37, 5)",
              init="self.s = nn.Parameter(torch.randn(5))")  # fmt: skip
JUDGED = {"chain": CHAIN, "scaled softmax": SCALED, "softmax": SOFTMAX, "linear": PRODUCTS["linear chain"]}


@pytest.mark.parametrize("group", ["activation", "elementwise", "softmax", "attention"])
def test_every_generated_task_of_these_groups_has_a_triton_answer(group: str) -> None:
    for made in generate.generate(19, 20, families=[group]):
        text = write(made.source, form="triton")
        functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
        assert functions and "kernelwright" not in text
        assert all(ast.unparse(f.decorator_list[0]) == "triton.jit" for f in functions)


@pytest.mark.parametrize("name", JUDGED)
def test_what_is_written_parses(name: str) -> None:
    ast.parse(write(JUDGED[name], form="triton"))  # a size of the input once had no name before it


def test_other_operators_are_refused_by_name() -> None:
    with pytest.raises(Unreadable, match="conv"):
        write(CONVOLUTIONS["conv3d"], form="triton")


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2), pool=pool) as opened:
        yield opened


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is an optional extra")
@pytest.mark.parametrize("name", JUDGED)
def test_judged_right(evaluator: Evaluator, name: str) -> None:
    text = write(JUDGED[name], form="triton")
    result = evaluator.evaluate(Task(task_id="t", source=JUDGED[name]), candidate_from_text(text, "t"))
    assert result.verdict == "correct", f"{result.reason}\n{text}"
