"""The plan of a task: its operators, one a line, at the head of an answer."""

from __future__ import annotations

import ast

import pytest
from shaped_tasks import task

from kernelwright.corpus.pairs import pairs
from kernelwright.solutions import write
from kernelwright.solutions.plan import plan, with_plan
from kernelwright.solutions.reading import Unreadable


def test_operators_come_in_order_and_shared_values_once() -> None:
    source = task(
        "y = self.fc(x)\ny = y * torch.sigmoid(y)\nreturn torch.mean(y - 1.5, dim=1, keepdim=True)",
        "torch.randn(4, 70)",
        init="self.fc = nn.Linear(70, 33)",
    )
    assert plan(source) == [
        "# v1 = linear_module(x, self.fc)",
        "# v2 = sigmoid(v1)",
        "# v3 = mul(v1, v2)",
        "# v4 = sub(v3, 1.5)",
        "# v5 = mean(v4, dim=1, keepdim=True)",
    ]


def test_an_answer_keeps_everything_else() -> None:
    source = task("return torch.relu(x) + x", "torch.randn(4, 70)")
    answer = write(source)
    planned = with_plan(source, answer)
    assert planned.replace("# v1 = relu(x)\n# v2 = add(v1, x)\n", "") == answer
    assert planned.index("# v1") < planned.index("kernels = Module(")


def test_what_cannot_be_read_has_no_plan() -> None:
    with pytest.raises(Unreadable):
        plan("class Model: pass")


def test_a_stream_of_pairs_has_plans_where_it_is_asked_for() -> None:
    with_plans, without = pairs(3, 40, traces=False, plan=True), pairs(3, 40, traces=False)
    for planned, plain in zip(with_plans, without, strict=True):
        assert planned.task == plain.task and "# v1 = " in planned.answer
        kept = [line for line in planned.answer.splitlines() if not line.startswith("# v")]
        assert kept == plain.answer.splitlines()
        ast.parse(planned.answer)
