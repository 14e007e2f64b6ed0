"""Reading forward: every spelling of an operator gives the same node; unreadable texts raise `Unreadable`."""

from __future__ import annotations

import pytest

from kernelwright.solutions import write
from kernelwright.solutions.read.declared import Declared
from kernelwright.solutions.read.facts import read_facts
from kernelwright.solutions.read.forward import expression
from kernelwright.solutions.read.reading import Node, Unreadable, read

TASK = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

{before}
class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {init}

    def forward(self, {inputs}):
        {forward}

batch = 6
sizes = (8, 10)

def get_inputs():
    return [{values}]

def get_init_inputs():
    return [{given}]
"""


def task(forward: str, init: str = "pass", **more: str) -> str:
    fields = {"before": "", "parameters": "", "inputs": "x", "values": "torch.randn(batch, *sizes)", "given": ""}
    return TASK.format(**{**fields, **more}, forward=forward, init=init)


def tree(source: str) -> Node:
    reference = read(source)
    return expression(reference, read_facts(reference))


def ops(node: Node) -> str:
    """Returns the operators in prefix form, leaves by their text."""
    if not node.args:
        return node.text or node.op
    return f"{node.op}({', '.join(ops(a) for a in node.args)})"


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("return torch.relu(x)", "relu(x)"),
        ("return x.relu_()", "relu(x)"),
        ("return F.relu(input=x)", "relu(x)"),
        ("x.relu_()\n        return x", "relu(x)"),
        ("return torch.special.expit(x)", "sigmoid(x)"),
        ("return torch.nn.functional.gelu(x, approximate='tanh')", "gelu_tanh(x)"),
        ("return torch.max(x, dim=1)[0]", "max(x)"),
        ("return x.max(dim=1).values", "max(x)"),
        ("v, i = torch.max(x, 1)\n        return i", "argmax(x)"),
        ("return torch.max(x, x)", "maximum(x, x)"),
        ("return torch.where(x > 0, x, 0.0)", "where(gt(x, 0), x, 0.0)"),
        ("y = x\n        y *= 2\n        return y - 1", "sub(mul(x, 2), 1)"),
        ("return torch.add(x, x, alpha=0.5)", "add(x, mul(x, 0.5))"),
        ("for _ in range(2):\n            x = x + 1\n        return x", "add(add(x, 1), 1)"),
        ("if x.dim() == 3:\n            return x.exp()\n        return x", "exp(x)"),
        ("return x.flatten(1).exp()", "exp(flatten(x))"),
        ("return x[:, None].exp()", "exp(index(x))"),
        ("a, b = x.chunk(2, dim=1)\n        return a * b", "mul(piece(x), piece(x))"),
        ("return helper(x) + 1", "add(tanh(x), 1)"),
        ("return self.twice(x)", "mul(x, 2)"),
    ],
)
def test_spellings(forward: str, expected: str) -> None:
    before = "def helper(v):\n    return torch.tanh(v)\n"
    init = "pass\n\n    def twice(self, v, k=2):\n        return v * k"
    assert ops(tree(task(forward, init, before=before))) == expected


def test_layers_in_rows_and_blocks_are_entered() -> None:
    block = (
        "class Block(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
        "        self.act = nn.ELU(alpha=0.5)\n        self.w = nn.Parameter(torch.randn(width))\n\n"
        "    def forward(self, v):\n        return self.act(v) * self.w\n"
    )
    source = task(
        "return self.block(self.net(x))",
        "self.net = nn.Sequential(nn.Tanh(), nn.LeakyReLU(slope))\n        self.block = Block(width)",
        before=block,
        parameters=", width, slope",
        given="10, 0.3",
    )
    found = tree(source)
    assert ops(found) == "mul(elu(leaky_relu(tanh(x))), self.block.w)"
    facts = read_facts(read(source))
    assert facts.attributes["net[1].negative_slope"] == 0.3 and facts.attributes["block.act.alpha"] == 0.5
    assert facts.tensors["block.w"] == Declared((10,))
    assert "self.block.act.alpha" in write(source) and "class Block" in write(source)


def test_facts_of_inputs_and_weights() -> None:
    source = task(
        "return x",
        "self.fc = nn.Linear(sizes[1], 2 * width)\n        self.register_buffer('mask', torch.ones(width) > 0)",
        parameters=", width=4",
        inputs="x, m, i, h, s",
        values="torch.randn(batch, *sizes) * 2, torch.rand(3, 4) > 0.5, torch.randint(0, 9, (batch,)), "
        "torch.randn(2, 3).half(), 1.5",
    )
    facts = read_facts(read(source))
    assert facts.inputs["x"] == Declared((6, 8, 10))
    assert facts.inputs["m"] == Declared((3, 4), "bool")
    assert facts.inputs["i"] == Declared((6,), "long")
    assert facts.inputs["h"] == Declared((2, 3), "half")
    assert facts.inputs["s"] == 1.5
    assert facts.tensors["fc.weight"].shape == (8, 10) and facts.tensors["mask"].shape == (4,)


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.linalg.svd(x)[0]",
        "while True:\n            x = x + 1\n        return x",
        "return torch.sort(x)[0]",
        "return F.dropout(x, 0.5)",
        "if x.sum() > 0:\n            x = -x\n        return x",
        "return x.softmax(7)",
        "return x.long()",
        "x[0] = 1\n        return x",
        "return x",
    ],
)
def test_what_no_template_knows_is_said_so(forward: str) -> None:
    with pytest.raises(Unreadable):
        write(task(forward))


def test_a_shared_value_is_computed_once() -> None:
    text = write(task("y = torch.exp(x)\n        for _ in range(24):\n            y = y * y\n        return y"))
    assert text.count("expf") == 1 and text.count("v * v") == 24


def test_only_what_is_used_is_copied() -> None:
    text = write(task("return x * scale", before="scale = 0.5\nunused = 7\n", parameters=", batch", given="3"))
    assert "scale = 0.5" in text and "unused" not in text and "batch = 6" not in text


@pytest.mark.parametrize(
    "forward",
    [
        "return x.permute(0, 9, 1)",
        "return x.flatten(5).exp()",
        "return x.flatten(1)",
        "return torch.cat([], 1)",
        "return self",
    ],
)
def test_odd_texts_are_refused_without_a_traceback(forward: str) -> None:
    with pytest.raises(Unreadable):
        write(task(forward))


@pytest.mark.parametrize(
    "init",
    [
        "nn.BatchNorm1d(8, dtype=torch.float16)",
        "nn.Linear(10, 4).double()",
        "nn.Linear(10, 4).to(torch.float64)",
        "nn.BatchNorm1d(8).to(dtype=torch.float16)",
        "nn.Linear(10, 4, dtype=self.unknown())",
        "nn.Sequential(nn.ReLU()).half()",
        "nn.Linear(10, 4)\n        self.f.half()",
        "nn.Linear(10, 4)\n        self.to(torch.bfloat16)",
    ],
)
def test_weights_of_other_types_are_refused_where_they_would_be_read_as_float32(init: str) -> None:
    with pytest.raises(Unreadable, match="weights of another type|half|bfloat16"):
        write(task("return self.f(x)", init=f"self.f = {init}"))


@pytest.mark.parametrize(
    "init",
    [
        "nn.Linear(10, 4, dtype=torch.float32).to('cpu').float()",
        "nn.Linear(10, 4, dtype=None)",
        "nn.Linear(10, 4).to(device='cpu', dtype=torch.float32)",
        "nn.Linear(10, 4)\n        self.to('cpu')",
    ],
)
def test_float32_stays_float32_however_it_is_said(init: str) -> None:
    assert write(task("return self.f(x)", init=f"self.f = {init}"))


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("self.f = nn.Sequential(nn.BatchNorm1d(8)).eval()", False),
        ("self.f = nn.Sequential(nn.BatchNorm1d(8))\n        self.f.eval()", False),
        ("self.f = nn.Sequential(nn.BatchNorm1d(8))\n        self.f[0].eval()", False),
        ("self.f = nn.Sequential(nn.BatchNorm1d(8).eval())\n        self.train(True)", True),
        ("self.f = nn.Sequential(nn.BatchNorm1d(8))\n        self.train(mode=False)", False),
        ("self.eval()\n        self.f = nn.Sequential(nn.BatchNorm1d(8))", None),
    ],
)
def test_which_layers_are_in_evaluation_is_read(init: str, expected: bool | None) -> None:
    found = read_facts(read(task("return self.f(x)", init=init)))
    assert found.attributes.get("f[0].training") is expected
