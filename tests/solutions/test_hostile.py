"""Texts that would exhaust time or memory if they were evaluated are refused at once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

TASK = """
import torch
import torch.nn as nn
{before}
class Model(nn.Module):
    def __init__(self, a=3):
        super().__init__()
        {init}
    def forward(self, x):
        {forward}
def get_inputs():
    return [torch.randn(4, 5)]
def get_init_inputs():
    return [{given}]
"""
PASS = {"before": "", "init": "pass", "forward": "return torch.relu(x)", "given": ""}
CASES: dict[str, dict[str, str]] = {
    "a long list": {"before": "L = [0] * 10**9", "given": "L"},
    "a long text": {"before": "S = 'a' * 10**9"},
    "a wide text": {"init": "self.k = '%999999999d' % 1"},
    "a long tuple": {"before": "A = (1,) * 4096\nB = A * 4096\nC = B * 4096", "given": "C"},
    "a long range": {"init": "self.l = [i for i in range(10**9)]"},
    "a large number": {"before": "N = 10 ** 10 ** 10"},
    "a shifted number": {"before": "N = 1 << 10**12"},
    "lists of lists": {"init": "self.l = [[[0 for i in range(4000)] for j in range(4000)] for k in range(4000)]"},
    "lists of lists in forward": {
        "forward": "z = [[[q for q in range(4000)] for r in range(4000)] for s in range(4000)]\n        return x"
    },
    "a list that doubles": {
        "forward": "xs = [x]\n        for i in range(31):\n            xs.extend(xs)\n        return torch.cat(xs)"
    },
    "a list of a constructor that doubles": {
        "init": "L = []\n        for i in range(16):\n            L.extend(L + [1])\n        self.k = L"
    },
    "loops in loops": {
        "forward": "for i in range(32):\n            for j in range(32):\n                for k in range(32):\n"
        "                    x = x + 1\n        return x"
    },
    "a function of itself": {"forward": "return self.forward(x)"},
    "a table of long lists": {"before": "D = {i: [i] * 1000000 for i in range(4000)}", "given": "D"},
}
FOLLOWING = """
import json, resource, sys
from kernelwright.errors import KernelwrightError
from kernelwright.solutions import write
from kernelwright.solutions.read.reading import Unreadable
from kernelwright.tasks.normal_form.normal import normal_form
source = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
normal_form(source)
try:
    write(source)
except Unreadable:
    pass
"""


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_followed_without_end(name: str) -> None:
    source = TASK.format(**{**PASS, **CASES[name]})
    command = [sys.executable, "-c", FOLLOWING]
    done = subprocess.run(command, input=json.dumps(source), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
