"""Turns on a GPU by moments, and whose turn it is by the name that torch has for the GPU."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from kernelwright import gpulease
from kernelwright.gpulease import Lease, by_moments, lease_of


def test_who_computes_by_moments_lets_others_be_alone_between(tmp_path: Path) -> None:
    lease, other = Lease(tmp_path / "gpu-0"), Lease(tmp_path / "gpu-0")
    had: list[str] = []

    def alone() -> None:
        with other.alone():
            had.append("alone")

    with by_moments(lease) as again:
        thread = threading.Thread(target=alone)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive() and not had
        while thread.is_alive():
            again()
            thread.join(0.01)
        assert had == ["alone"]
    with other.alone():  # nothing is held any more
        pass


def test_without_a_gpu_there_is_nothing_to_wait_for() -> None:
    assert lease_of(torch.device("cpu")) is None
    with by_moments(None) as again:
        again()


def test_the_lease_is_that_of_the_card_the_judge_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch counts what it may see; the judge goes by what CUDA_VISIBLE_DEVICES names."""
    monkeypatch.setattr(gpulease, "LOCKS", tmp_path / "locks")
    monkeypatch.setattr(gpulease, "visible_gpus", lambda: ("3", "GPU-7"))
    for device, name in (("cuda", "gpu-3"), ("cuda:0", "gpu-3"), ("cuda:1", "gpu-GPU-7")):
        lease = lease_of(torch.device(device))
        assert lease is not None and lease._path.name == name
        with lease.beside():
            assert lease._path.exists()
