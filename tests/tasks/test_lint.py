"""Each rule of the lint on a task that breaks it, and a sound task that breaks none."""

from __future__ import annotations

import pytest

from kernelwright.tasks import lint

HEAD = "import torch\nimport torch.nn as nn\n"


def _task(body: str, inputs: str = "torch.randn(16, 32)", init: str = "", constructor: str = "pass") -> str:
    return f"""{HEAD}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {constructor}

    def forward(self, x, y=None):
        {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{init}]
"""


TWO = "torch.randn(16, 32), torch.randn(16, 32)"
WEIGHTS = "self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 32)"
BROKEN = {
    "unread-input": _task("return x * 2", TWO),
    "constant-input": _task("return x + y", "torch.randn(16, 32), torch.ones(16, 32)"),
    "random-output": _task("return torch.nn.functional.dropout(x, 0.5, True)"),
    "mutates-inputs": _task("return x.add_(1)"),
    "stateful": _task("self.n += 1; return x * self.n", constructor="self.n = 0"),
    "not-finite": _task("return torch.log(x)"),
    "uniform-output": _task("return x.new_full((16, 32), 3.0)"),
    "constant-output": _task("return torch.arange(32.0)"),
    "unused-weight": _task("return self.a(x)", constructor=WEIGHTS),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_is_seen_on_a_task_that_breaks_it(rule: str) -> None:
    notes, _ = lint.examine(BROKEN[rule], {}, 7)
    assert rule in [r for r, _ in notes], notes


@pytest.mark.parametrize(
    "source",
    [
        _task("return torch.softmax(x, -1) * y", TWO),
        _task("return self.b(torch.relu(self.a(x)))", constructor=WEIGHTS),
        _task("return x[:, :4].sum(0), x[:, 4:].argmax(1)"),
    ],
)
def test_a_sound_task_breaks_no_rule(source: str) -> None:
    assert lint.examine(source, {}, 7) == ([], [])


def test_evidence_names_what_is_not_used() -> None:
    notes, unread = lint.examine(BROKEN["unread-input"], {}, 7)
    assert unread == [1] and ("unread-input", "no output depends on input 1") in notes
    notes, _ = lint.examine(BROKEN["unused-weight"], {}, 7)
    assert dict(notes)["unused-weight"] == "no output depends on b.weight, b.bias"


def test_memory_is_counted_without_taking_it() -> None:
    notes, gigabytes = lint.sizes(_task("return x * 2", "torch.randn(100_000, 50_000)"), [{}])
    assert gigabytes == pytest.approx(40.0) and [r for r, _ in notes] == ["large"]
    _, half = lint.sizes(_task("return x * 2", "torch.randn(100_000, 50_000, dtype=torch.float16)"), [{}])
    assert half == pytest.approx(20.0)


def test_a_size_that_no_clock_resolves() -> None:
    notes, _ = lint.sizes(_task("return x * 2"), [{}])
    assert [r for r, _ in notes] == ["too-small-to-time"]


def test_sizes_that_cannot_be_followed_without_data_are_not_known() -> None:
    assert lint.sizes(_task("return x[x > 0] if float(x.sum()) > 0 else x"), [{}]) == ([], None)
