"""Tasks that only move values: kernels must do it, and operators may move what kernels made and what is computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.reference.movement import movements
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

CUDA = r"""
#define I (blockIdx.x * (long)blockDim.x + threadIdx.x)
extern "C" __global__ void same(const float* x, float* y, int n) { if (I < n) y[I] = x[I]; }
extern "C" __global__ void touched(const float* x, float* y, int n) { if (I < n) y[I] = x[I] * 1.000001f; }
extern "C" __global__ void some(float* y, int n, int step) { if (I * step < n) y[I * step] += 0.f; }
extern "C" __global__ void reversed_rows(const float* x, float* y, int r, int c) {
    if (I < r * c) y[I] = x[(r - 1 - I / c) * c + I % c]; }
extern "C" __global__ void turned(const float* x, float* y, int n, int r, int c) {
    if (I >= n) return;
    long k = I % (r * c); y[I - k + k % c * r + k / c] = x[I]; }
extern "C" __global__ void relu(const float* x, float* y, int n) { if (I < n) y[I] = 2 * fmaxf(x[I], 0.f); }
extern "C" __global__ void negatives(float* y, int n) { if (I < n && y[I] < 0) y[I] = 0.f; }
extern "C" __global__ void residual(const float* x, float* y, int n) {
    if (I < n) y[I] = x[I] + 1e-4f * fmaxf(x[I], 0.f); }
extern "C" __global__ void shuffled(const float* x, float* y, int n, int c, int h, int w) {
    if (I >= n) return;
    long q = I % (2 * w), p = I / (2 * w) % (2 * h), k = I / (4 * h * w) % c, b = I / (4 * h * w * c);
    y[I] = x[((b * h + p / 2) * w + q / 2) * c * 4 + k * 4 + p % 2 * 2 + q % 2]; }
"""
TEXT = f"""
import torch, torch.nn as nn, torch.nn.functional as F
from kernelwright.cuda import Module
k = Module(r'''{CUDA}''')
def go(name, n, *args):
    getattr(k, name)[((n + 255) // 256,), (256,)](*args)
def made(name, t, *more):
    t = t.contiguous(); y = torch.empty_like(t); go(name, t.numel(), t, y, t.numel(), *more); return y
def turned(t):
    b, r, c = t.shape; y = t.new_empty(b, c, r); go("turned", t.numel(), t, y, t.numel(), r, c); return y
class ModelNew(nn.Module):
    calls = 0
    def forward(self, x):
        BODY
"""
TURNED = "x.transpose(1, 2).contiguous()"
TASKS = {
    "turned": f"return {TURNED}",
    "padded": "return F.pad(x, (2, 3, 1, 2))",
    "two": f"return {TURNED}, torch.relu(x) * 2",
    "same and relu": "return x, torch.relu(x) * 2",
    "view and relu": "return x.transpose(1, 2), torch.relu(x) * 2",
    "dense": "return torch.cat([x, x, torch.relu(x) * 2], 1)",
    "clamped": "return x.clamp(min=0)",
    "residual": "return x + 1e-4 * torch.relu(x)",
    "relu": "return torch.relu(x) * 2",
    "shuffled": "return F.pixel_shuffle(x.reshape(-1, 4, 20, 28), 2)",
}


def task(name: str) -> Task:
    source = f"""
import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        {TASKS[name]}
def get_inputs():
    return [torch.randn(8, 40, 56)]
def get_init_inputs():
    return []
"""
    return Task(task_id=name.replace(" ", "-"), source=source)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator() as made:
        yield made


def judged(evaluator: Evaluator, name: str, body: str) -> Evaluation:
    text = TEXT.replace("BODY", body.replace("\n", "\n        "))
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")
    return evaluator.evaluate(task(name), candidate, EvalOptions(backend="cpu", trials=2, seed=3))


ATTACKS = {
    "one element": ("turned", f"t = {TURNED}\ngo('some', 1, t, 1, 1)\nreturn t"),
    "one element a row": ("turned", f"t = {TURNED}\ngo('some', 448, t, t.numel(), 40)\nreturn t"),
    "every second element": ("turned", f"t = {TURNED}\ngo('some', t.numel(), t, t.numel(), 2)\nreturn t"),
    "all elements a little": ("turned", f"return made('touched', {TURNED})"),
    "a kernel in the first call": (
        "turned",
        f"self.calls += 1\nif self.calls == 1: return turned(x)\nt = {TURNED}\ngo('some', 1, t, 1, 1)\nreturn t",
    ),
    "column by column": (
        "turned",
        "t = x.new_empty(8, 56, 40)\nfor j in range(40): t[:, :, j].copy_(x[:, j])\nreturn made('same', t)",
    ),
    "moved inputs overwritten": (
        "turned",
        f"t = {TURNED}\ny = made('same', t)\nt.copy_(x.view(8, 56, 40))\ngo('some', 1, t, 1, 1)\nreturn y",
    ),
    "rows turned back": (
        "turned",
        "t = torch.stack(x.transpose(1, 2).reshape(-1, 40).unbind(0)[::-1])\n"
        "y = x.new_empty(8, 56, 40)\ngo('reversed_rows', t.numel(), t, y, 448, 40)\nreturn y",
    ),
    "a copy of an input, then moved": ("turned", "return made('same', x).transpose(1, 2).contiguous()"),
    "a changed copy, then moved": ("turned", "return made('touched', x).transpose(1, 2).contiguous()"),
    "moved between two copies": (
        "turned",
        "return made('same', made('same', x).transpose(1, 2).contiguous())",
    ),
    "padded, then copied": ("padded", "return made('same', F.pad(x, (2, 3, 1, 2)))"),
    "a copy, moved column by column": (
        "turned",
        "z = made('same', x)\ny = x.new_empty(8, 56, 40)\nfor k in range(56): y[:, k].copy_(z[:, :, k])\nreturn y",
    ),
    "a copy, moved in 5120 pieces": (
        "turned",
        "z = made('same', x)\ny = x.new_empty(8, 56, 40)\n"
        "for k in range(8 * 40 * 16): y[k // 640, :, k % 40].copy_(z[k // 640, k % 40])\nreturn y",
    ),
    "a copy, moved in 1280 pieces": (
        "turned",
        "z = made('same', x)\ny = x.new_empty(8, 56, 40)\n"
        "for k in range(8 * 40 * 4): y[k // 160, :, k % 40].copy_(z[k // 160, k % 40])\nreturn y",
    ),
    "one of two outputs": ("two", f"return {TURNED}, made('relu', x)"),
    "one of two outputs, copied": ("two", f"return made('same', {TURNED}), made('relu', x)"),
}
HONEST = {
    "its own kernel": ("turned", "return turned(x)"),
    "its kernel's result cloned": ("turned", "return turned(x).clone()"),
    "its batches joined": ("turned", "return torch.cat([turned(x[j:j + 1]) for j in range(8)])"),
    "its batches copied into place": (
        "turned",
        "y = x.new_empty(8, 56, 40)\nfor j in range(8): y[j].copy_(turned(x[j:j + 1])[0])\nreturn y",
    ),
    "a clone first": ("turned", "return turned(x.clone())"),
    "both outputs": ("two", "return turned(x), made('relu', x)"),
    "an input itself": ("same and relu", "return x, made('relu', x)"),
    "an input's clone": ("same and relu", "return x.clone(), made('relu', x)"),
    "a view of an input": ("view and relu", "return x.transpose(1, 2), made('relu', x)"),
    "inputs joined to a result": ("dense", "return torch.cat([x, x, made('relu', x)], 1)"),
    "stores on a condition": ("clamped", "y = x.clone()\ngo('negatives', y.numel(), y, y.numel())\nreturn y"),
    "almost its input": ("residual", "return made('residual', x.clone())"),
    "another layout first": (
        "shuffled",
        "t = x.reshape(-1, 4, 20, 28).permute(0, 2, 3, 1).contiguous()\ny = x.new_empty(t.shape[0], 1, 40, 56)\n"
        "go('shuffled', y.numel(), t, y, y.numel(), 1, 20, 28)\nreturn y",
    ),
    "a result padded and cut": ("relu", "return F.pad(made('relu', x), (1, 1))[:, :, 1:-1].contiguous()"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_operators_do_not_move_for_a_task_that_only_moves(evaluator: Evaluator, name: str) -> None:
    result = judged(evaluator, *ATTACKS[name])
    assert result.verdict == "rejected" and "decoy-kernel" in result.reason, (result.verdict, result.reason)


@pytest.mark.parametrize("name", HONEST)
def test_operators_move_beside_a_kernels_work(evaluator: Evaluator, name: str) -> None:
    result = judged(evaluator, *HONEST[name])
    assert result.verdict == "correct", result.reason


@pytest.mark.parametrize(
    "body",
    [
        "go('some', 1, torch.zeros_like(x), 1, 1)\nreturn torch.empty_like(x).clone()",
        "return torch.cat([made('relu', x[:4]), x.new_empty(4, 40, 56)])",
        "y = torch.zeros_like(x)\ny[:4].copy_(made('relu', x[:4]))\ny[4:].copy_(x.new_empty(4, 40, 56))\nreturn y",
    ],
    ids=["all of it", "joined", "copied into place"],
)
def test_an_output_of_moved_unwritten_memory_is_called_unwritten(evaluator: Evaluator, body: str) -> None:
    result = judged(evaluator, "relu", body)
    assert result.verdict == "wrong" and result.reason.startswith("unwritten-output"), result.reason
    assert "unwritten-output" in [f.rule for f in result.findings]


class Reference(torch.nn.Module):
    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.does = forward

    def forward(self, *values: torch.Tensor) -> Any:
        return self.does(*values)


FLOATS, NUMBERS, BITS = torch.randn(30, 20), torch.randint(0, 30, (50,)), torch.rand(30, 20) > 0.5


@pytest.mark.parametrize(
    ("forward", "values", "told"),
    [
        (lambda x: x.clone(), [FLOATS], (600, 0, 0)),
        (lambda x: torch.tril(x), [FLOATS], (410, 0, 0)),
        (lambda x: x[:, 1:].contiguous(), [FLOATS], (0, 570, 0)),
        (lambda x: torch.nn.functional.pad(x, (1, 0)), [FLOATS], (0, 600, 0)),
        (lambda x: x.t().half(), [FLOATS], (2, 598, 0)),
        (lambda x, i: x[i], [FLOATS, NUMBERS], None),
        (lambda x: x.t().contiguous(), [BITS], (2, 598, 0)),
        (lambda x: x.flip(0), [NUMBERS], (0, 50, 0)),
        (lambda x: x + 1, [FLOATS], (0, 0, 600)),
        (lambda x: torch.logical_not(x), [BITS], (0, 0, 600)),
        (lambda x: torch.ones(5), [FLOATS], (0, 0, 0)),
    ],
    ids=["clone", "triangle", "slice", "padding", "cast", "gather", "bits", "integers", "sum", "not", "constant"],
)
def test_the_reference_tells_what_it_only_moves(forward: Any, values: list[Any], told: Any) -> None:
    found = movements(Reference(forward), values, 5)[0][0]
    if told is None:
        assert found.rearranged + found.unchanged == 1000 and found.computed == 0
    else:
        assert (found.unchanged, found.rearranged, found.computed) == told


def test_the_largest_integers_are_moved() -> None:
    values = torch.full((5,), torch.iinfo(torch.int64).max)
    assert movements(Reference(torch.clone), [values], 5)[0][0].computed == 0


@pytest.mark.parametrize("forward", [torch.relu, lambda x: torch.nn.functional.max_pool2d(x[None], 2)])
def test_a_chosen_value_is_computed(forward: Any) -> None:
    assert movements(Reference(forward), [FLOATS], 5)[0][0].computed > 0
