"""The tunable part of a template: block size and how rows are walked. Later turns get more conservative ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Parameters of a generated kernel."""

    block: int
    """Threads of a block."""
    per_thread: int
    """Elements that a thread computes in an elementwise kernel."""
    thread_rows: bool
    """Whether rows that lie side by side in memory get one thread each (coalesced) instead of one block."""
    tile: int
    """Edge of a matrix product's shared tile."""


_CHOICES = (
    Schedule(256, 4, True, 16),
    Schedule(128, 2, True, 16),
    Schedule(512, 1, True, 32),
    Schedule(256, 1, False, 16),
)
PLAINEST = Schedule(128, 1, False, 8)


def schedule(seed: int, turn: int) -> Schedule:
    """The schedule for a turn: by seed at first, the plainest from the third turn on."""
    return PLAINEST if turn >= 2 else _CHOICES[(seed + turn) % len(_CHOICES)]
