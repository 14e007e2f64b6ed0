"""The curves of a run of reinforcement learning as one self-contained page: `curves.html` beside the log."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelwright.training.pretrain.progress import writing

WIDTH, HEIGHT = 420, 150
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#718096")

Series = dict[str, list[tuple[int, float]]]

CHARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("reward", ("reward",)),
    ("share of answers", ("correct", "correct_rollouts", "fast_1", "fast_1.5", "fast_2")),
    ("broken or dishonest", ("hacked", "unreadable", "unpaid", "cut", "repetition", "judge_failed_share")),
    ("speedup of right ones", ("speedup",)),
    ("rejected by filters", ("mismatch_rejected", "profiling_rejected", "alike")),
    ("entropy a token", ("entropy",)),
    ("tokens an answer", ("length",)),
    ("seconds a step", ("step_s", "ask_s", "only_judge_s", "update_s")),
)


def series(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Series:
    """Returns points `(step, value)` by name; drops names without a finite value in any row."""
    found = {name: [(row["step"], float(row[name])) for row in rows if _is_finite(row.get(name))] for name in names}
    return {name: points for name, points in found.items() if points}


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def write_curves(name: str, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Writes the page. Raises `StoreError` if it cannot be written."""
    parts = {part for row in rows for part in row["parts"]}
    flat = [{**{p: row["parts"].get(p, 0.0) for p in parts}, "step": row["step"]} for row in rows]
    by_part = series(flat, sorted(parts))
    charts = [("parts of the reward", by_part), *((title, series(rows, names)) for title, names in CHARTS)]
    body = "".join(chart(title, lines) for title, lines in charts if lines)
    raised = [f"step {row['step']}: {', '.join(row['alarms'])}" for row in rows if row["alarms"]]
    said = f"<p>alarms: {html.escape('; '.join(raised[-20:]))}</p>" if raised else "<p>no alarms</p>"
    page = (
        f'<!doctype html><meta charset="utf-8"><title>{html.escape(name)}</title>'
        "<style>body{font:14px sans-serif;margin:2em}figure{display:inline-block;margin:0 1em 1em 0}"
        "svg{background:#f7fafc}</style>"
        f"<h1>{html.escape(name)}: {len(rows)} steps</h1>{said}{body}\n"
    )
    with writing(path):
        path.write_text(page, encoding="utf-8")


def chart(title: str, lines: Series) -> str:
    """Draws one figure: a polyline per name, and the range of the values."""
    points = [point for line in lines.values() for point in line]
    low, high = min(v for _, v in points), max(v for _, v in points)
    first, last = min(s for s, _ in points), max(s for s, _ in points)

    def place(step: int, value: float) -> str:
        x = WIDTH * (step - first) / max(last - first, 1)
        y = HEIGHT * (1.0 - (value - low) / (high - low)) if high > low else HEIGHT / 2
        return f"{x:.1f},{y:.1f}"

    drawn, names = "", ""
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        drawn += f'<polyline fill="none" stroke="{colour}" points="{" ".join(place(*p) for p in line)}"/>'
        names += f' <span style="color:{colour}">{html.escape(name)} {line[-1][1]:.4g}</span>'
    return (
        f"<figure><b>{html.escape(title)}</b> {low:.4g} to {high:.4g}<br>"
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 -2 {WIDTH} {HEIGHT + 4}">{drawn}</svg>'
        f"<figcaption>{names}</figcaption></figure>"
    )
