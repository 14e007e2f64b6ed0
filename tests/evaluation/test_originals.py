"""Replaced functions are found by comparing them, whatever the text of the candidate looks like."""

from __future__ import annotations

import time

import pytest
import torch

from kernelwright.evaluation.originals import Originals


def test_a_function_that_is_another_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    originals = Originals()
    originals.keep()
    assert originals.changed() == []
    monkeypatch.setitem(vars(time), "perf_counter", lambda: 0.0)
    monkeypatch.setattr(torch.cuda.Event, "elapsed_time", lambda *_: 0.0)
    assert originals.changed() == ["time.perf_counter", "torch.cuda.Event.elapsed_time"]


def test_a_method_that_hides_an_inherited_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    originals = Originals()
    originals.keep()
    monkeypatch.setattr(torch.Tensor, "add", lambda *_: None, raising=False)
    assert originals.changed() == ["torch.Tensor.add"]


def test_new_names_are_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    originals = Originals()
    originals.keep()
    monkeypatch.setattr(torch, "my_helper", print, raising=False)
    assert originals.changed() == []
