"""Classes and floors by arithmetic that can be checked by hand, and ceilings that are stored and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.profile import ceilings, roofline
from kernelwright.profile.ceilings import Ceilings
from kernelwright.profile.facts import KernelProfile

CARD = Ceilings(
    card="Test",
    source="measured",
    dram_bytes=4e12,
    l2_bytes=10e12,
    flops={"float32": 50e12, "bfloat16": 800e12},
    launch_us=3.0,
    driver="1",
)


@pytest.mark.parametrize(
    "nbytes, flops, dtype, expected",
    [
        (4e9, 0, "float32", 1.0),
        (4e9, 200e9, "float32", 4.0),
        (4e9, 200e9, "bfloat16", 1.0),
        (0, 50e9, "no-such-kind", 1.0),
        (0, 0, "float32", 0.0),
    ],
)
def test_floors(nbytes: float, flops: float, dtype: str, expected: float) -> None:
    assert roofline.floor_ms(nbytes, flops, dtype, CARD) == pytest.approx(expected)


def test_single_precision_may_use_tensor_cores() -> None:
    faster = CARD.model_copy(update={"flops": {**CARD.flops, "tf32": 400e12}})
    assert roofline.floor_ms(0, 400e9, "float32", faster) == pytest.approx(1.0)
    slow = roofline.classify(0, 45e9, 1.0, "float32", faster)
    assert slow.bound == "compute" and slow.compute_share == pytest.approx(0.9)  # of the ordinary units


@pytest.mark.parametrize(
    "nbytes, flops, time_ms, l2, bound",
    [
        (3.6e9, 1e9, 1.0, 0.0, "memory"),
        (1e8, 45e9, 1.0, 0.0, "compute"),
        (1e8, 1e9, 1.0, 0.9, "l2"),
        (1e8, 1e9, 1.0, 0.1, "latency"),
        (1e5, 1e5, 0.005, 0.0, "launch"),
        (4e9, 0, 0.0, 0.0, "unknown"),
    ],
)
def test_classes(nbytes: float, flops: float, time_ms: float, l2: float, bound: str) -> None:
    assert roofline.classify(nbytes, flops, time_ms, "float32", CARD, l2).bound == bound


def test_class_by_counters_counts_a_launch() -> None:
    metrics = {"dram_read": 4e9, "dram_write": 3.2e9, "ffma": 1e6, "fadd": 5e5}
    kernel = KernelProfile(name="copy", launches=2, time_us=2000.0, metrics=metrics)
    found = roofline.of_counters(kernel, CARD)
    assert found is not None and found.source == "ncu"
    assert (found.bound, found.bytes, found.flops, found.time_ms) == ("memory", 3_600_000_000, 1_250_000, 1.0)
    assert found.bandwidth_share == pytest.approx(0.9)


def test_busy_tensor_cores_are_compute() -> None:
    metrics = {"dram_read": 1e6, "dram_write": 1e6, "tensor_share": 85.0}
    found = roofline.of_counters(KernelProfile(name="mm", launches=1, time_us=1000.0, metrics=metrics), CARD)
    assert found is not None and (found.bound, found.dtype) == ("compute", "tensor")


def test_no_class_without_counters() -> None:
    assert roofline.of_counters(KernelProfile(name="k", time_us=1.0), CARD) is None


def test_ceilings_are_kept_by_card_and_driver(tmp_path: Path) -> None:
    assert ceilings.for_card("Test", "1", tmp_path) is None
    ceilings.keep(CARD, tmp_path)
    assert ceilings.for_card("Test", "1", tmp_path) == CARD
    assert ceilings.cached("Test", "2", tmp_path) is None
    (path,) = (tmp_path / "ceilings").iterdir()
    path.write_text("{half a fil")
    assert ceilings.cached("Test", "1", tmp_path) is None


@pytest.mark.parametrize(
    "name, dram",
    [
        ("NVIDIA H200", 4.8e12),
        ("NVIDIA H100 80GB HBM3", 3.35e12),
        ("NVIDIA H100 PCIe", 2.04e12),
        ("NVIDIA A100-SXM4-80GB", 2.04e12),
        ("NVIDIA L40S", 0.864e12),
        ("NVIDIA L4", 0.30e12),
        ("NVIDIA GeForce RTX 4090", 1.01e12),
        ("Tesla T4", 0.32e12),
    ],
)
def test_data_sheets(name: str, dram: float, tmp_path: Path) -> None:
    found = ceilings.for_card(name, "580", tmp_path)
    assert found is not None and (found.card, found.source, found.dram_bytes) == (name, "datasheet", dram)


def test_unknown_cards_have_no_data_sheet() -> None:
    assert ceilings.datasheet("NVIDIA GeForce GTX 1080") is None
