"""Replaced functions are found by comparison, independent of the candidate's text."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch

from kernelwright.evaluation.candidate.patched_functions import Originals


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


def test_an_operator_of_torch_that_is_registered_anew_is_named_and_new_ones_are_not() -> None:
    originals = Originals()
    originals.keep()
    own, torchs = torch.library.Library("prims", "FRAGMENT"), torch.library.Library("aten", "IMPL")
    try:
        own.define("kernelwright_new(Tensor x) -> Tensor")  # as torch's compiler does when it is imported
        own.impl("kernelwright_new", lambda x: x, "Autograd")
        own.impl("kernelwright_new", lambda x: x, "CompositeExplicitAutograd")
        assert originals.changed() == []
        torchs.impl("_cast_Half", lambda x, *_: x, "CPU")
        assert originals.changed() == ["aten/_cast_Half/CPU"]
    finally:
        own._destroy()
        torchs._destroy()


def test_what_torch_brings_when_parts_of_it_are_imported_is_its_own() -> None:
    script = (
        "from kernelwright.evaluation.candidate.patched_functions import Originals; o = Originals(); o.keep(); "
        "import torch._inductor.inductor_prims, torch.distributed._functional_collectives; print(o.changed())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n", done.stdout
