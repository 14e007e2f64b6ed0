"""The plan of a task lists its operators and marks the code that computes each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from shaped_tasks import task

from kernelwright.corpus import pairs
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.generate import generate
from kernelwright.records import Task
from kernelwright.solutions import schedules, write
from kernelwright.solutions.kernels.plan import AnswerPlan, without_plan
from kernelwright.solutions.mistakes import mistakes
from kernelwright.solutions.read.reading import Node, Unreadable
from kernelwright.tasks import candidate_from_text
from kernelwright.tasks.normal_form.normal import normal_form


def _lines(answer: str, start: str) -> list[str]:
    return [line.strip() for line in answer.splitlines() if line.strip().startswith(start)]


def test_operators_come_in_order_and_shared_values_once() -> None:
    source = task(
        "y = self.fc(x)\ny = y * torch.sigmoid(y)\nreturn torch.mean(y - 1.5, dim=1, keepdim=True)",
        "torch.randn(4, 70)",
        init="self.fc = nn.Linear(70, 33)",
    )
    answer = write(source, plan=True)
    assert _lines(answer, "# ") == [
        "# x: 2d",
        "# t1 = linear_module(x, self.fc) -> 2d",
        "# t2 = sigmoid(t1) -> 2d",
        "# t3 = mul(t1, t2) -> 2d",
        "# t4 = sub(t3, 1.5) -> 2d",
        "# t5 = mean(t4, dim=1 of 2, keepdim=True) -> 2d",
        "# t1, t2, t3, t4",
        "# t5",
    ]
    assert answer.index("# t5 = ") < answer.index("kernels = Module(")


def test_a_statement_stands_under_the_operator_that_it_computes() -> None:
    answer = write(task("return torch.relu(x) / 2.0", "torch.randn(4, 70)"), plan=True)
    assert (
        "    // t1 = relu(x)\n    float t1 = fmaxf(v, 0.0f);\n    // t2 = div(t1, 2.0)\n    float t2 = t1 / 2.0f;\n"
        in answer
    )
    assert '// t1, t2\nextern "C" __global__ void fused_t2(' in answer
    assert "    t2 = torch.empty_like(x)\n" in answer and "    return t2\n" in answer


def test_an_operator_of_several_passes_is_told_whole_once() -> None:
    answer = write(task("return torch.log_softmax(x, dim=1)", "torch.randn(4, 70)"), plan=True)
    assert _lines(answer, "// t1") == ["// t1", "// t1 = log_softmax(x, dim=1 of 2)", "// t1", "// t1"]


def test_each_layer_has_a_kernel_and_a_tensor_of_its_own_name() -> None:
    source = task(
        "x = torch.relu(self.a(x))\nreturn torch.sigmoid(self.b(x))",
        "torch.randn(4, 32)",
        init="self.a = nn.Linear(32, 32)\nself.b = nn.Linear(32, 32)",
    )
    answer = write(source, plan=True)
    assert re.findall(r"__global__ void (\w+)", answer) == ["linear_t2", "linear_t4"]
    assert re.findall(r"(\w+) = torch.empty", answer) == ["t2", "t4"]
    assert _lines(answer, "# t")[4:] == ["# t1, t2", "# t3, t4"]


def test_operators_are_called_what_forward_calls_them() -> None:
    body = "t1 = torch.exp(x)\nt2 = torch.abs(x)\nt3 = t2.max(dim=1, keepdim=True)\nt4 = t3.values\nreturn t1 / t4 + y"
    answer = write(task(body, "torch.randn(4, 70), torch.randn(70)", "x, y"), plan=True)
    assert _lines(answer, "# ")[:7] == [
        "# x: 2d",
        "# y: 1d",
        "# t1 = exp(x) -> 2d",
        "# t2 = abs(x) -> 2d",
        "# t4 = max(t2, dim=1 of 2, keepdim=True) -> 2d",
        "# u1 = div(t1, t4) -> 2d",
        "# u2 = add(u1, y) -> 2d",
    ]


def test_a_name_that_has_two_values_is_not_used() -> None:
    answer = write(task("t1 = torch.exp(x)\nt1 = torch.abs(t1)\nreturn t1", "torch.randn(4, 70)"), plan=True)
    assert _lines(answer, "# ")[1:3] == ["# t1 = exp(x) -> 2d", "# t2 = abs(t1) -> 2d"]


def test_an_activation_says_which_of_its_layer_s_values_the_kernel_takes() -> None:
    source = task("return self.act(x)", "torch.randn(4, 70)", init="self.act = nn.Softshrink(0.3)")
    assert "# t1 = softshrink(x, lambd=self.act.lambd) -> 2d\n" in write(source, plan=True)


def test_a_value_that_is_needed_twice_is_computed_by_the_layer_once() -> None:
    body = "a = torch.sigmoid(self.fc(x))\nreturn a / torch.sqrt((a ** 2).mean(1, keepdim=True))"
    answer = write(task(body, "torch.randn(4, 32)", init="self.fc = nn.Linear(32, 32)"), plan=True)
    assert answer.count("__global__") == 2 and _lines(answer, "// t")[:1] == ["// t1, t2"]


def test_kernels_and_schedules_have_one_declaration_a_name() -> None:
    compared = 0
    for made in generate(11, 60):
        source = normal_form(made.source)
        try:
            every = schedules(source)
        except Unreadable:
            continue
        for schedule in every[:3]:
            planned = write(source, schedule, plan=True)
            assert "\x01" not in planned and "\x02" not in planned
            ast.parse(planned)
            kernels = re.findall(r"__global__ void (\w+)\(([^)]*)\)", planned)
            assert len({name for name, _ in kernels}) == len(kernels)
            for name, parameters in kernels:
                assert re.search(r"_[tu]\d+$", name), name
                declared = re.findall(r"(\w+)(?:,|$)", parameters)
                assert len(set(declared)) == len(declared), parameters
            compared += 1
    assert compared > 100


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2), pool=pool) as opened:
        yield opened


FUSED = ("fused_rows", "fused_norm", "gated_unit", "fused_conv_transpose2d")


@pytest.mark.parametrize("family", FUSED)
def test_a_planned_answer_is_right(evaluator: Evaluator, family: str) -> None:
    source = normal_form(next(iter(generate(3, 1, families=[family]))).source)
    text = write(source, plan=True)
    result = evaluator.evaluate(Task(task_id=family, source=source), candidate_from_text(text, "test"))
    assert result.verdict == "correct", f"{result.reason}\n{text}"


def test_values_of_a_row_that_share_a_part_declare_it_once(evaluator: Evaluator) -> None:
    body = "t1 = x.mean(1, keepdim=True)\nt2 = t1 * t1\nt3 = torch.exp(t2 + 1)\nt4 = torch.sqrt(t2)\nreturn x * t3 + t4"
    source = task(body, "torch.randn(4, 6, 50)")
    text = write(source, plan=True)
    assert text.count("float t2 = ") == 1
    result = evaluator.evaluate(Task(task_id="t", source=source), candidate_from_text(text, "test"))
    assert result.verdict == "correct", f"{result.reason}\n{text}"


def test_every_operator_that_is_told_is_one_of_the_plan() -> None:
    for pair in pairs(5, 100, traces=False):
        head = re.findall(r"^# ([tu]\d+) = ", pair.answer, re.MULTILINE)
        numbers = [int(name[1:]) for name in head if name[0] == "t"]
        assert head and numbers == sorted(set(numbers))
        names = re.findall(r"\b[tu]\d+\b", " ".join([*_lines(pair.answer, "// t"), *_lines(pair.answer, "# t")]))
        inputs = re.findall(r"^# (\w+): \d+d$", pair.answer, re.MULTILINE)
        assert set(names) <= {*head, *inputs}


def test_an_input_may_be_called_as_operators_are() -> None:
    u1 = Node("input", text="u1")
    inner = Node("exp", (u1,))
    plan = AnswerPlan(Node("add", (Node("tanh", (inner,)), u1)), {inner: "t1"})
    assert plan.lines == {"t1": "exp(u1)", "u2": "tanh(t1)", "u3": "add(u2, u1)"}


def test_a_stream_of_pairs_has_none_where_none_is_wanted() -> None:
    with_plans, without = pairs(3, 40, traces=False), pairs(3, 40, traces=False, plan=False)
    for planned, plain in zip(with_plans, without, strict=True):
        assert planned.task == plain.task and planned.answer != plain.answer
        assert without_plan(plain.answer) == plain.answer != without_plan(planned.answer)


def test_no_mistake_is_planted_in_a_comment() -> None:
    for pair in pairs(7, 60, traces=False):
        for name, wrong in mistakes(pair.answer, 3):
            assert without_plan(wrong) != without_plan(pair.answer), name
