"""Constant folding of a constructor: the module computes the same, also at other sizes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from kernelwright.tasks.normal_form.normal import normal_form

HEAD = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
TAIL = """
def get_inputs():
    return [torch.rand(4, 16)]

def get_init_inputs():
    return [16]
"""


def task(init: str, forward: str, signature: str = "n", before: str = "", inits: str = "[16]") -> str:
    """Returns a file with these statements in its constructor and forward."""
    lines = ["class Model(nn.Module):", f"    def __init__(self, {signature}):", "        super().__init__()"]
    lines += [f"        {line}" for line in init.splitlines()]
    lines += ["    def forward(self, x):", *(f"        {line}" for line in forward.splitlines())]
    return HEAD + before + "\n".join(lines) + TAIL.replace("[16]", inits)


def result(source: str) -> Any:
    space: dict[str, Any] = {}
    exec(source, space)
    torch.manual_seed(3)
    model = space["Model"](*space["get_init_inputs"]())
    return model(*space["get_inputs"]())


CASES = {
    "number": ("self.eps = eps", "return x + self.eps", "n, eps=1e-5", "", "x + 1e-05"),
    "long number": ("self.p = p", "return (x + 1) ** (1.0 / self.p)", "n, p=3.0", "", "0.333333333"),
    "text": ("self.how = how", "return F.gelu(x, approximate=self.how)", "n, how='tanh'", "", "approximate='tanh'"),
    "size stays": ("self.n = n", "return x / self.n", "n", "", "self.n = n"),
    "of a size": ("self.s = n ** -0.5", "return x * self.s", "n", "", "self.s = n ** (-0.5)"),
    "branch": (
        "if act == 'relu':\n    self.f = nn.ReLU()\nelse:\n    self.f = nn.Tanh()",
        "return self.f(x)",
        "n, act='tanh'",
        "",
        "self.f = nn.Tanh()",
    ),
    "branch in forward": (
        "self.b = b",
        "if self.b is not None:\n    x = x + self.b\nreturn x",
        "n, b=None",
        "",
        "return x",
    ),
    "comprehension": (
        "self.ls = nn.ModuleList([nn.Linear(n, n) for _ in range(k)])",
        "for l in self.ls:\n    x = torch.relu(l(x))\nreturn x",
        "n, k=2",
        "",
        "self.ls[1](",
    ),
    "reversed, numbered": (
        "self.ls = nn.ModuleList([nn.Linear(n, n), nn.Linear(n, n)])",
        "for i, l in enumerate(reversed(self.ls)):\n    x = l(x) * i\nreturn x",
        "n",
        "",
        "self.ls[0](",
    ),
    "slice of layers": (
        "self.ls = nn.ModuleList([nn.Linear(n, n) for _ in range(3)])",
        "for l in self.ls[:-1]:\n    x = l(x)\nreturn x",
        "n",
        "",
        "self.ls[1](",
    ),
    "the last layer": (
        "self.ls = nn.ModuleList([nn.Linear(n, n) for _ in range(3)])",
        "return self.ls[-1](x)",
        "n",
        "",
        "self.ls[2](",
    ),
    "appended": (
        "layers = []\nfor i in range(k):\n    layers.append(nn.Linear(n, n))\n"
        "    if i < k - 1:\n        layers.append(nn.ELU())\n"
        "self.net = nn.Sequential(*layers)",
        "return self.net(x)",
        "n, k=2",
        "",
        "nn.Sequential(nn.Linear(n, n), nn.ELU(), nn.Linear(n, n))",
    ),
    "appended to a list of the model's": (
        "self.ls = nn.ModuleList()\nfor _ in range(k):\n    self.ls.append(nn.Linear(n, n))",
        "for l in self.ls:\n    x = l(x)\nreturn x",
        "n, k=2",
        "",
        "self.ls = nn.ModuleList([nn.Linear(n, n), nn.Linear(n, n)])",
    ),
    "appended to a sequence": (
        "self.net = nn.Sequential()\nself.net.append(nn.Linear(n, n))\nself.net.append(nn.ReLU())",
        "return self.net(x)",
        "n",
        "",
        "self.net[1](",
    ),
    "sequential": (
        "self.net = nn.Sequential(nn.Linear(n, n), nn.ReLU())",
        "return self.net(x)",
        "n",
        "",
        "self.net[1](",
    ),
    "nested": (
        "self.net = nn.Sequential(nn.Sequential(nn.Linear(n, n)), nn.ReLU())",
        "return self.net(x)",
        "n",
        "",
        "self.net[0][0](",
    ),
    "table": (
        "self.f = ACTS[f]",
        "return self.f(x)",
        "n, f='b'",
        "ACTS = {'a': F.relu, 'b': torch.tanh}\n",
        "torch.tanh(x)",
    ),
    "getattr": ("self.f = getattr(F, f)", "return self.f(x)", "n, f='silu'", "", "F.silu(x)"),
    "helper": (
        "self.c = block(n)",
        "return self.c(x)",
        "n",
        "def block(i, b=False):\n    return nn.Linear(i, i, bias=b)\n",
        "nn.Linear(n, n, bias=False)",
    ),
    "helper in forward": (
        "pass",
        "return shifted(x)",
        "n",
        "def shifted(v, by=2.0):\n    return v * by + 1\n",
        "x * 2.0",
    ),
    "pair": (
        "self.k = k if isinstance(k, tuple) else (k, k)",
        "return F.avg_pool2d(x.view(1, 4, 4, 4), self.k)",
        "n, k=2",
        "",
        "(2, 2)",
    ),
    "pairs in a numbered loop": (
        "self.a = nn.ModuleList([nn.ReLU(), nn.Tanh()])\nself.b = nn.ModuleList(nn.Softplus() for _ in range(2))",
        "for i, (a, b) in enumerate(zip(self.a, self.b)):\n    x = x + b(a(x)) * i\nreturn x",
        "n",
        "",
        "self.b[1](",
    ),
    "item of a table": ("self.k = CFG['k']", "return x * self.k + CFG['b']", "n", "CFG = dict(k=2, b=0.5)\n", "+ 0.5"),
    "sum in place": ("self.a = a", "x = x * 2\nx += self.a\nreturn x", "n, a=0.5", "", "t1 + 0.5"),
    "assert": ("pass", "assert x.dim() == 2\nreturn x * 2", "n", "", "return t1"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_decided_computes_the_same(name: str) -> None:
    init, forward, signature, before, wanted = CASES[name]
    source = task(init, forward, signature, before)
    text = normal_form(source)
    assert wanted in text and normal_form(text) == text
    assert torch.allclose(result(text), result(source), rtol=1e-6)
    other = [
        s.replace("return [16]", "return [8]").replace("torch.rand(4, 16)", "torch.rand(4, 8)") for s in (text, source)
    ]
    if "view" not in forward:
        assert torch.allclose(result(other[0]), result(other[1]), rtol=1e-6), "not at another size"


KEPT = {
    "set twice": ("self.a = 1.0\nself.a = 2.0", "return x * self.a"),
    "set in forward": ("self.a = 1.0", "self.a = 3.0\nreturn x * self.a"),
    "by name": ("self.a = 1.0\nsetattr(self, 'a', 3.0)", "return x * self.a"),
    "list that changes": (
        "ls = [nn.ReLU(), nn.Tanh()]\nls.reverse()\nself.net = nn.Sequential(*ls)",
        "return self.net(x)",
    ),
    "while": (
        "ls = []\nwhile len(ls) < 2:\n    ls.append(nn.ReLU())\nself.net = nn.Sequential(*ls)",
        "return self.net(x)",
    ),
    "unknown branch": ("if torch.rand(()) < 2:\n    self.a = 2.0\nelse:\n    self.a = 1.0", "return x * self.a"),
    "loop of unknown length": ("self.a = 0.0", "for i in range(x.shape[0]):\n    x = x * (i + 1)\nreturn x"),
    "break": ("pass", "for i in range(3):\n    x = x + i\n    if i == 1:\n        break\nreturn x"),
    "added by a name": (
        "self.net = nn.Sequential()\nself.net.add_module('a', nn.ReLU())\nself.net.add_module('b', nn.Tanh())",
        "return self.net(x)",
    ),
    "appended perhaps": (
        "self.ls = nn.ModuleList([nn.ReLU()])\nif torch.rand(()) < 2:\n    self.ls.append(nn.Tanh())",
        "for l in self.ls:\n    x = l(x)\nreturn x",
    ),
    "a layer put in place of another": (
        "self.net = nn.Sequential(nn.ReLU())\nself.net[0] = nn.Tanh()",
        "return self.net(x)",
    ),
    "pairs that do not match": ("pass", "for a, b in zip((1, 2), ((3, 4), (5, 6))):\n    x = x * a + b[0]\nreturn x"),
    "pairs of one thing": ("pass", "for a, b in ((1, 2), torch.tensor([3.0, 4.0])):\n    x = x * a + b\nreturn x"),
    "handed on": ("self.e = eps", "def read(m):\n    return m.e\nreturn x + read(self)"),
    "a function inside": ("self.e = 1.0", "def twice(eps):\n    return eps * 2\nreturn twice(x) + self.e"),
    "named in passing": ("if (eps := 2.0) > 1:\n    self.e = eps", "return x * self.e"),
    "shared in place": ("pass", "y = x * 1\nz = y\ny += 1\nreturn z + y"),
    "shadowed": ("self.f = lambda eps: eps * 2", "return self.f(x)"),
    "a width that goes along": (
        "ls = []\nprev = n\nfor h in (8, 4):\n    ls.append(nn.Linear(prev, h))\n    prev = h\n"
        "ls.append(nn.Linear(prev, n))\nself.net = nn.Sequential(*ls)",
        "return self.net(x)",
    ),
    "a width and a list at once": (
        "ls, prev = [], n\nfor h in (8, 4):\n    ls += [nn.Linear(prev, h)]\n    ls.append(nn.ReLU())\n    prev = h\n"
        "self.net = nn.Sequential(*ls)",
        "return self.net(x)",
    ),
    "layers appended with a width that goes along": (
        "self.ls = nn.ModuleList()\nprev = n\nfor h in (8, 16):\n    self.ls.append(nn.Linear(prev, h))\n    prev = h",
        "for l in self.ls:\n    x = l(x)\nreturn x",
    ),
    "values collected": (
        "self.a = nn.Linear(16, 16)",
        "ys = []\nfor i in range(2):\n    x = self.a(x)\n    ys.append(x.mean(1))\nreturn torch.stack(ys) + x.sum()",
    ),
    "values before a change": ("pass", "ys = [x * 2, x.exp()]\nx = x + 1\nreturn ys[0] + ys[1] * x"),
    "a table with names of a loop": (
        "t = {}\nfor i in range(2):\n    t[f'w{i}'] = i + 1.0\nself.t = t",
        "return x * self.t['w1'] + self.t['w0']",
    ),
    "two names of one table": ("a = b = {}\na['k'] = 2.0\nself.k = b['k']", "return x * self.k"),
    "hidden by a comprehension": ("n = 3\nself.a = sum(n for n in (1, 2))", "return x * self.a"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_not_certain_stays_right(name: str) -> None:
    source = task(*KEPT[name], "n, eps=0.5")
    text = normal_form(source)
    assert normal_form(text) == text
    assert torch.allclose(result(text), result(source))


def test_what_another_method_adds_is_not_known() -> None:
    source = task("self.net = nn.Sequential()\nself.build()", "return self.net(x)")
    method = "    def build(self):\n        self.net.append(nn.Tanh())\n    def forward"
    source = source.replace("    def forward", method)
    assert torch.allclose(result(normal_form(source)), result(source))


def test_a_list_of_sizes_is_gone_through() -> None:
    init = (
        "ls = []\nfor a, b in zip(sizes[:-1], sizes[1:]):\n    ls += [nn.Linear(a, b)]\nself.net = nn.Sequential(*ls)"
    )
    source = task(init, "return self.net(x)", "sizes", inits="[[16, 9, 5]]")
    text = normal_form(source)
    assert "self.net[1](" in text and normal_form(text) == text
    assert torch.allclose(result(text), result(source))


@pytest.mark.parametrize(
    "init",
    [
        "\n".join(f"{'    ' * i}for a{i} in range(20):" for i in range(6)) + "\n" + "    " * 6 + "self.a = a0",
        "l = [1]\nfor _ in range(24):\n    l = l + l\nself.a = l[0]",
        "l = [nn.ReLU()]\nfor _ in range(24):\n    l = l + l\nself.a = 1",
        "self.a = sum(a + b + c + d for a in range(20) for b in range(20) for c in range(20) for d in range(20))",
        "self.a = 9 ** 9 ** 9 ** 9",
        "self.a = 'a' * 10**9",
        "self.a = (1,) * 10**9",
        "s = 'ab'\nfor _ in range(24):\n    s = s + s\nself.a = s",
        "self.a = 10**300 * 10**300",
        "self.a = 1e300 * 1e300 - 1e300 * 1e300",
        "self.a = 1 // 0",
        "self.a = (1, 2)[5]",
        "self.a = {'x': 1}['y']",
        "self.a = ['x'][n]",
    ],
)
def test_what_grows_without_end_or_fails_is_left_alone(init: str) -> None:
    text = normal_form(task(init, "return x * 2"))
    assert len(text) < 40_000 and normal_form(text)
