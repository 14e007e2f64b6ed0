"""The baseline process: a reference compiled for a task serves the next candidate, with that candidate's weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.evaluation.device.devices import HostDevice
from kernelwright.evaluation.processes.channel import Frame
from kernelwright.evaluation.reference import baseline
from kernelwright.evaluation.reference.baseline import Baseline

SOURCE = """
import torch
import torch.nn as nn
width = 8
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)
        self.register_buffer("table", torch.rand(n), persistent=False)
    def forward(self, x):
        return self.fc(x) + self.table
def get_inputs():
    return [torch.rand(4, width)]
def get_init_inputs():
    return [width]
"""


def prepared(made: Baseline, seed: int, source: str = SOURCE, **constants: int) -> Any:
    """Returns the compiled reference of a task, once it is ready."""
    header = {"source": source, "constants": constants, "weight_seed": seed, "randomise": True}
    header["precision"] = "float32"
    made.construct(Frame({"kind": "construct", **header, "handle": "", "nbytes": 0}))
    return made._baseline("compile")


def weights(model: Any) -> list[torch.Tensor]:
    return [t.detach().clone() for t in (*model.parameters(), *model.buffers())]


def test_what_was_compiled_is_kept_and_given_new_weights() -> None:
    made = Baseline(HostDevice())
    first = prepared(made, 1)
    before, eager = weights(first), made._baseline("eager")
    again = prepared(made, 2)
    assert again is first and made._baseline("eager") is not eager
    assert all(torch.equal(x, y) for x, y in zip(weights(again), weights(made.model), strict=True))
    assert not any(torch.equal(x, y) for x, y in zip(weights(again), before, strict=True))
    assert prepared(made, 2, width=16) is not first  # another size is compiled anew
    assert prepared(made, 3) is first


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "KEPT_TASKS", 2)
    made = Baseline(HostDevice())
    found = [prepared(made, 1, width=n) for n in (8, 16, 24)]
    assert prepared(made, 1, width=24) is found[2] and prepared(made, 1, width=8) is not found[0]
    monkeypatch.setattr(baseline, "KEPT_BYTES", 100)
    large = prepared(made, 1, width=32)
    assert prepared(made, 1, width=32) is not large


def test_a_reference_without_weights_is_kept_too() -> None:
    source = SOURCE.replace("self.fc = nn.Linear(n, n)", "pass").replace("self.fc(x) + self.table", "x.relu()")
    source = "\n".join(line for line in source.splitlines() if "register_buffer" not in line)
    made = Baseline(HostDevice())
    assert prepared(made, 1, source) is prepared(made, 2, source)
