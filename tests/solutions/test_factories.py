"""Tests tensors that forward makes from numbers, rows, indices, lists and slices, judged by execution."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shaped_tasks import task

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions import APART, CANONICAL, write
from kernelwright.solutions.read.reading import Unreadable
from kernelwright.tasks import candidate_from_text
from kernelwright.tasks.normal_form.normal import normal_form

SQUARE = "torch.randn(3, 12, 12)"
IDS = "torch.randn(6, 9), torch.randint(0, 9, (6,))"
CASES = {
    "identity of truth values": task(
        "e = torch.eye(x.size(-1), dtype=torch.bool, device=x.device)\nreturn x.masked_fill(e, -1.0)", SQUARE
    ),
    "identity of numbers": task("return x @ x + 0.5 * torch.eye(x.shape[-1])", SQUARE),
    "identity that is not square": task("return x * torch.eye(x.shape[1], x.shape[2]) + x", "torch.randn(2, 5, 7)"),
    "ranges with dimensions around them": task(
        "i = torch.arange(x.size(1), device=x.device)\nreturn torch.where(i[:, None] >= i[None, :], x, x.new_zeros(1))",
        SQUARE,
    ),
    "range unsqueezed": task("return x * torch.arange(1, x.size(1) + 1).unsqueeze(-1)", SQUARE),
    "filled by a method": task(
        "h = x.new_full((x.size(0), 4), 0.25)\nreturn torch.cat([self.net(x), h], 1) * x.new_ones(8)",
        "torch.randn(6, 5)",
        init="self.net = nn.Linear(5, 4)",
    ),
    "one value a row by scatter": task(
        "hot = torch.zeros_like(x).scatter_(1, y.view(-1, 1), 1.0)\nreturn x - 0.3 * hot", IDS, "x, y"
    ),
    "scatter into a tensor": task("return x.scatter(1, y[:, None], -2.0).softmax(1)", IDS, "x, y"),
    "ones at places": task("return F.one_hot(y, 9).float() * x + 1.0", IDS, "x, y"),
    "a piece of a table": task(
        "p = torch.arange(x.size(1), device=x.device)\nreturn x + self.pos(p)[None] + self.pos(torch.arange(2, 12))",
        "torch.randn(3, 10, 4)",
        init="self.pos = nn.Embedding(16, 4)",
    ),
    "a computed number of a row": task(
        "b, _, d = x.shape\ni = (y - 1).view(b, 1, 1).expand(b, 1, d)\nreturn x.gather(1, i).squeeze(1)",
        "torch.randn(5, 8, 6), torch.randint(1, 9, (5,))",
        "x, y",
    ),
    "computed rows of a table": task(
        "return self.table((y * 2 + 1).clamp(max=9)) * 2", IDS, "x, y", "self.table = nn.Embedding(10, 3)"
    ),
    "classes in a computed order": task(
        "n = x.shape[0]\nt = torch.cat([torch.arange(3, n), torch.arange(0, 3)])\n"
        "return F.cross_entropy(x, t, reduction='none')",
        "torch.randn(6, 6)",
    ),
    "rows of a parameter": task(
        "a, b, c = self.w\nreturn torch.tanh(x * a + b) * c",
        "torch.randn(4, 7)",
        init="self.w = nn.Parameter(torch.rand(3, 7))",
    ),
    "rows of a result": task(
        "q, k = self.net(x).view(4, 2, 5).permute(1, 0, 2)\nreturn q * k.exp()",
        "torch.randn(4, 6)",
        init="self.net = nn.Linear(6, 10)",
    ),
    "three factors": task(
        "return torch.einsum('bi,oij,bj->bo', x, self.w, y)",
        "torch.randn(5, 6), torch.randn(5, 7)",
        "x, y",
        "self.w = nn.Parameter(torch.randn(3, 6, 7))",
    ),
    "three factors with a batch": task(
        "return torch.einsum('bnhd,bhde,bnh->bnhe', x, y, z)",
        "torch.randn(2, 5, 3, 4), torch.randn(2, 3, 4, 6), torch.randn(2, 5, 3)",
        "x, y, z",
    ),
    "what one factor has alone": task(
        "return torch.einsum('bi,cj->bc', x, y)", "torch.randn(5, 6), torch.randn(4, 3)", "x, y"
    ),
    "one factor": task("return torch.einsum('bij->jb', x)", "torch.randn(3, 5, 4)"),
    "without an arrow": task("return torch.einsum('ij,jk', x, y)", "torch.randn(5, 6), torch.randn(6, 3)", "x, y"),
    "windows of a signal": task("return x.unfold(1, 6, 3).square().mean(-1)", "torch.randn(4, 30)"),
    "another order, reshaped": task(
        "b, c, h, w = x.shape\nx = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4)\n"
        "return x.contiguous().view(b, 4 * c, h // 2, w // 2)",
        "torch.randn(2, 3, 8, 6)",
    ),
    "how many layers": task(
        "last = len(self.layers) - 1\nfor i, layer in enumerate(self.layers):\n    x = layer(x)\n"
        "    if i < last:\n        x = torch.relu(x)\nreturn x",
        "torch.randn(4, 8)",
        init="self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])",
    ),
    "layers put into evaluation by a loop": task(
        "return self.b(self.a(x))",
        "torch.randn(4, 6, 8)",
        init="self.a, self.b = nn.BatchNorm1d(6), nn.BatchNorm1d(6)\nfor bn in (self.a, self.b):\n    bn.eval()",
    ),
    "a grid": task(
        "return x.reshape(x.size(0), -1).softmax(-1) @ self.grid",
        "torch.randn(5, 4, 6)",
        init="ys, xs = torch.meshgrid(torch.linspace(-1, 1, 4), torch.linspace(0, 1, 6), indexing='ij')\n"
        "self.register_buffer('grid', torch.stack([xs.flatten(), ys.flatten()], dim=1))",
    ),
    "biases by a table of places": task(
        "return (x + self.table[self.index].permute(2, 0, 1)).softmax(-1)",
        "torch.randn(2, 9, 9)",
        init="self.table = nn.Parameter(torch.randn(25, 2))\n"
        "pos = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(3), indexing='ij')).flatten(1)\n"
        "rel = pos[:, :, None] - pos[:, None, :] + 2\n"
        "self.register_buffer('index', rel[0] * 5 + rel[1])",
    ),
    "slices written": task(
        "u = x.clone()\nfor _ in range(2):\n"
        "    lap = u[..., :-2, 1:-1] + u[..., 2:, 1:-1] - 2 * u[..., 1:-1, 1:-1]\n    u[..., 1:-1, 1:-1] += 0.2 * lap\n"
        "return u",
        "torch.randn(2, 9, 8)",
    ),
    "zeros between": task(
        "n, c, h, w = x.shape\ny = x.new_zeros(n, c, 2 * h, 2 * w)\ny[:, :, ::2, 1::2] = x\ny[:, 0] = 1.0\n"
        "y[:, -1, 0] = x[:, 0, 0, :1]\nreturn torch.tanh(y)",
        "torch.randn(2, 3, 4, 5)",
    ),
    "halves put together": task(
        "y = torch.empty_like(x)\ny[..., ::2] = x[..., ::2] + x[..., 1::2]\ny[..., 1::2] = x[..., ::2] - x[..., 1::2]\n"
        "return y.abs()",
        "torch.randn(3, 10)",
    ),
    "lists": task(
        "xs = [x]\nfor layer in self.layers:\n    xs.append(layer(torch.cat(xs, 1)))\n"
        "ys = [torch.tanh(v) * k for v, k in zip(xs, (1.0, 2.0, 3.0))]\n"
        "return torch.cat(ys, 1) * len(ys) + sum(v.mean(1, keepdim=True) for v in xs)",
        "torch.randn(4, 3)",
        init="self.layers = nn.ModuleList([nn.Linear(3, 2), nn.Linear(5, 4)])",
    ),
    "pieces by a comprehension": task(
        "return torch.cat([torch.roll(g, s, dims=2) for g, s in zip(x.chunk(3, dim=1), self.shifts)], dim=1)",
        "torch.randn(2, 6, 7)",
        init="self.shifts = (0, 1, -2)",
    ),
    "windows without a batch": task(
        "return F.avg_pool1d(self.c(x).relu(), 2).tanh() + F.adaptive_max_pool1d(x[:2], 4)",
        "torch.randn(3, 10)",
        init="self.c = nn.Conv1d(3, 2, 3)",
    ),
    "two names at once": task("a = b = x.exp()\na = a + 1\nreturn a * b", "torch.randn(4, 5)"),
    "a masked attention": task(
        "n = Q.size(-2)\ni = torch.arange(n)\nd = i[:, None] - i[None, :]\n"
        "return F.scaled_dot_product_attention(Q, K, V, attn_mask=(d >= 0) & (d < 4))",
        "torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 4)",
        "Q, K, V",
    ),
    "an attention with a bias": task(
        "return F.scaled_dot_product_attention(Q, K, V, self.bias)",
        "torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 4)",
        "Q, K, V",
        "self.bias = nn.Parameter(torch.randn(3, 9, 9))",
    ),
    "a layer of attention": task(
        "y, _ = self.attn(x, x, x, need_weights=False)\nreturn x + y",
        "torch.randn(2, 7, 8)",
        init="self.attn = nn.MultiheadAttention(8, 2, batch_first=True)",
    ),
    "a layer of attention over others": task(
        "return self.attn(x, y, y)[0].tanh()",
        "torch.randn(5, 2, 8), torch.randn(7, 2, 8)",
        "x, y",
        "self.attn = nn.MultiheadAttention(embed_dim=8, num_heads=4, bias=False)",
    ),
    "a layer of attention with a mask": task(
        "m = torch.triu(torch.ones(6, 6), diagonal=1).bool()\nreturn self.attn(x, x, x, attn_mask=m)[0]",
        "torch.randn(2, 6, 8)",
        init="self.attn = nn.MultiheadAttention(8, 2, batch_first=True)",
    ),
    "a transformer's layer": task(
        "return self.layer(x)",
        "torch.randn(2, 5, 8)",
        init="self.layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, dropout=0.0, batch_first=True)",
    ),
    "a transformer's layer with norms first": task(
        "return self.layer(x)",
        "torch.randn(5, 2, 8)",
        init="self.layer = nn.TransformerEncoderLayer(8, 2, 12, activation='gelu', norm_first=True, bias=False).eval()",
    ),
    "responses of neighbours": task(
        "return F.relu(self.lrn(x)) + F.local_response_norm(x, 4, alpha=0.1)",
        "torch.randn(2, 7, 3, 4)",
        init="self.lrn = nn.LocalResponseNorm(5, alpha=0.01, k=2.0)",
    ),
    "borders of convolutions": task(
        "return self.b(self.a(x).relu()).abs()",
        "torch.randn(2, 3, 8, 9)",
        init="self.a = nn.Conv2d(3, 4, 3, padding=(1, 2), padding_mode='circular')\n"
        "self.b = nn.Conv2d(4, 2, 3, padding=1, padding_mode='reflect', groups=2)",
    ),
    "a tensor of one value that is larger": task(
        "h = x.new_zeros(x.size(0), 7)\nc = torch.ones(3, x.size(0), 1)\nreturn (self.w * h + 1.0) * c",
        "torch.randn(4, 6)",
        init="self.w = nn.Parameter(torch.randn(7))",
    ),
    "sums by number": task(
        "y = x.new_zeros(5, x.size(1))\ny.index_add_(0, i, x)\n"
        "n = torch.bincount(i, minlength=5).clamp(min=1)\nreturn y / n.unsqueeze(1).to(x.dtype)",
        "torch.randn(20, 4), torch.randint(0, 5, (20,))",
        "x, i",
    ),
    "sums by number along a row": task(
        "return torch.zeros(3, 4, 6).scatter_add(1, i, x) + y.index_add(1, j, x[0], alpha=2.0).sum()",
        "torch.randn(3, 8, 6), torch.randint(0, 4, (3, 8, 6)), torch.randn(8, 3), torch.randint(0, 3, (6,))",
        "x, i, y, j",
    ),
    "counts by sums": task(
        "n = torch.zeros(self.k, dtype=x.dtype)\n"
        "return n.index_add(0, i, torch.ones_like(i, dtype=x.dtype)) + x.mean()",
        "torch.randn(20), torch.randint(0, 5, (20,))",
        "x, i",
        "self.k = 5",
    ),
    "bags of rows": task(
        "return self.a(i).tanh() + self.b(i)",
        "torch.randint(0, 9, (5, 4))",
        "i",
        "self.a, self.b = nn.EmbeddingBag(9, 6, mode='sum'), nn.EmbeddingBag(9, 6)",
    ),
    "a diagonal": task("c = x @ x.t()\nreturn c / c.diagonal().sqrt()[:, None]", "torch.randn(6, 9)"),
    "distances of all rows": task(
        "return torch.cdist(x, y) + torch.cdist(x, y, p=1.0)", "torch.randn(6, 3), torch.randn(5, 3)", "x, y"
    ),
    "numbers that layers have": task(
        "for conv in self.convs:\n    x = conv(F.pad(x, ((conv.kernel_size[0] - 1) * conv.dilation[0], 0)))\nreturn x",
        "torch.randn(2, 4, 20)",
        init="self.convs = nn.ModuleList([nn.Conv1d(4, 4, 3, dilation=d) for d in (1, 2)])",
    ),
    "whole numbers that become floats": task(
        "return (x[..., None] - self.centers).abs().sum(1)",
        "torch.randn(4, 30)",
        init="self.register_buffer('centers', -1.0 + 0.5 * (torch.arange(5) + 0.5))",
    ),
    "amounts by a product": task(
        "return F.pad(x, (self.r,) * 4, mode='reflect') * 2", "torch.randn(2, 3, 8, 9)", init="self.r = 2"
    ),
    "layers by name": task(
        "return self.act(self.lin(x))",
        "torch.randn(4, 5)",
        init="self.add_module('lin', nn.Linear(5, 6))\nself.add_module('act', nn.Tanh())",
    ),
    "options by a table": task(
        "return x - self.pool(x)",
        "torch.randn(2, 3, 8, 8)",
        init="opts = dict(kernel_size=3, stride=1, padding=1, count_include_pad=False)\n"
        "self.pool = nn.AvgPool2d(**opts)",
    ),
    "inputs by a comprehension": task("return torch.sigmoid(x) * y", "*[torch.randn(4, 6) for _ in range(2)]", "x, y"),
}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(seed=3, trials=2, backend="cpu"), pool=pool) as shared:
        yield shared


CONFIGURED = """
import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = {{"width": 6, "hidden": [8, 4], "pool": dict(kernel_size=2, ceil_mode=True)}}

class Model(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        {init}

    @property
    def scale(self):
        return 2 ** (self.bits - 1) - 1 if self.signed else 255

    def forward(self, x):
        {forward}

get_inputs = lambda: [torch.randn(5, CONFIG["width"])]
get_init_inputs = lambda: {given}
"""
TEXTS = {
    "property": CONFIGURED.format(
        parameters="bits, *, signed=True",
        init="self.bits, self.signed = bits, signed",
        forward="return (x * self.scale).round() / self.scale",
        given="[4]",
    ),
    "table given": CONFIGURED.format(
        parameters="config",
        init="sizes = [config['width'], *config['hidden']]\n        "
        "self.layers = nn.Sequential(*[nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:])])\n        "
        "self.pool = nn.AvgPool1d(**config['pool'])",
        forward="return self.pool(self.layers(x))",
        given="[CONFIG]",
    ),
    "names made in a loop": CONFIGURED.format(
        parameters="width",
        init="table = {}\n        for i in range(2):\n            table[f'w{i}'] = i + 1.0\n        "
        "self.lin, self.k = nn.Linear(width, 3), 3.0",
        forward="return self.lin(x) * self.k",
        given="[6]",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_answer_to_other_texts_is_correct(evaluator: Evaluator, name: str) -> None:
    for text in (write(TEXTS[name]), write(normal_form(TEXTS[name]))):
        result = evaluator.evaluate(Task(task_id="t", source=TEXTS[name]), candidate_from_text(text, "solutions"))
        assert result.verdict == "correct", f"{result.reason}\n{result.log}\n{text}"


@pytest.mark.parametrize("schedule", [CANONICAL, APART], ids=["fused", "apart"])
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_correct(evaluator: Evaluator, name: str, schedule: object) -> None:
    text = write(CASES[name], schedule)  # type: ignore[arg-type]
    result = evaluator.evaluate(Task(task_id="t", source=CASES[name]), candidate_from_text(text, "solutions"))
    assert result.verdict == "correct", f"{result.reason}\n{result.log}\n{text}"


@pytest.mark.parametrize("layer", ["AdaptiveMaxPool1d(3, return_indices=True)", "MaxPool1d(3, return_indices=True)"])
def test_layers_that_return_places_are_refused(layer: str) -> None:
    with pytest.raises(Unreadable):
        write(task("a, i = self.pool(x)\nreturn a", "torch.randn(2, 4, 9)", init=f"self.pool = nn.{layer}"))


def test_a_mask_for_each_head_of_a_layer_is_refused() -> None:
    with pytest.raises(Unreadable, match="each head"):
        init = "self.attn = nn.MultiheadAttention(8, 2, batch_first=True)"
        given = "torch.randn(2, 6, 8), torch.randn(4, 6, 6)"
        write(task("return self.attn(x, x, x, attn_mask=m)[0]", given, "x, m", init))


def test_bags_that_leave_rows_out_are_refused() -> None:
    with pytest.raises(Unreadable, match="leave rows out"):
        init = "self.a = nn.EmbeddingBag(9, 6, padding_idx=0)"
        write(task("return self.a(i)", "torch.randint(0, 9, (5, 4))", "i", init))


@pytest.mark.parametrize(
    "forward",
    [
        "return x.scatter(1, y[:, None].expand(6, 3), 1.0)",
        "a, i = F.max_pool1d(x[None], 3, return_indices=True)\nreturn a",
        "a, i = F.adaptive_max_pool1d(x[None], 3, return_indices=True)\nreturn a",
        "return torch.einsum('ii->i', x @ x.T) + y",
        "return torch.einsum('...i,i->...', x, x[0]) + y",
        "return F.one_hot(y) + x",
        "a = x.exp()\nb = a\nb += 1\nreturn a * b",
        "a = x.exp()\nb = a[1:]\nb.mul_(2)\nreturn a",
        "a = x.exp()\nb = a.t()\na += 1\nreturn a @ b",
        "u = x\nv = (lambda: 0)\nu[0] = 1.0\nreturn u + x",
        "x[0] = 1.0\nreturn x",
        "v = x.view(-1)\nv[0] = 1.0\nreturn x * 2",
        "a = x.exp()\nb = a[1:]\na[1] = 0.0\nreturn b.sum() + a",
        "a = b = x.exp()\na[1] = 0.0\nreturn b",
        "a = x.exp()\nb = a\nb[1] = 0.0\nreturn a",
        "a = x.exp()\na[y] = 0.0\nreturn a",
        "return torch.nan_to_num(x, posinf=1.0)",
    ],
)
def test_what_is_not_known_is_said(forward: str) -> None:
    with pytest.raises(Unreadable):
        write(task(forward, IDS, "x, y"))
