"""Implements PIE's performance conditioning and retrieval (arXiv 2302.07867, as in our digest of the paper)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.curation.samples import CuratedSample, by_task
from kernelwright.errors import ConfigError


@dataclass(frozen=True)
class Tagged:
    """A correct, timed answer with its speed in tenths of the fastest known for its task."""

    sample: CuratedSample
    decile: int
    """1 to 10; a task's fastest answer has 10."""

    @property
    def tag(self) -> str:
        return f"{self.decile}/10"


def speed_deciles(samples: Sequence[CuratedSample]) -> list[Tagged]:
    """Tags correct answers by their share of the best speed known for the task: ceil(10 * speedup / best speedup).

    Leaves out answers without a time. Raises `ConfigError` where no correct answer has one.
    """
    timed = [s for s in samples if s.correct and s.speedup is not None and s.speedup > 0]
    if not timed and any(s.correct for s in samples):
        raise ConfigError(
            "speed-deciles goes by speedups, and nothing in these runs was timed",
            hint="judge them on a GPU, or use --method verified",
        )
    found: list[Tagged] = []
    for group in by_task(timed).values():
        best = max(s.speedup or 0.0 for s in group)
        found += [Tagged(s, max(1, math.ceil(10 * ((s.speedup or 0.0) / best) - 1e-9))) for s in group]
    return found


def retrieve(sample: CuratedSample, others: Sequence[CuratedSample], count: int) -> list[CuratedSample]:
    """Returns demonstrations: correct answers of the `count` other tasks with the most similar sets of operations.

    Similarity is the Jaccard index of the operations. Each task gives its fastest answer, else its first. Tasks without
    a common operation are left out.
    """
    pool = [s for s in others if s.correct and s.task.problem_hash != sample.task.problem_hash]
    best = [max(group, key=lambda s: s.speedup or 0.0) for group in by_task(pool).values()]
    scored = [(_jaccard(sample.operators, s.operators), -i, s) for i, s in enumerate(best)]
    near = sorted((p for p in scored if p[0] > 0), key=lambda p: p[:2], reverse=True)
    return [s for _, _, s in near[:count]]


def _jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a | b else 0.0
