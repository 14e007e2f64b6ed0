"""Computes the physical floor of a workload on a card: a time below it did not measure the work."""

from __future__ import annotations

PEAK_BYTES: dict[str, tuple[float, float]] = {
    "B200": (8.0e12, 126e6),
    "H200": (4.8e12, 60e6),
    "H100 PCIe": (2.04e12, 50e6),
    "H100": (3.35e12, 50e6),
    "A100": (2.04e12, 40e6),
    "L40S": (0.864e12, 96e6),
    "L4": (0.30e12, 48e6),
    "RTX 4090": (1.01e12, 72e6),
    "A10": (0.60e12, 6e6),
    "V100": (0.90e12, 6e6),
}
"""Bytes per second of device memory, and bytes of L2, from NVIDIA's data sheets. The first matching name counts."""


def floor_ms(card: str, input_bytes: int, output_bytes: int) -> float | None:
    """Returns milliseconds to read every input byte once and write what L2 cannot hold; None for an unlisted card."""
    for name, (rate, cache) in PEAK_BYTES.items():
        if name in card:
            return (input_bytes + max(0.0, output_bytes - cache)) / rate * 1e3
    return None


PEAK_FLOPS: dict[str, float] = {
    "B200": 2.25e15,
    "H200": 0.99e15,
    "H100 PCIe": 0.76e15,
    "H100": 0.99e15,
    "A100": 0.312e15,
    "L40S": 0.362e15,
    "L4": 0.121e15,
    "RTX 4090": 0.33e15,
    "A10": 0.125e15,
    "V100": 0.125e15,
}
"""Dense 16-bit tensor-core operations per second, from NVIDIA's data sheets; more than any 32-bit kernel reaches."""


def flop_floor_ms(card: str, flops: int) -> float | None:
    """Returns the milliseconds that `flops` operations take at the card's peak; None for an unlisted card or 0."""
    for name, rate in PEAK_FLOPS.items():
        if name in card and flops:
            return flops / rate * 1e3
    return None
