"""The template library: each family's candidate is judged, and a task without a template is reported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.errors import PolicyError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.policies.template import TemplatePolicy
from kernelwright.records import Message, Task
from kernelwright.solutions import write
from kernelwright.solutions.kernels.schedule import TUNED, Schedule, choices, named, schedule
from kernelwright.tasks import candidate_from_text

HEAD = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
MODEL = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {init}

    def forward(self, {inputs}):
        {forward}

rows = 6
cols = 200

def get_inputs():
    return [{values}]

def get_init_inputs():
    return []
"""
)


def reference(forward: str, values: str = "torch.randn(rows, cols)", inputs: str = "x", init: str = "pass") -> str:
    return MODEL.format(parameters="", init=init, inputs=inputs, forward=forward, values=values)


SPATIAL = "torch.randn(rows, 6, 11, 13)"
PAIR = "torch.randn(rows, cols), torch.randn(rows, cols)"
FAMILIES = {
    "chain": reference("return torch.tanh(F.leaky_relu(x, 0.2) * 0.5 + torch.sigmoid(x)) - x / 3"),
    "activations": reference("return F.gelu(x) + F.gelu(x, approximate='tanh') + F.silu(x) + F.mish(x) + F.selu(x)"),
    "more activations": reference(
        "return F.softplus(x, beta=2) + F.elu(x, 0.7) + F.hardswish(x) + F.hardtanh(x, -0.5, 2)"
    ),
    "module activation": reference("return self.act(x)", init="self.act = nn.LeakyReLU(0.3)"),
    "broadcast weight": reference("return x * self.w + 1", init="self.w = nn.Parameter(torch.randn(200))"),
    "clamp": reference("return torch.clamp(x, min=-0.5, max=0.25) ** 2"),
    "sum": reference("return torch.sum(x, dim=1, keepdim=True)"),
    "mean of the first dimension": reference("return x.mean(dim=0)"),
    "max values": reference("return torch.max(x, dim=1)[0]"),
    "middle dimension": reference("return torch.amin(x, dim=1)", "torch.randn(rows, 37, 41)"),
    "argmax": reference("return torch.argmax(x, dim=1)", "torch.randn(rows, 37, 41)"),
    "argmin over all": reference("return torch.argmin(x)"),
    "softmax": reference("return torch.softmax(x, dim=-1)"),
    "log softmax of the first dimension": reference("return F.log_softmax(x, dim=0)"),
    "logsumexp": reference("return torch.logsumexp(x, dim=1)"),
    "rms": reference("return x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)"),
    "l1": reference("return x / torch.sum(torch.abs(x), dim=1, keepdim=True)"),
    "frobenius": reference("return x / torch.norm(x, p='fro')"),
    "variance": reference("return torch.var(x, dim=1, keepdim=True)"),
    "mse": reference("return F.mse_loss(p, t)", PAIR, "p, t"),
    "huber": reference("return F.smooth_l1_loss(p, t, beta=0.5)", PAIR, "p, t"),
    "hinge": reference("return torch.mean(torch.clamp(1 - p * t, min=0))", PAIR, "p, t"),
    "matmul": reference("return torch.matmul(a, b)", "torch.randn(rows, 70), torch.randn(70, 33)", "a, b"),
    "both transposed": reference("return a.T @ b.T", "torch.randn(70, rows), torch.randn(33, 70)", "a, b"),
    "batched": reference("return torch.bmm(a, b)", "torch.randn(rows, 17, 31), torch.randn(rows, 31, 9)", "a, b"),
    "matrix times vector": reference("return a @ b", "torch.randn(rows, 70), torch.randn(70)", "a, b"),
    "3d times 2d": reference("return a @ b", "torch.randn(rows, 5, 31), torch.randn(31, 9)", "a, b"),
    "linear": reference("return self.fc(x)", init="self.fc = nn.Linear(200, 31)"),
    "conv1d": reference("return self.c(x)", "torch.randn(rows, 6, 50)", init="self.c = nn.Conv1d(6, 8, 5, stride=2)"),
    "conv2d": reference("return self.c(x)", SPATIAL, init="self.c = nn.Conv2d(6, 9, (3, 5), padding=(1, 2), groups=3)"),
    "conv3d": reference(
        "return self.c(x)", "torch.randn(2, 3, 5, 6, 7)", init="self.c = nn.Conv3d(3, 4, 3, dilation=2)"
    ),
    "depthwise": reference("return self.c(x)", SPATIAL, init="self.c = nn.Conv2d(6, 6, 3, groups=6, bias=False)"),
    "transposed": reference(
        "return self.c(x)",
        SPATIAL,
        init="self.c = nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1, groups=2)",
    ),
    "max pool": reference("return self.p(x)", SPATIAL, init="self.p = nn.MaxPool2d(3, 2, padding=1, ceil_mode=True)"),
    "average pool": reference("return self.p(x)", SPATIAL, init="self.p = nn.AvgPool2d(3, 2, padding=1)"),
    "average pool, padding not counted": reference(
        "return self.p(x)", SPATIAL, init="self.p = nn.AvgPool2d(3, padding=1, ceil_mode=True, count_include_pad=False)"
    ),
    "cumsum": reference("return torch.cumsum(x, dim=1)"),
    "masked cumsum": reference(
        "return torch.cumsum(x * m, dim=1)", "torch.randn(rows, cols), torch.rand(rows, cols) > 0.5", "x, m"
    ),
    "reverse cumsum": reference("return torch.cumsum(x.flip(1), dim=1).flip(1)"),
    "cumprod of the first dimension": reference("return torch.cumprod(x, dim=0)"),
    "batch norm": reference("return self.n(x)", SPATIAL, init="self.n = nn.BatchNorm2d(6)"),
    "instance norm": reference("return self.n(x)", SPATIAL, init="self.n = nn.InstanceNorm2d(6, affine=True)"),
    "group norm": reference("return self.n(x)", SPATIAL, init="self.n = nn.GroupNorm(3, 6)"),
    "layer norm": reference("return self.n(x)", SPATIAL, init="self.n = nn.LayerNorm((11, 13))"),
    "names that the code uses itself": reference("return n * 2 + y", PAIR, "n, y"),
}
QUICK = ("chain", "softmax", "matmul", "conv2d", "max pool", "masked cumsum", "group norm", "argmax", "huber")


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(seed=11, trials=2), pool=pool) as shared:
        yield shared


def verdict(evaluator: Evaluator, source: str, turn: int, seed: int = 0) -> tuple[str, str]:
    text = write(source, schedule(seed, turn))
    result = evaluator.evaluate(Task(task_id="t", source=source), candidate_from_text(text, "template"))
    return result.verdict, f"{result.reason}\n{result.log}\n{text}"


@pytest.mark.parametrize("name", FAMILIES)
def test_family_is_correct(evaluator: Evaluator, name: str) -> None:
    found, why = verdict(evaluator, FAMILIES[name], turn=0, seed=len(name))
    assert found == "correct", why


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tuned_schedule_is_correct(evaluator: Evaluator, name: str) -> None:
    assert schedule(0, 0) is TUNED
    found, why = verdict(evaluator, FAMILIES[name], turn=0, seed=0)
    assert found == "correct", why


MASKED = reference(
    "return torch.softmax(x.masked_fill(torch.ones(200, 200).triu(1).bool(), float('-inf')), dim=-1)",
    "torch.randn(200, cols)",
)


@pytest.mark.parametrize("way", [*choices(), TUNED], ids=lambda s: s.name)
def test_threads_that_see_nothing_but_minus_infinity_do_no_harm(evaluator: Evaluator, way: Schedule) -> None:
    candidate = candidate_from_text(write(MASKED, way), "template")
    result = evaluator.evaluate(Task(task_id="t", source=MASKED), candidate)
    assert result.verdict == "correct", result.reason


@pytest.mark.parametrize("name", QUICK)
def test_every_schedule_is_correct(evaluator: Evaluator, name: str) -> None:
    for turn in range(3):
        found, why = verdict(evaluator, FAMILIES[name], turn)
        assert found == "correct", why


@pytest.mark.parametrize(
    "source",
    [
        reference("return torch.linalg.svd(x)[0]"),
        reference("while x.sum() < 3:\n            x = x + 1\n        return x"),
        reference("return torch.sort(x, dim=0)[0] + torch.softmax(x, dim=1)"),
        "x = 1",
        "def f(:",
    ],
)
def test_no_template_is_said_so(source: str) -> None:
    with pytest.raises(PolicyError, match="no template|cannot be parsed"):
        TemplatePolicy().generate([], seed=0, task=Task(task_id="odd", source=source))


def test_a_turn_that_is_said_counts_and_not_what_is_shown() -> None:
    task = Task(task_id="softmax", source=FAMILIES["softmax"])
    earlier = [Message(role="assistant", content="an answer")] * 2
    shown, said = (TemplatePolicy().generate(m, seed=2, task=task, turn=t) for m, t in ((earlier, None), ([], 2)))
    assert shown == said != TemplatePolicy().generate([], seed=0, task=task)


def test_constructor_and_weights_keep_their_names() -> None:
    text = write(FAMILIES["linear"], schedule(0, 0))
    assert "self.fc = nn.Linear(200, 31)" in text and "class ModelNew(nn.Module)" in text


def test_the_tuned_schedule_has_a_name_that_is_read() -> None:
    assert named(TUNED.name) == named("tuned") == TUNED
