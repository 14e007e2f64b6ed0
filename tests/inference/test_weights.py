"""Weights in a prompt are reduced to their shapes, whatever fills them first."""

from __future__ import annotations

import ast

import pytest

pytest.importorskip("torch")

from kernelwright import syntax
from kernelwright.inference.weights import plain_weights

CASES = {
    "self.w = nn.Parameter(1.0 + 0.1 * torch.randn(n))": "torch.randn(n)",
    "self.w = nn.Parameter(torch.ones(n) * 0.5, requires_grad=True)": "torch.randn(n)",
    "self.w = nn.Parameter(torch.empty(n, 2 * n))": "torch.randn(n, 2 * n)",
    "self.w = nn.Parameter(torch.randn(shape))": "torch.randn(64, 1, 1)",
    "self.w = nn.Parameter(torch.randn(*shape) / math.sqrt(n))": "torch.randn(64, 1, 1)",
    "self.w = nn.Parameter(torch.full((1, n), 0.3))": "torch.randn(1, n)",
    "self.w = nn.Parameter(torch.eye(n))": "torch.randn(n, n)",
    "self.w = nn.Parameter(torch.tensor([0.5, 1.0]))": "torch.randn(2)",
    "self.w = nn.Parameter(torch.zeros(n).uniform_(-1, 1).view(1, -1, 1))": "torch.randn(1, n, 1)",
    "self.w = nn.Parameter(torch.rand(n, 1) + torch.ones(1, n))": "torch.randn(n, n)",
    "self.register_buffer('w', torch.tril(torch.ones(n, n)))": "torch.randn(n, n)",
    "self.register_buffer('w', torch.rand(n), persistent=False)": "torch.randn(n)",
}
KEPT = (
    "self.w = nn.Parameter(torch.ones(()))",
    "self.w = nn.Parameter(made_elsewhere(n))",
    "self.w = nn.Parameter(torch.zeros(n, dtype=torch.float16))",
    "self.register_buffer('w', torch.arange(n))",
    "self.register_buffer('w', torch.tril(torch.ones(n, n)) == 0)",
    "self.w = torch.randn(n)",
    "self.w = nn.Linear(n, n)",
)


def constructor(statements: str) -> list[str]:
    body = "\n".join(f"        {line}" for line in statements.splitlines())
    tree = syntax.parse(f"class Model(nn.Module):\n    def __init__(self, n, shape=(64, 1, 1)):\n{body}")
    (model,) = tree.body
    assert isinstance(model, ast.ClassDef)
    plain_weights(model)
    (init,) = model.body
    assert isinstance(init, ast.FunctionDef)
    return [ast.unparse(s) for s in init.body]


@pytest.mark.parametrize("statement", CASES)
def test_a_weight_is_its_shape(statement: str) -> None:
    assert constructor(statement) == [f"self.w = nn.Parameter({CASES[statement]})"]


@pytest.mark.parametrize("statement", KEPT)
def test_what_may_be_something_else_stays(statement: str) -> None:
    assert constructor(statement) == [statement]


def test_first_values_are_nothing_to_a_kernel() -> None:
    text = (
        "self.w = nn.Parameter(torch.empty(n, n))\nself.l = nn.Linear(n, n)\nnn.init.xavier_uniform_(self.w)\n"
        "nn.init.zeros_(self.l.bias)\nwith torch.no_grad():\n    self.w.fill_(1)\n    self.l.weight.data.normal_()"
    )
    assert constructor(text) == ["self.w = nn.Parameter(torch.randn(n, n))", "self.l = nn.Linear(n, n)"]
    assert constructor("nn.init.zeros_(self.w)") == ["pass"]
