"""The tunable part of a template: how a kernel of a family is cut into blocks and threads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Parameters of generated kernels. Every combination gives right answers."""

    block: int = 256
    """Threads of a block."""
    per_thread: int = 1
    """Elements that a thread computes in an elementwise kernel (grid-stride where more than one)."""
    vector: int = 1
    """Floats that a thread loads at once (1 or 4) where addresses allow it."""
    shuffle: bool = False
    """Whether blocks are reduced by warp shuffles instead of a tree in shared memory."""
    one_pass: bool = False
    """Whether rows are read once where an online formula exists (softmax, variance)."""
    thread_rows: bool = True
    """Whether rows that lie side by side in memory get one thread each (coalesced) instead of one block."""
    tile: int = 16
    """Edge of a matrix product's shared tile."""
    coarsen: int = 1
    """Results that a thread computes along each edge of such a tile."""
    product: str = ""
    """How products are tiled, by `tiles.TILINGS`; empty for the canonical way."""
    conv: str = "direct"
    """How convolutions are computed: `direct`, one thread a result, or another one of `convolution.WAYS`."""
    pool: str = "direct"
    """How windows are pooled: `direct`, one thread a result, or another one of `pooling.WAYS`."""


CANONICAL = Schedule()
PLAINEST = Schedule(block=128, thread_rows=False, tile=8)
_CHOICES = (
    Schedule(256, 4, thread_rows=True, tile=16),
    Schedule(128, 2, thread_rows=True, tile=16),
    Schedule(512, 1, thread_rows=True, tile=32),
    Schedule(256, 1, thread_rows=False, tile=16),
)


def choices() -> list[Schedule]:
    """From the plainest to the best."""
    return [PLAINEST, CANONICAL, Schedule(shuffle=True, per_thread=4), Schedule(512, 4, 4, True, True, True, 32, 4)]


def schedule(seed: int, turn: int) -> Schedule:
    """The schedule for a turn: by seed at first, the plainest from the third turn on."""
    return PLAINEST if turn >= 2 else _CHOICES[(seed + turn) % len(_CHOICES)]
