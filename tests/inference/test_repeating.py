"""Copied parts: an answer gets the names and constructor of its task; the rest stays as the model wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from kernelwright.generate import generate
from kernelwright.inference.chat import task_prompt
from kernelwright.inference.repeating import CLASS, FORWARD, Asking, asking, with_constructor
from kernelwright.solutions import write

TASK = """
import math
import torch
import torch.nn as nn
from functools import partial

GAIN = 0.1

def spread(n):
    noise = torch.randn(n)
    return 1.0 + noise * GAIN

class Model(nn.Module):
    def __init__(self, n, act=partial(torch.clamp, min=0.0)):
        super().__init__()
        self.weight = nn.Parameter(spread(n))
        self.register_buffer("bias", torch.tril(torch.randn(n, n)) / math.sqrt(n))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return [8]
"""
HEAD = '''import torch
import torch.nn as nn
from kernelwright.cuda import Module

kernels = Module(r"""
__global__ void k() {}
""")


'''
COPY = """    def __init__(self, n, act):
        super().__init__()
        self.weight = nn.Parameter(spread(n)
        self.register_buffer('.bias', torch.tril(

"""
REST = """    def forward(self, x):
        out = kernels.k(x)
        return out
"""


def test_the_constructor_is_the_tasks_with_what_it_needs() -> None:
    source = task_prompt(TASK)
    answer = with_constructor(HEAD + CLASS + COPY + REST, source)
    compile(answer, "answer", "exec")
    assert answer.startswith(HEAD) and answer.endswith(REST)
    for line in ("import math", "from functools import partial", "GAIN = 0.1", "def spread(n):"):
        assert f"\n{line}\n" in answer.removeprefix(HEAD).join("\n\n"), line
    inside = answer.partition(CLASS)[2]
    assert "self.weight = nn.Parameter(spread(n))\n" in inside and "register_buffer('bias'" in inside
    assert with_constructor(answer, source) == answer


def test_the_constructor_comes_with_what_the_class_has_for_it() -> None:
    own = "    WIDTH: int = 8\n\n    def _noise(self, n):\n        return spread(self._half(n) * 2)\n\n"
    own += "    def _half(self, n):\n        return n // 2\n\n    def unused(self):\n        return 0\n\n"
    task = TASK.replace("spread(n))", "self._noise(n))").replace("    def __init__", own + "    def __init__")
    answer = with_constructor(HEAD + CLASS + COPY + REST, task_prompt(task))
    inside = answer.partition(CLASS)[2]
    assert "WIDTH" in inside and "def _noise" in inside and "def _half" in inside and "unused" not in inside
    assert with_constructor(answer, task_prompt(task)) == answer


def test_what_the_file_has_is_not_brought_again() -> None:
    head = "import math\nfrom functools import partial\nGAIN = 0.1\ndef spread(n):\n    return GAIN\n" + HEAD
    answer = with_constructor(head + CLASS + COPY + REST, task_prompt(TASK))
    assert answer.startswith(head + CLASS)


@pytest.mark.parametrize(
    "answer",
    ["", "no answer", HEAD + CLASS + COPY, HEAD + COPY + REST, HEAD + CLASS.replace("New", "Old") + COPY + REST],
)
def test_an_answer_of_another_form_stays(answer: str) -> None:
    assert with_constructor(answer, task_prompt(TASK)) == answer


@pytest.mark.parametrize("source", ["", "no task", "class Model(", TASK.replace("class Model(", "class Other(")])
def test_an_answer_to_no_task_stays(source: str) -> None:
    answer = HEAD + CLASS + COPY + REST
    assert asking(task_prompt(source)).answered(answer) == answer


def test_the_librarys_answers_are_as_they_were() -> None:
    for task in generate(21, 60):
        source = task_prompt(task.source)
        answer = write(source, plan=True)
        assert with_constructor(answer, source) == answer
        begins, ends = answer.index(CLASS) + len(CLASS), answer.index(FORWARD)
        assert with_constructor(answer[:begins] + "    def __init__(\n" + answer[ends:], source) == answer


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([HEAD, CLASS, COPY, REST, FORWARD, "amber_arch", "(", "\n"]), max_size=8), st.data())
def test_what_is_ready_does_not_change(parts: list[str], data: st.DataObject) -> None:
    asked = Asking("", {"amber_arch": "q_norm"}, task_prompt(TASK))
    text = "".join(parts)
    ready = asked.ready(text[: data.draw(st.integers(0, len(text)))])
    assert asked.answered(text).startswith(asked.answered(text[:ready]))
