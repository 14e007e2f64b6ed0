"""Equal layers share one kernel, others keep their own, and results stay the same."""

from __future__ import annotations

import re

import pytest
from shaped_tasks import task

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.generate import generate
from kernelwright.records import Task
from kernelwright.solutions import write
from kernelwright.solutions.kernels.plan import without_plan
from kernelwright.solutions.kernels.sharing import shared
from kernelwright.tasks import candidate_from_text
from kernelwright.tasks.normal_form.normal import normal_form

LAYERS = "self.a = nn.Linear(32, 32)\nself.b = nn.Linear(32, 32)\nself.c = nn.Linear(32, 8)\nself.n = nn.LayerNorm(8)"
FORWARD = "x = torch.relu(self.a(x))\nx = torch.relu(self.b(x))\nreturn self.n(self.c(x))"


def test_layers_that_are_alike_launch_one_kernel() -> None:
    source = task(FORWARD, "torch.randn(4, 32)", init=LAYERS)
    for text in (write(source), write(source, plan=True)):
        assert len(re.findall(r"__global__ void linear", text)) == 2  # with ReLU and without
        launched = re.findall(r"kernels\.(linear\w*)\[", text)
        assert len(launched) == 3 and launched[0] == launched[1] != launched[2]


def test_the_plan_says_which_kernel_stands_for_a_layer() -> None:
    text = write(task(FORWARD, "torch.randn(4, 32)", init=LAYERS), plan=True)
    assert "\n\n// t3, t4: linear_t2\n\n" in text
    assert "// t3, t4" not in without_plan(text) and "\n\n\n" not in without_plan(text).split('"""')[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("y[i] = x[i] + 1.0f;", "y[i] = x[i] + 2.0f;"),
        ("y[i] = x[i] - b[i];", "y[i] = b[i] - x[i];"),
        ("float v = x[i]; y[i] = v;", "float v = x[i]; y[i] = expf(v);"),
    ],
)
def test_kernels_that_differ_stay_apart(one: str, other: str) -> None:
    made = [_kernel("f_t1", "x", "b", one), _kernel("f_t2", "x", "b", other)]
    assert shared(made, ["kernels.f_t2[1, 2](x)"]) == (made, ["kernels.f_t2[1, 2](x)"])


def test_names_of_parameters_and_steps_do_not_keep_kernels_apart() -> None:
    made = [_kernel("f_t1", "x", "gain", "float t1 = x[i] * gain[i]; y[i] = t1;")]
    made.append(_kernel("f_t12", "t1", "other_gain", "float t12 = t1[i] * other_gain[i]; y[i] = t12;"))
    kept, lines = shared(made, ["kernels.f_t1[1, 2](x, a, t1)", "kernels.f_t12[3, 4](t1, b, t12)"])
    assert kept == made[:1]
    assert lines == ["kernels.f_t1[1, 2](x, a, t1)", "kernels.f_t1[3, 4](t1, b, t12)"]


def test_parameters_that_change_places_keep_kernels_apart() -> None:
    made = [_kernel("f_t1", "x", "b", "y[i] = x[i] / b[i];"), _kernel("f_t2", "b", "x", "y[i] = x[i] / b[i];")]
    assert shared(made, [])[0] == made


def _kernel(name: str, first: str, second: str, body: str) -> str:
    head = f'extern "C" __global__ void {name}(const float* {first}, const float* {second}, float* y)'
    return f"{head} {{\n    int i = threadIdx.x;\n    {body}\n}}"


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    with Pool() as pool, Evaluator(EvalOptions(backend="cpu", trials=2, small_sizes=True), pool=pool) as made:
        yield made


@pytest.mark.parametrize("family", ["deep_mlp_network", "residual_stack_network", "multi_head_network"])
def test_answers_with_shared_kernels_are_right(evaluator: Evaluator, family: str) -> None:
    (made,) = generate(3, 1, families=[family])
    source = normal_form(made.source)
    text = write(source, plan=True)
    assert len(re.findall(r"kernels\.\w+\[", text)) > len(re.findall("__global__", text))
    result = evaluator.evaluate(Task(task_id=family, source=source), candidate_from_text(text, "tests"))
    assert result.verdict == "correct", result.reason
