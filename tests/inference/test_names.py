"""Names unknown to the starter are replaced in its prompt and restored in its answer."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from kernelwright.generate import generate
from kernelwright.inference.chat import task_prompt
from kernelwright.inference.names import familiar, restored
from kernelwright.solutions import write

SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width_of_rows, eps):
        super().__init__()
        self.q_norm_gain = nn.Parameter(torch.rand(width_of_rows))
        self.register_buffer("running_pivot", torch.rand(width_of_rows))
        self.linear = nn.Linear(width_of_rows, width_of_rows)
        self.eps = eps

    def forward(self, hidden_rows):
        return self.linear(hidden_rows * self.q_norm_gain + self.running_pivot) + self.eps

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return [8, 0.5]
"""
ODD = {"width_of_rows", "q_norm_gain", "running_pivot", "hidden_rows"}


def result(source: str) -> torch.Tensor:
    space: dict[str, Any] = {}
    exec(source, space)
    torch.manual_seed(3)
    model = space["Model"](*space["get_init_inputs"]())
    found = model(*space["get_inputs"]())
    assert isinstance(found, torch.Tensor)
    return found


def test_what_is_unknown_gets_other_names_and_computes_the_same() -> None:
    prompt = task_prompt(SOURCE)
    text, names = familiar(prompt)
    assert set(names.values()) == ODD
    assert not ODD & set(re.findall(r"\w+", text)) and {"linear", "eps"} <= set(re.findall(r"\w+", text))
    assert torch.equal(result(text), result(prompt))
    assert restored(text, names) == prompt


def test_generated_names_are_known_and_others_come_back() -> None:
    renamed = known = 0
    for task in generate(11, 90):
        prompt = task_prompt(task.source)
        if familiar(prompt) != (prompt, {}):  # names of any letters are not known
            continue
        known += 1
        other = re.sub(r"\bself\.(?!register)", "self.mine_of_", prompt)
        text, names = familiar(other)
        assert restored(text, names) == other
        ast.parse(text)
        if names:
            renamed += 1
            answer, told = write(other, plan=True), restored(write(text, plan=True), names)
            inner = re.compile(r"\w*(?:" + "|".join({*names, *names.values()}) + r")_\w+")  # parameters of kernels
            begins = answer.index("class ModelNew"), told.index("class ModelNew")
            assert inner.sub("", told[begins[1] :]) == inner.sub("", answer[begins[0] :])
    assert renamed > 30 and known > 40


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("hidden_rows", "x"),  # known
        ("hidden_rows", "conv_2"),  # known with a number
        ("hidden_rows", "seq"),  # short
        ("hidden_rows", "total"),  # answers have one of their own
        ("q_norm_gain", "rand"),  # torch has one
        (
            "class Model(",
            "class Base(nn.Module):\n    def f(self):\n        self.q_norm_gain\n\nclass Model(",
        ),  # a base's
        ("class Model(nn.Module):", "class Model(nn.Module):\n    q_norm_gain = None"),  # the class has one, too
        ("self.q_norm_gain +", "getattr(self, 'q_norm_gain') +"),  # perhaps put together from a text
        ("return [8, 0.5]", "return {'width_of_rows': 8, 'eps': 0.5}"),  # found by name
    ],
)
def test_what_keeps_its_name(before: str, after: str) -> None:
    prompt = task_prompt(SOURCE.replace(before, after))
    text, names = familiar(prompt)
    kept = next((name for name in ("q_norm_gain", "width_of_rows") if name in after), after)
    assert kept not in names.values() and text.count(kept) == prompt.count(kept)
    assert restored(text, names) == prompt


def test_a_word_of_cuda_is_none_within_the_kernels() -> None:
    prompt = task_prompt(SOURCE.replace("q_norm_gain", "template"))
    text, names = familiar(prompt)
    (alias,) = [a for a, name in names.items() if name == "template"]
    assert "template" not in text and restored(text, names) == prompt
    answer = f'# t1 = mul(x, self.{alias})\nk = Module(r"""\nvoid k(float {alias}) {{}}\n""")\nk(self.{alias})'
    assert restored(answer, names) == answer.replace(f"float {alias}", "float template_").replace(alias, "template")


@pytest.mark.parametrize("text", ["", "no task", "class Model:", "class Other:\n    pass", "x = " + "(" * 5000])
def test_what_is_no_task_stays(text: str) -> None:
    assert familiar(text) == (text, {})


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80))
def test_only_whole_words_are_replaced(text: str) -> None:
    assert restored(text, {}) == text
    names = {"amber_arch": "q_norm"}
    assert restored(f"{text} amber_arch", names).endswith(" q_norm")
    assert restored("amber_arch_b xamber_arch self.amber_arch", names) == "amber_arch_b xamber_arch self.q_norm"
