"""A forward with one operator per line computes the same."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest
import torch

from kernelwright.generate import generate
from kernelwright.tasks.normal_form.steps import in_steps


def stepped(body: str, arguments: str = "self, x") -> str:
    """Returns the body of a forward in steps."""
    function = ast.parse(f"def forward({arguments}):\n{textwrap.indent(body, '    ')}").body[0]
    assert isinstance(function, ast.FunctionDef)
    in_steps(function)
    return "\n".join(ast.unparse(statement) for statement in ast.fix_missing_locations(function).body)


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            "return F.relu(self.conv(x)) + self.bias",
            "t1 = self.conv(x)\nt2 = F.relu(t1)\nt3 = t2 + self.bias\nreturn t3",
        ),
        ("x = self.a(x)\nx = self.b(x)\nreturn x", "t1 = self.a(x)\nt2 = self.b(t1)\nreturn t2"),
        ("skip = x\nx = -x\nreturn x * skip", "t1 = -x\nt2 = t1 * x\nreturn t2"),
        (
            "n = x.shape[0] * 2\nreturn x.view(n, -1).sum(dim=1)",
            "t1 = x.shape[0] * 2\nt2 = x.view(t1, -1)\nt3 = t2.sum(dim=1)\nreturn t3",
        ),
        ("v, i = torch.max(x.abs(), 1)\nreturn v, i", "t1 = x.abs()\nt2, t3 = torch.max(t1, 1)\nreturn (t2, t3)"),
        (
            "return torch.cat([x + 1, x], dim=1)[:, 0]",
            "t1 = x + 1\nt2 = torch.cat([t1, x], dim=1)\nt3 = t2[:, 0]\nreturn t3",
        ),
        (
            "return 1.0 / math.sqrt(x.size(-1)) * x.exp()",
            "t1 = x.exp()\nt2 = 1.0 / math.sqrt(x.size(-1)) * t1\nreturn t2",
        ),
    ],
)
def test_every_operator_gets_a_line(body: str, lines: str) -> None:
    assert stepped(body) == lines
    assert stepped(lines) == stepped(body)


@pytest.mark.parametrize(
    "body",
    [
        "if self.training:\n    x = x + 1\nreturn x + x * 2",
        "for layer in self.layers:\n    x = layer(x) + x\nreturn x",
        "x += 1\nreturn x + x * 2",
        "return x.add_(1) + x * 2",
        "return F.relu(x + 1, inplace=True) + x * 2",
        "return (x + 1 if self.flag else x * 2 - 1)",
        "return sum(y * 2 for y in x.unbind(0)) + 1",
    ],
)
def test_what_is_not_straight_stays(body: str) -> None:
    assert stepped(body) == "\n".join(
        ast.unparse(s) for s in ast.parse(f"def f():\n{textwrap.indent(body, ' ')}").body[0].body
    )  # type: ignore[attr-defined]


def test_names_of_others_are_not_taken() -> None:
    assert stepped("return F.relu(x + t1)", "self, x, t1") == "t2 = x + t1\nt3 = F.relu(t2)\nreturn t3"
    assert stepped("return F.relu(x + t2)") == "t1 = x + t2\nt3 = F.relu(t1)\nreturn t3"


def _result(source: str) -> Any:
    scope: dict[str, Any] = {}
    exec(compile(source, "task", "exec"), scope)
    torch.manual_seed(0)
    model, inputs = scope["Model"](*scope["get_init_inputs"]()), scope["get_inputs"]()
    with torch.no_grad():
        return model(*inputs)


def _inputs(source: str) -> int:
    scope: dict[str, Any] = {}
    with torch.device("meta"):
        exec(compile(source, "task", "exec"), scope)
        model, inputs = scope["Model"](*scope["get_init_inputs"]()), scope["get_inputs"]()
    return sum(t.numel() for t in [*model.parameters(), *inputs] if isinstance(t, torch.Tensor))


def test_generated_tasks_compute_the_same() -> None:
    compared = 0
    for task in generate(99, 250):
        if _inputs(task.source) > 200_000:
            continue
        tree = ast.parse(task.source)
        model = next(n for n in tree.body if isinstance(n, ast.ClassDef))
        in_steps(next(n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward"))
        text = ast.unparse(ast.fix_missing_locations(tree))
        assert torch.equal(_result(task.source), _result(text)), task.name
        compared += 1
    assert compared > 12
