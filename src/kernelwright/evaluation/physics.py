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
