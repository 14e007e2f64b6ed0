"""The least time that a workload can take on a card: below it, something else was measured than the work."""

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
"""Bytes a second of device memory, and bytes of L2, from NVIDIA's data sheets; the first name that fits counts."""


def floor_ms(card: str, input_bytes: int, output_bytes: int) -> float | None:
    """Milliseconds to read every input byte once and write what L2 cannot hold; None for a card that is not listed."""
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
"""Dense 16-bit tensor-core operations a second, from NVIDIA's data sheets; more than any 32-bit kernel gets."""


def flop_floor_ms(card: str, flops: int) -> float | None:
    """Milliseconds that so many operations take at the card's peak; None for a card that is not listed, or for 0."""
    for name, rate in PEAK_FLOPS.items():
        if name in card and flops:
            return flops / rate * 1e3
    return None
