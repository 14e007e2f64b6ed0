"""Test-time scaling at equal budget: shapes of samples times turns with the same number of answers per task.

`16x1` is parallel sampling, `1x16` serial refinement, `4x4` between them (Kevin, arXiv 2507.11948, section 3f of its
tables). Each shape is a separate bench run; the numbers here are over tasks, from those runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from kernelwright.bench import metrics
from kernelwright.bench.numbers import BenchResults, BenchSample, TaskResult
from kernelwright.errors import ConfigError


@dataclass(frozen=True)
class GridShape:
    """The number of samples per task, and of turns per sample."""

    samples: int
    turns: int

    @property
    def name(self) -> str:
        """The written form, `4x4`."""
        return f"{self.samples}x{self.turns}"


def parse_grid(text: str) -> list[GridShape]:
    """Parses shapes from `16x1,4x4,1x16`. Raises `ConfigError` for other text and for unequal budgets."""
    shapes = []
    for word in text.split(","):
        samples, cross, turns = word.strip().partition("x")
        if not cross or not samples.isdecimal() or not turns.isdecimal() or not int(samples) * int(turns):
            raise ConfigError(f"--grid {word.strip()!r} is no shape", hint="write SAMPLESxTURNS, e.g. 16x1,4x4,1x16")
        shapes.append(GridShape(int(samples), int(turns)))
    budgets = {shape.samples * shape.turns for shape in shapes}
    if len(budgets) > 1:
        said = ", ".join(f"{s.name} is {s.samples * s.turns}" for s in shapes)
        raise ConfigError(f"the shapes of --grid have different budgets: {said}", hint="let samples x turns be equal")
    if len({shape.name for shape in shapes}) < len(shapes):
        raise ConfigError(f"--grid {text!r} names a shape twice", hint="name each of them once")
    return shapes


def runs_in(folder: Path) -> list[str]:
    """Returns the names of the shapes whose runs a folder holds; empty for a folder that holds no grid."""
    found = [path.parent.name for path in folder.glob("*/run.sqlite") if re.fullmatch(r"\d+x\d+", path.parent.name)]
    return sorted(found)


def baseline_of(bench: BenchResults) -> str:
    """Returns the baseline to compare with: `eager`, or `compile` if eager was not timed."""
    named = bench.settings.get("options", {}).get("baselines") or ("eager",)
    return "eager" if "eager" in named else "compile"


def measure(bench: BenchResults) -> dict[str, Any]:
    """Returns the results of a shape as plain data; an estimate is {value, low, high, tasks} or null.

    `best_correct`: share of tasks with a correct turn in any sample. `avg_correct`: share of samples with a correct
    turn. `last_correct`: share of samples whose last turn is correct. `best_speedup`: mean over tasks of the fastest
    correct answer's speedup, 0 for tasks without one; null if nothing was timed. `best_fast_1`: share of tasks whose
    fastest answer beats the `baseline`. `missing`: samples that do not count (no answer, harness error, unfinished); if
    it is not 0, the shape had less than the full budget.
    """
    tasks, baseline = bench.answered(), baseline_of(bench)
    seed = int(bench.settings.get("seed", 0))
    timed = bench.timed(baseline)
    best = [_best_speedup(task, baseline) for task in tasks]

    def plain(found: metrics.Estimate | None) -> dict[str, float | int] | None:
        return None if found is None else found.plain()

    return {
        "answers": sum(len(s.turns) for task in tasks for s in task.counted),
        "tasks": len(tasks),
        "missing": sum(len(t.unanswered) + t.harness_errors + len(t.pending) for t in bench.tasks),
        "baseline": baseline,
        "best_correct": plain(metrics.share([float(any(s.correct for s in task.counted)) for task in tasks])),
        "avg_correct": plain(metrics.share([fmean(s.correct for s in task.counted) for task in tasks])),
        "last_correct": plain(metrics.share([fmean(_last_correct(s) for s in task.counted) for task in tasks])),
        "best_speedup": plain(metrics.mean(best, seed)) if timed else None,
        "best_fast_1": plain(metrics.share([float(value > 1.0) for value in best])) if timed else None,
    }


def _best_speedup(task: TaskResult, baseline: str) -> float:
    return max((v for s in task.counted if s.correct and (v := s.speedup(baseline)) is not None), default=0.0)


def _last_correct(sample: BenchSample) -> bool:
    evaluation = sample.turns[-1].evaluation
    return evaluation is not None and evaluation.verdict == "correct"
