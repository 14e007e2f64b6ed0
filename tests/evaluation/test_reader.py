"""Reading a candidate's text ends in bounded time and memory, whatever a rule does on it, and the verdict stands.

The rules that hang here are put into the reader from outside: which texts make a real one hang is not the point.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from relu_task import RELU

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes import pool as pools
from kernelwright.evaluation.processes import reader_client
from kernelwright.records import Evaluation, Task
from kernelwright.syntax import MAX_TEXT
from kernelwright.tasks import candidate_from_text

RIGHT = '''
import torch, torch.nn as nn
from kernelwright.cuda import Module

k = Module(r"""extern "C" __global__ void f(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = fmaxf(x[i], 0.f); }""")

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x); n = x.numel()
        k.f[((n + 255) // 256, 1, 1), (256, 1, 1), 0](x.contiguous(), y, n)
        return y
'''
BEYOND = RIGHT.replace("if (i < n)", "")
HOOK = """
import re
from kernelwright.evaluation.text import as_module, source_lines, static_rules

def stopped(owner, name, text_of):
    plain = getattr(owner, name)
    def call(*given):
        text = text_of(*given)
        if name + " hangs" in text:
            re.match("(a+)+$", "a" * 60 + "b")  # nothing in Python can interrupt this
        if name + " grows" in text:
            bytearray(64 << 30)
        return plain(*given)
    setattr(owner, name, call)

stopped(static_rules, "static_findings", lambda candidate, *_: candidate.text)
stopped(as_module, "module_source", lambda candidate, *_: candidate.text)
stopped(source_lines, "of_finding", lambda text, *_: text)
"""


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    command = pools.zygote_command
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pools, "zygote_command", lambda call: command(f"exec({HOOK!r}); {call}"))
        patch.setattr(reader_client, "READ_SECONDS", 0.5)
        patch.delenv("KERNELWRIGHT_WARM", raising=False)
        with Evaluator(EvalOptions(trials=1, seed=5)) as made:
            yield made


def judged(evaluator: Evaluator, text: str) -> Evaluation:
    return evaluator.evaluate(Task(task_id="relu", source=RELU), candidate_from_text(text, "text"))


def test_a_rule_that_hangs_costs_its_advice_and_no_verdict(evaluator: Evaluator) -> None:
    found = judged(evaluator, f"{RIGHT}\n# static_findings hangs\n")
    assert found.verdict == "correct", found.reason
    assert [(f.rule, f.severity) for f in found.findings] == [("text-not-read", "warning")]
    assert "processor time" in found.findings[0].evidence


def test_a_rule_that_takes_too_much_memory_does_too(evaluator: Evaluator) -> None:
    found = judged(evaluator, f"{RIGHT}\n# static_findings grows\n")
    assert found.verdict == "correct" and [f.rule for f in found.findings] == ["text-not-read"], found


def test_a_text_whose_module_cannot_be_read_is_unsupported(evaluator: Evaluator) -> None:
    found = judged(evaluator, f"{RIGHT}\n# module_source hangs\n")
    assert found.verdict == "unsupported" and found.reason.startswith("text: "), found.reason


def test_a_search_for_a_line_that_hangs_costs_the_line_and_no_verdict(evaluator: Evaluator) -> None:
    found = judged(evaluator, BEYOND)
    assert found.verdict == "runtime_error" and found.findings[0].line, found
    found = judged(evaluator, f"{BEYOND}\n# of_finding hangs\n")
    assert found.verdict == "runtime_error" and found.findings[0].line is None, found


def test_a_text_that_is_too_long_is_not_read(evaluator: Evaluator) -> None:
    found = judged(evaluator, RIGHT + "#" * MAX_TEXT)
    assert found.verdict == "unsupported" and f"at most {MAX_TEXT} are read" in found.reason
    assert [f.rule for f in found.findings] == ["text-not-read"]


def test_the_next_text_is_read_again_and_by_another_process(evaluator: Evaluator) -> None:
    judged(evaluator, f"{RIGHT}\n# static_findings hangs\n")
    found = judged(evaluator, f"{RIGHT}\nif os.getenv('X'): pass\n".replace("import torch,", "import os, torch,"))
    assert found.verdict == "correct" and [f.rule for f in found.findings] == ["evaluator-branch"], found
