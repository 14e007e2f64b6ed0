"""User-defined modules are inlined for the model, and the result computes the same as the task."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from kernelwright.inference.flat import flattened
from kernelwright.inference.repeating import asking
from kernelwright.tasks.normal_form.normal import normal_form

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
TAIL = "\ndef get_inputs():\n    return [torch.randn(3, 8)]\n\ndef get_init_inputs():\n    return [8]\n"
UNIT = """
class Unit(nn.Module):
    def __init__(self, width, hidden=16, skip=True):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.skip = skip
        self.register_buffer("shift", torch.full((width,), 0.5))

    def forward(self, x):
        h = torch.relu(self.up(x))
        h = self.down(h) + self.shift
        if self.skip:
            h = h + x
        return h
"""
MODEL = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = Unit(width)
        self.units = nn.ModuleList([Unit(width, 12, skip=False), Unit(width, hidden=4)])
        self.tail = nn.Sequential(Unit(width), nn.Tanh())

    def forward(self, x):
        x = self.first(x)
        for unit in self.units:
            x = unit(x)
        return self.tail(x) + self.first(x)
"""
STACK = """
class Stack(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = Unit(width)
        self.b = nn.Sequential(nn.Linear(width, width), nn.ReLU())

    def forward(self, x):
        return self.b(self.a(x)) * 2


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stack = Stack(width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(self.stack(x))
"""


def _run(text: str, weights: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    space: dict[str, Any] = {}
    exec(compile(text, "task", "exec"), space)
    torch.manual_seed(0)
    model = space["Model"](*space["get_init_inputs"]())
    if weights is not None:
        model.load_state_dict(weights)
    torch.manual_seed(1)
    return model(*space["get_inputs"]()), model.state_dict()


@pytest.mark.parametrize("body", [UNIT + MODEL, UNIT + STACK])
def test_a_flat_task_computes_the_same(body: str) -> None:
    source = normal_form(HEAD + body + TAIL)
    text, paths = flattened(source)
    assert paths and "class Unit" not in text and "self.first." not in text
    expected, weights = _run(source)
    _, flat = _run(text)
    path = {key: paths.get(key.partition(".")[0], key.partition(".")[0]) for key in flat}
    named = {key: path[key].replace("[", ".").replace("]", "") + key[len(key.partition(".")[0]) :] for key in flat}
    found, _ = _run(text, {key: weights[name] for key, name in named.items()})
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "line",
    [
        "return self.unit(x) + sum(p.sum() for p in self.unit.parameters())",
        "return x * self.unit.width_of(3)",
        "return next(self.children())(x)\n        return self.unit(x) * len(list(self.unit.buffers()))",
    ],
)
def test_what_is_used_otherwise_than_called_stays(line: str) -> None:
    model = f"""
def helper(module, x):
    return module(x)


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.unit = Unit(width)

    def forward(self, x):
        {line}
"""
    source = normal_form(HEAD + UNIT + model + TAIL)
    assert flattened(source) == (source, {})


def test_a_forward_with_two_returns_stays() -> None:
    unit = UNIT.replace("        return h\n", "        if h.sum() > 0:\n            return h\n        return x\n")
    source = normal_form(HEAD + unit + MODEL + TAIL)
    assert flattened(source) == (source, {})


def test_a_task_without_modules_of_its_own_stays() -> None:
    source = normal_form(HEAD + MODEL.replace("Unit(width, 12, skip=False)", "nn.ReLU()").replace("Unit", "nn.Linear"))
    assert flattened(source) == (source, {})
    assert flattened("no Python (") == ("no Python (", {})


def test_an_answer_has_the_paths_of_the_task() -> None:
    source = normal_form(HEAD + UNIT + MODEL + TAIL)
    asked = asking(source)
    flat = {path: name for name, path in asked.names.items()}
    weight = f"self.{flat['units[1].down']}.weight"
    forward = f"    def forward(self, x):\n        return {weight}\n"
    answer = f'kernels = Module(r"""\n""")\n\n\nclass ModelNew(nn.Module):\n{forward}'
    assert "self.units[1].down.weight" in asked.answered(answer)
    assert "class Unit(nn.Module)" in asked.answered(
        answer.replace("    def forward", "    def __init__(self):\n        pass\n\n    def forward")
    )


def _chain(made: str, called: str, depth: int = 18) -> str:
    """Returns modules that each construct and call the next one."""
    last = "class C0(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
    last += "        self.fc = nn.Linear(8, 8)\n\n"
    last += "    def forward(self, x):\n        return self.fc(x)\n"
    texts = [last]
    for k in range(1, depth):
        init = f"    def __init__(self, n):\n        super().__init__()\n        self.inner = C{k - 1}({made})\n\n"
        texts.append(f"class C{k}(nn.Module):\n{init}    def forward(self, x):\n        return {called}\n")
    model = MODEL.split("    def forward")[0].split("        self.first")[0]
    model += f"        self.top = C{depth - 1}(width)\n\n    def forward(self, x):\n        return self.top(x)\n"
    return HEAD + "\n\n".join(texts) + model + TAIL


@pytest.mark.parametrize(("made", "called"), [("n + n", "self.inner(x)"), ("n", "self.inner(self.inner(x))")])
def test_texts_that_would_grow_without_end_stay(made: str, called: str) -> None:
    source = normal_form(_chain(made, called))
    assert flattened(source) == (source, {})


def test_a_module_that_makes_itself_stays() -> None:
    unit = UNIT.replace("self.skip = skip", "self.skip = Unit(width)")
    source = normal_form(HEAD + unit + MODEL + TAIL)
    assert flattened(source) == (source, {})
