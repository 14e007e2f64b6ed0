"""Draws docs/cost_model.svg from benchmarks/results/cost_model.json: each way's estimated and measured time.

python docs/make_cost_picture.py
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "cost_model.svg"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 460, 64, 48, 24
COLOURS = {"product": "#1f6f8b", "convolution": "#c8553d"}


def _place(value: float, low: float, high: float, length: float) -> float:
    """Returns the place of a value on a logarithmic axis."""
    return (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low)) * length


def _ticks(low: float, high: float) -> list[float]:
    return [10.0**e for e in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def picture(rows: list[dict[str, Any]]) -> str:
    """Returns the picture as SVG: a dot for each way of each case, a ring for the way that `auto` takes."""
    dots = [
        (row["kind"], way, row["estimated_us"][way], row["us"][way], way == row["taken"], row["case"])
        for row in rows
        if "us" in row
        for way in row["estimated_us"]
    ]
    values = [v for dot in dots for v in dot[2:4]]
    low, high = min(values) / 1.3, max(values) * 1.3
    width, height = WIDTH - LEFT - 16, HEIGHT - BOTTOM - TOP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<line x1="{LEFT}" y1="{TOP + height}" x2="{LEFT + width}" y2="{TOP}" stroke="#bbb"/>',
    ]
    for tick in _ticks(low, high):
        x, y = LEFT + _place(tick, low, high, width), TOP + height - _place(tick, low, high, height)
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + height}" stroke="#eee"/>')
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + width}" y2="{y:.1f}" stroke="#eee"/>')
        out.append(f'<text x="{x:.1f}" y="{TOP + height + 18}" text-anchor="middle">{tick:g}</text>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for kind, way, estimated, measured, taken, case in sorted(dots, key=lambda dot: dot[4]):
        x, y = LEFT + _place(estimated, low, high, width), TOP + height - _place(measured, low, high, height)
        ring = ' stroke="black" stroke-width="1.6"' if taken else ' fill-opacity="0.45"'
        title = f"<title>{case}, {way}: {estimated:.0f} µs estimated, {measured:.0f} µs measured</title>"
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[kind]}"{ring}>{title}</circle>')
    out.append(f'<text x="{LEFT + width / 2}" y="{HEIGHT - 8}" text-anchor="middle">estimated, µs</text>')
    out.append(f'<text x="14" y="{TOP + height / 2}" transform="rotate(-90 14 {TOP + height / 2})">measured, µs</text>')
    for i, (kind, colour) in enumerate(COLOURS.items()):
        out.append(f'<circle cx="{LEFT + 16}" cy="{TOP + 14 + 18 * i}" r="4" fill="{colour}"/>')
        out.append(f'<text x="{LEFT + 26}" y="{TOP + 18 + 18 * i}">{kind}s</text>')
    return "\n".join([*out, "</svg>", ""])


def drawn() -> str:
    """Returns the picture of the results."""
    found = json.loads((ROOT / "benchmarks" / "results" / "cost_model.json").read_text(encoding="utf-8"))
    return picture(found["rows"])


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
