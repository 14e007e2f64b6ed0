"""Tests small operators and returned truth values, judged by execution."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shaped_tasks import task

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions import APART, CANONICAL, Schedule, write
from kernelwright.solutions.kernels.schedule import TUNED
from kernelwright.solutions.read.reading import Unreadable
from kernelwright.tasks import candidate_from_text

ROWS, MAPS = "torch.randn(6, 40)", "torch.randn(2, 5, 9, 8)"
CASES = {
    "truth of a row": task("return x.amax(dim=1) > 0.5", ROWS),
    "truth after softmax": task("return x.softmax(1) - 0.01 > 0.02", ROWS),
    "truth of two reductions": task("return (x.sum(1) > 0) & (x.amax(1) < 2)", ROWS),
    "truth after a product": task("return self.net(x) > 0", ROWS, init="self.net = nn.Linear(40, 7)"),
    "any": task("return (x > 1.5).any(dim=1)", ROWS),
    "all of all": task("return torch.all(x > -9)", ROWS),
    "tests for infinities": task(
        "return torch.where(torch.isfinite(x.log()), x.log(), x) + torch.isinf(1 / x.relu()).float()", ROWS
    ),
    "tests for NaN": task("return torch.where(torch.isnan(x.sqrt()), x, x.sqrt())", ROWS),
    "differences": task("return torch.diff(x, dim=1) * x.diff(dim=-1)", ROWS),
    "reversed difference": task("return torch.rsub(x, 1.0, alpha=2)", ROWS),
    "slopes without training": task("return F.rrelu(x, 0.1, 0.5, training=False)", ROWS),
    "bounded logit": task("return x.sigmoid().logit(1e-3)", ROWS),
    "special functions": task(
        "return torch.erfinv(x.tanh() * 0.5) + torch.lgamma(x.abs() + 1) + torch.special.i0(x.tanh())", ROWS
    ),
    "two operands": task(
        "return torch.logaddexp(x, y) + torch.xlogy(x, y.abs() + 0.1) + torch.copysign(x, y)",
        f"{ROWS}, {ROWS}",
        "x, y",
    ),
    "steps": task("return torch.heaviside(x.relu(), x.new_zeros(1) + 0.5) * torch.deg2rad(x)", ROWS),
    "hyperbolic": task("return torch.acosh(x.abs() + 1.5) + torch.atanh(x.tanh() * 0.9)", ROWS),
    "least of a number": task("return torch.min(x, torch.tensor(0.5))", ROWS),
    "ends by name": task("return torch.aminmax(x, dim=1).max", ROWS),
    "windows as columns": task("return F.unfold(x.relu(), (2, 3), padding=(1, 0), stride=2)", MAPS),
    "windows by a layer": task("return self.u(x) * 2", MAPS, init="self.u = nn.Unfold(3)"),
    "softmax of channels": task("return self.s(x)", MAPS, init="self.s = nn.Softmax2d()"),
}
UNREADABLE = {
    "windows with a dilation": task("return F.unfold(x, 2, dilation=2)", MAPS),
    "slopes that are drawn": task("return F.rrelu(x, training=True)", ROWS),
    "differences of differences": task("return torch.diff(x, n=2)", ROWS),
}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(seed=3, trials=2), pool=pool) as shared:
        yield shared


@pytest.mark.parametrize(("name", "schedule"), [*((n, CANONICAL) for n in CASES), ("any", APART), ("any", TUNED)])
def test_the_answer_is_correct(evaluator: Evaluator, name: str, schedule: Schedule) -> None:
    text = write(CASES[name], schedule)
    found = evaluator.evaluate(Task(task_id="t", source=CASES[name]), candidate_from_text(text, "solutions"))
    assert found.verdict == "correct", f"{found.reason}\n{found.log}\n{text}"


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_no_template_covers_is_said(name: str) -> None:
    with pytest.raises(Unreadable, match="no template for"):
        write(UNREADABLE[name])
