"""Judges the solution library's answers under every schedule where they differ, and checks their form."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions import APART, CANONICAL, schedules, write
from kernelwright.solutions.kernels.style import STYLES
from kernelwright.tasks import candidate_from_text

TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {inputs}):
        {forward}

def get_inputs():
    return [{values}]

def get_init_inputs():
    return []
"""


def task(forward: str, values: str = "torch.randn(4, 6, 50)", inputs: str = "x", init: str = "pass") -> str:
    return TASK.format(init=init, inputs=inputs, forward=forward, values=values)


PAIR = "torch.randn(4, 6, 50), torch.randn(4, 6, 50)"
FLAT = "torch.randn(6, 200), torch.randn(6, 200)"
CASES = {
    "channels and columns": task(
        "return torch.tanh(x * self.c + self.r) / self.s",
        init="self.c, self.r = nn.Parameter(torch.randn(6, 1)), nn.Parameter(torch.randn(50))\n"
        "        self.s = nn.Parameter(torch.rand(1) + 1)",
    ),
    "outer broadcast": task("return x * y", "torch.randn(7, 1, 30), torch.randn(1, 5, 1)", "x, y"),
    "a slope a channel": task("return self.a(x * 2)", "torch.randn(3, 4, 5, 6)", init="self.a = nn.PReLU(4, init=0.1)"),
    "split by a size": task("a, b, c = x.split(20, dim=2)\n        return torch.cat([a * b, c.relu()], 2)"),
    "split by sizes": task("a, b = torch.split(x, [1, 5], 1)\n        return a * b.sigmoid()"),
    "one piece of a split": task("return x.split(x.shape[1] // 2, 1)[1].softmax(-1)"),
    "sizes of what is not computed": task(
        "t = self.n(x) + x * x\n        return (t / t.size(-2)).norm(dim=1, keepdim=True) * x",
        init="self.n = nn.LayerNorm(50)",
    ),
    "a buffer out of local ones": task(
        "return torch.where(self.band, x, torch.zeros_like(x)).sum(-1)",
        "torch.randn(3, 40, 40)",
        init="i = torch.arange(40)\n        off = i[None, :] - i[:, None]\n"
        "        self.register_buffer('band', (off >= -9) & (off <= 3))",
    ),
    "unbound": task("a, b = x.view(4, 2, 3, 50).unbind(1)\n        return a * b.tanh()"),
    "least and most": task(
        "low, high = torch.aminmax(x, dim=-1, keepdim=True)\n        return (x - low) / (high - low + 1e-5)"
    ),
    "a norm of differences": task(
        "return self.d(x, y)", FLAT, "x, y", "self.d = nn.PairwiseDistance(p=3.0, eps=1e-5, keepdim=True)"
    ),
    "layers with names": task(
        "return self.net(x)",
        "torch.randn(9, 20)",
        init="from collections import OrderedDict\n"
        "        self.net = nn.Sequential(OrderedDict([('a', nn.Linear(20, 30)), ('b', nn.Tanh())]))",
    ),
    "in evaluation": task(
        "return self.n(x).relu()", "torch.randn(4, 6, 5, 5)", init="self.n = nn.BatchNorm2d(6)\n        self.eval()"
    ),
    "a range beside lengths": task(
        "i = torch.arange(x.shape[1], device=x.device)\n        m = (i[None, :] < y[:, None]).float()\n"
        "        return (x * m).sum(1) / m.sum(1)",
        "torch.randn(6, 40), torch.randint(1, 40, (6,))",
        "x, y",
    ),
    "labels are a range": task(
        "y = torch.arange(x.size(0), device=x.device)\n        return F.cross_entropy(x, y, reduction='none')",
        "torch.randn(30, 30)",
    ),
    "weights of rows behind distances": task(
        "d = x[:, None, :] - y[None, :, :]\n        return z.unsqueeze(1) * torch.exp(-d.pow(2).sum(-1))",
        "torch.randn(20, 3), torch.randn(30, 3), torch.rand(20)",
        "x, y, z",
    ),
    "a table of numbers by an index of two dimensions": task(
        "return x + self.t[y]",
        "torch.randn(9, 40), torch.randint(0, 5, (9, 40))",
        "x, y",
        "self.t = nn.Parameter(torch.randn(5))",
    ),
    "layers in half precision": task(
        "return self.n(self.f(self.c(x))).relu()",
        "torch.randn(4, 6, 50, dtype=torch.float16)",
        init="self.f = nn.Linear(50, 20, dtype=torch.float16)\n"
        "        self.c = nn.Conv1d(6, 3, 3, bias=False, padding=1).half().eval()\n"
        "        self.n = nn.LayerNorm(20).to(torch.float16)",
    ),
    "half precision times truth": task(
        "return x - 0.5 * (y > 0)", "torch.randn(6, 40).half(), torch.randn(6, 40).half()", "x, y"
    ),
    "a class of its own": task("return self.scaled(x) + self.SHIFT, self.twice(x)")
    .replace(
        "    def forward",
        "    SHIFT: float = 0.25\n\n"
        "    def kept(self, n):\n        return n * 2\n\n"
        "    @staticmethod\n    def twice(x):\n        return x * 2\n\n"
        "    def scaled(self, x, by=3.0):\n        return x * by * self.n\n\n"
        "    def forward",
        1,
    )
    .replace("        pass", "        self.n = self.kept(2)"),
    "a word of C++": task("return (x + self.const).sum(1)", init="self.const = 0.5"),
    "layers in a loop": task(
        "for l in self.ls:\n            x = torch.relu(l(x))\n        return x",
        "torch.randn(9, 50)",
        init="self.ls = nn.ModuleList([nn.Linear(50, 50) for _ in range(2)])",
    ),
    "one layer or another": task(
        "return self.act(x)",
        init="if True:\n            self.act = nn.ELU()\n        else:\n            self.act = nn.ReLU()",
    ),
    "rows of one kind and of another": task("return torch.softmax(x, dim=1) + torch.softmax(x, dim=2)"),
    "standardised over a middle dimension": task(
        "m = x.mean(1, keepdim=True)\n        return (x - m) / (x.std(dim=1, keepdim=True) + 1e-5)"
    ),
    "variance along one dimension, maximum along another": task(
        "t = x - x.var(1, keepdim=True)\n        return t - t.amax(2, keepdim=True)"
    ),
    "standardised over dimensions apart": task(
        "return (x - x.mean((0, 2), keepdim=True)) / (x.var((0, 2), keepdim=True) + 1e-5)"
    ),
    "rows of two lengths": task(
        "s = x.sum(2, keepdim=True)\n        return torch.cat([x / (1 + s * s), x], dim=2) - s"
    ),
    "rows of a transposed tensor": task("return torch.cumsum(torch.softmax(torch.relu(x).transpose(1, 2), 2).mT, 2)"),
    "mean over dimensions apart": task("return torch.mean(x * 2, dim=(0, 2), keepdim=True)"),
    "log softmax after a residual": task("return F.log_softmax(torch.relu(x) + y, dim=-1)", PAIR, "x, y"),
    "cosine loss": task("return torch.mean(1 - F.cosine_similarity(x, y, dim=1))", FLAT, "x, y"),
    "triplet": task(
        "return self.loss(x, y, z)", FLAT + ", torch.randn(6, 200)", "x, y, z", "self.loss = nn.TripletMarginLoss(0.5)"
    ),
    "cross entropy, smoothed": task(
        "return F.cross_entropy(x, t, label_smoothing=0.1)", "torch.randn(9, 70), torch.randint(0, 70, (9,))", "x, t"
    ),
    "divergence": task(
        "return F.kl_div(torch.log(p), q, reduction='batchmean')",
        "torch.rand(6, 90).softmax(-1), torch.rand(6, 90).softmax(-1)",
        "p, q",
    ),
    "product and infinity norm": task(
        "return torch.prod(x, dim=1) + torch.norm(x, p=float('inf'), dim=1)", "torch.rand(6, 20) + 0.5"
    ),
    "argmax of a middle dimension": task("return torch.argmax(x * x, dim=1, keepdim=True)"),
    "running maximum and its places": task("return torch.cummax(x, dim=1)"),
    "running log-sum-exp": task("return torch.logcumsumexp(x, 2) * 0.5"),
    "exclusive sums": task("return torch.cumsum(x, dim=1) - x"),
    "layer norm": task("return self.n(x) + x", init="self.n = nn.LayerNorm(50)"),
    "rms norm by hand": task(
        "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w",
        init="self.w = nn.Parameter(torch.randn(50))",
    ),
    "batch norm, then an activation": task("return F.silu(self.n(x))", init="self.n = nn.BatchNorm1d(6)"),
    "given statistics": task(
        "return F.batch_norm(x, self.m, self.v, self.w)",
        init="self.register_buffer('m', torch.randn(6))\n        self.register_buffer('v', torch.rand(6) + 0.5)\n"
        "        self.w = nn.Parameter(torch.randn(6))",
    ),
    "group norm of a row": task("return F.group_norm(x, 3)"),
    "masked": task(
        "return torch.where(m & (x > 0), x, -x).masked_fill(~m, 2.0)",
        "torch.randn(6, 99), torch.rand(6, 99) > 0.5",
        "x, m",
    ),
    "triangles": task("return torch.tril(x, diagonal=-1) + torch.triu(x, 2)", "torch.randn(3, 40, 30)"),
    "gathered, picked and turned": task(
        "return torch.gather(x, 1, i).flip(0) + torch.roll(x, -3, 1)",
        "torch.randn(8, 64), torch.randint(0, 64, (8, 64))",
        "x, i",
    ),
    "chosen columns": task(
        "return torch.index_select(x, 1, i)", "torch.randn(8, 64), torch.randint(0, 64, (30,))", "x, i"
    ),
    "permuted sum": task("return x.permute(2, 0, 1) + y", "torch.randn(4, 6, 50), torch.randn(50, 4, 6)", "x, y"),
    "a copy in another order": task("return x.transpose(0, 2).contiguous()"),
    "joined": task("return torch.cat([x, y.exp()], dim=1)", "torch.randn(4, 6, 50), torch.randn(4, 3, 50)", "x, y"),
    "stacked": task("return torch.stack((x, y), dim=1)", FLAT, "x, y"),
    "gate": task("return F.glu(x, dim=1)"),
    "padded": task("return F.pad(x, (1, 2), mode='reflect') * 2", "torch.randn(2, 3, 40)"),
    "slice": task("return x[:, ::2, 1:] * 3"),
    "half": task("return torch.softmax(x, dim=-1) * 2", "torch.randn(4, 300, dtype=torch.float16)"),
    "a number as input": task("return x * s + 1", "torch.randn(8, 100), 2.5", "x, s"),
    "counts": task("return (x > 0.5).sum(dim=1)"),
    "truth values": task("return (x > y).float() + x.ge(0).to(x.dtype)", FLAT, "x, y"),
    "forward's own names": task(
        "return n / inner - rows.mean()", ", ".join(["torch.randn(6, 80)"] * 3), "n, inner, rows"
    ),
}
SCHEDULED = (
    "exclusive sums",
    "channels and columns",
    "cosine loss",
    "standardised over a middle dimension",
    "layer norm",
)


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(seed=3, trials=2), pool=pool) as shared:
        yield shared


def verdict(evaluator: Evaluator, source: str, text: str) -> tuple[str, str]:
    result = evaluator.evaluate(Task(task_id="t", source=source), candidate_from_text(text, "solutions"))
    return result.verdict, f"{result.reason}\n{result.log}\n{text}"


@pytest.mark.parametrize("name", CASES)
def test_the_canonical_answer_is_correct(evaluator: Evaluator, name: str) -> None:
    found, why = verdict(evaluator, CASES[name], write(CASES[name]))
    assert found == "correct", why


@pytest.mark.parametrize("name", CASES)
def test_operators_with_kernels_of_their_own_are_correct(evaluator: Evaluator, name: str) -> None:
    found, why = verdict(evaluator, CASES[name], write(CASES[name], APART, plan=True))
    assert found == "correct", why


def test_operators_with_kernels_of_their_own_share_none() -> None:
    source = task("return (torch.relu(x) + y).softmax(-1) * 2", PAIR, "x, y")
    fused, apart = write(source), write(source, APART)
    assert fused.count("__global__") == 1 and apart.count("__global__") == 4
    named = write(source, APART, plan=True)
    order = [named.index(f"kernels.{name}[") for name in ("relu_t1", "add_t2", "softmax_t3", "mul_t4")]
    assert order == sorted(order)


@pytest.mark.parametrize("name", SCHEDULED)
def test_every_schedule_is_correct(evaluator: Evaluator, name: str) -> None:
    for schedule in schedules(CASES[name]):
        found, why = verdict(evaluator, CASES[name], write(CASES[name], schedule))
        assert found == "correct", f"{schedule.name}\n{why}"


@pytest.mark.parametrize("name", CASES)
def test_schedules_differ_and_have_the_canonical_one(name: str) -> None:
    found = schedules(CASES[name])
    texts = [write(CASES[name], schedule) for schedule in found]
    assert CANONICAL in found and len(set(texts)) == len(texts)


@pytest.mark.parametrize("name", CASES)
def test_launches_are_plain_and_names_agree(name: str) -> None:
    """Exporters rely on launches `kernels.NAME[grid, block](...)` with as many arguments as parameters."""
    text = write(CASES[name])
    tree = ast.parse(text)
    strings = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and "__global__" in str(n.value)]
    assert len(strings) == 1
    launches = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            if ast.unparse(node.func.value).startswith("kernels."):
                launches += 1
                kernel = ast.unparse(node.func.value).removeprefix("kernels.")
                declared = strings[0].split(f"void {kernel}(", 1)[1].split(")", 1)[0]
                assert len(node.args) == declared.count(",") + 1
                assert not any(isinstance(a, ast.Starred) for a in node.args)
    assert launches


@pytest.mark.parametrize("style", [s for s in STYLES if s != "canonical"])
def test_every_style_is_correct_and_differs(evaluator: Evaluator, style: str) -> None:
    name = "standardised over a middle dimension"
    text = write(CASES[name], style=style)
    assert text != write(CASES[name])
    found, why = verdict(evaluator, CASES[name], text)
    assert found == "correct", why


def test_one_operator_is_one_short_kernel() -> None:
    text = write(task("return torch.sigmoid(x)"))
    assert text.count("__global__") == 1 and len(text) < 800
    assert "v = 1.0f / (1.0f + expf(-v));" in text


def test_chains_before_and_after_a_reduction_are_one_kernel() -> None:
    text = write(task("return torch.sqrt(torch.mean((x * 2 + y).abs(), dim=-1) + 1.0)", PAIR, "x, y"))
    assert text.count("__global__") == 1


def test_options_that_are_attributes_are_passed() -> None:
    text = write(task("return F.leaky_relu(x, self.slope)", init="self.slope = 0.3"))
    assert "float slope" in text and "self.slope)" in text
