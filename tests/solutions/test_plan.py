"""The plan of a task: its operators, and where an answer computes which."""

from __future__ import annotations

import ast
import re

from shaped_tasks import task

from kernelwright.corpus.pairs import pairs
from kernelwright.solutions import schedules, write
from kernelwright.solutions.mistakes import mistakes
from kernelwright.solutions.plan import without_plan
from kernelwright.solutions.reading import Unreadable
from kernelwright.tasks.generate import generate


def _lines(answer: str, start: str) -> list[str]:
    return [line.strip() for line in answer.splitlines() if line.strip().startswith(start)]


def test_operators_come_in_order_and_shared_values_once() -> None:
    source = task(
        "y = self.fc(x)\ny = y * torch.sigmoid(y)\nreturn torch.mean(y - 1.5, dim=1, keepdim=True)",
        "torch.randn(4, 70)",
        init="self.fc = nn.Linear(70, 33)",
    )
    answer = write(source, plan=True)
    assert _lines(answer, "# t") == [
        "# t1 = linear_module(x, self.fc)",
        "# t2 = sigmoid(t1)",
        "# t3 = mul(t1, t2)",
        "# t4 = sub(t3, 1.5)",
        "# t5 = mean(t4, dim=1 of 2, keepdim=True)",
        "# t1, t2, t3, t4",
        "# t5",
    ]
    assert answer.index("# t5 = ") < answer.index("kernels = Module(")


def test_a_statement_stands_under_the_operator_that_it_computes() -> None:
    answer = write(task("return torch.relu(x) / 2.0", "torch.randn(4, 70)"), plan=True)
    assert "    // t1 = relu(x)\n    v = fmaxf(v, 0.0f);\n    // t2 = div(t1, 2.0)\n    v = v / 2.0f;\n" in answer
    assert '// t1, t2\nextern "C" __global__' in answer


def test_an_operator_of_several_passes_is_told_whole_once() -> None:
    answer = write(task("return torch.log_softmax(x, dim=1)", "torch.randn(4, 70)"), plan=True)
    assert _lines(answer, "// t1") == ["// t1", "// t1 = log_softmax(x, dim=1 of 2)", "// t1", "// t1"]


def test_layers_of_one_shape_still_share_a_kernel() -> None:
    source = task(
        "x = torch.relu(self.a(x))\nreturn torch.relu(self.b(x))",
        "torch.randn(4, 32)",
        init="self.a = nn.Linear(32, 32)\nself.b = nn.Linear(32, 32)",
    )
    answer = write(source, plan=True)
    assert answer.count("__global__") == 1
    assert _lines(answer, "# t")[4:] == ["# t1, t2", "# t3, t4"]


def test_an_answer_without_its_plan_is_the_answer() -> None:
    compared = 0
    for made in generate(11, 300):
        try:
            every = schedules(made.source)
        except Unreadable:
            continue
        for schedule in every[:3]:
            planned = write(made.source, schedule, plan=True)
            assert without_plan(planned) == write(made.source, schedule)
            assert "\x01" not in planned and "\x02" not in planned
            ast.parse(planned)
            compared += 1
    assert compared > 300


def test_every_operator_that_is_told_is_one_of_the_plan() -> None:
    for pair in pairs(5, 100, traces=False):
        head = re.findall(r"^# (t\d+) = ", pair.answer, re.MULTILINE)
        assert head == [f"t{n + 1}" for n in range(len(head))] and head
        names = re.findall(r"t\d+", " ".join([*_lines(pair.answer, "// t"), *_lines(pair.answer, "# t")]))
        assert set(names) <= set(head)


def test_a_stream_of_pairs_has_none_where_none_is_wanted() -> None:
    with_plans, without = pairs(3, 40, traces=False), pairs(3, 40, traces=False, plan=False)
    for planned, plain in zip(with_plans, without, strict=True):
        assert planned.task == plain.task and planned.answer != plain.answer
        assert without_plan(planned.answer) == plain.answer


def test_no_mistake_is_planted_in_a_comment() -> None:
    for pair in pairs(7, 60, traces=False):
        for name, wrong in mistakes(pair.answer, 3):
            assert without_plan(wrong) != without_plan(pair.answer), name
