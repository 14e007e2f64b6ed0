"""The tunable part of a template: how a kernel of a family is cut into blocks and threads."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kernelwright.errors import UsageError

PRODUCTS = (
    *("naive", "shared8", "shared16", "shared32", "register32", "register64", "register128"),
    *("wide", "double64", "double128", "tensor"),
)
"""How a product can be tiled (see `tiles`), from the plainest to the best; `tensor` for 16-bit operands."""
CONVOLUTIONS = ("direct", "weights", "channels", "gemm16", "gemm32", "gemm64", "gemm128", "double64")
"""How convolutions can be computed (see `convolution_ways`)."""
POOLS = ("direct", "block")
"""How windows can be pooled: one thread a result, or one block a result where windows are large (adaptive)."""
AUTO = "auto"
"""Way of products and convolutions: the one that the operator's own sizes speak for (`best_product`, `best_conv`)."""
NAMED = {"product": ("", *PRODUCTS, AUTO), "conv": (*CONVOLUTIONS, AUTO), "pool": POOLS}


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
    """How products are tiled, one of `PRODUCTS`; empty for the canonical way."""
    conv: str = "direct"
    """How convolutions are computed: `direct`, or another one of `CONVOLUTIONS`."""
    pool: str = "direct"
    """How windows are pooled: one of `POOLS`."""
    fuse: bool = True
    """Whether operators share kernels; else each operator of the text has a tensor and kernels of its own."""

    @property
    def name(self) -> str:
        """What differs from the canonical schedule, e.g. `block=128,product=shared32`; `canonical` for itself."""
        parts = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default]
        return ",".join(parts) or "canonical"


def named(text: str) -> Schedule:
    """The schedule of a name. Raises `UsageError` for what is no schedule."""
    known = {f.name: f for f in fields(Schedule)}
    values: dict[str, Any] = {}
    for part in text.split(",") if text != "canonical" else []:
        name, _, value = part.partition("=")
        if name not in known or not value:
            hint = f"canonical, or NAME=VALUE with a name of {', '.join(known)}"
            raise UsageError(f"{part!r} is no part of a schedule", hint=hint)
        if name in values:
            raise UsageError(f"the schedule {text!r} says twice what {name} is", hint="say it once")
        values[name] = _value(name, value, known[name].default)
    return Schedule(**values)


def _value(name: str, text: str, default: object) -> Any:
    """A field's value; checks that it is one that kernels exist for."""
    if isinstance(default, bool):
        if text not in ("True", "False"):
            raise UsageError(f"{name}={text}: that is neither True nor False", hint="use True or False")
        return text == "True"
    if isinstance(default, int):
        if not text.isdigit() or not 1 <= int(text) <= 1024 or (name == "block" and int(text) % 32):
            hint = "use a number from 1 to 1024, for a block a multiple of 32"
            raise UsageError(f"{name}={text}: there is no such number of it", hint=hint)
        return int(text)
    if text not in NAMED[name]:
        raise UsageError(f"{name}={text}: there is no such way", hint=f"use {', '.join(filter(None, NAMED[name]))}")
    return text


CANONICAL = Schedule()
APART = Schedule(fuse=False)
TUNED = Schedule(block=512, vector=4, shuffle=True, one_pass=True, product=AUTO, conv=AUTO)
"""What was mostly fastest or near it where schedules were timed (`benchmarks/results/gpu_tune.json.gz`)."""
PLAINEST = Schedule(block=128, thread_rows=False, tile=8)
_CHOICES = (
    TUNED,
    Schedule(256, 4, thread_rows=True, tile=16),
    Schedule(128, 2, thread_rows=True, tile=16),
    Schedule(512, 1, thread_rows=True, tile=32),
    Schedule(256, 1, thread_rows=False, tile=16),
)


def best_product(rows: int, columns: int) -> str:
    """How to tile a product with a result of so many rows and columns; -1 for what the text does not tell.

    Large tiles pay where there are enough of them for a card with a hundred multiprocessors.
    """
    tiles = (max(rows, 1) // 64) * (max(columns, 1) // 64)
    return "shared16" if rows > 0 and columns > 0 and tiles < 64 else "double64"


def best_conv(channels: int, groups: int) -> str:
    """How to compute a convolution with so many output channels in so many groups; -1 for what is not known."""
    each = channels // groups if channels > 0 and groups > 0 else 64
    if groups > 1 and each < 16:
        return "weights"
    return "gemm128" if each >= 96 else "gemm64"


def choices() -> list[Schedule]:
    """From the plainest to the best."""
    return [
        PLAINEST,
        CANONICAL,
        *(Schedule(block=block) for block in (128, 512, 1024)),
        Schedule(per_thread=4),
        Schedule(shuffle=True),
        Schedule(shuffle=True, thread_rows=False),
        Schedule(block=128, shuffle=True, one_pass=True),
        Schedule(block=512, shuffle=True, one_pass=True, thread_rows=False, vector=4),
        Schedule(shuffle=True, one_pass=True, vector=4),
    ]


def schedule(seed: int, turn: int) -> Schedule:
    """The schedule for a turn: by seed at first, the tuned one for seed 0; the plainest from the third turn on."""
    return PLAINEST if turn >= 2 else _CHOICES[(seed + turn) % len(_CHOICES)]
