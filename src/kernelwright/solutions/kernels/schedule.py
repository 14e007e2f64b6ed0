"""Defines the tunable part of a library kernel: its blocks, threads and tiles."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kernelwright.errors import UsageError

PRODUCTS = (
    *("naive", "shared8", "shared16", "shared32", "register32", "register64", "register128"),
    *("wide", "double64", "double128", "tensor"),
)
"""The tilings of a product (see `tiles`), from the plainest to the best; `tensor` for 16-bit operands."""
SPLITS = (
    *("split1", "split64", "split128", "split192", "deep2", "deep4", "deep8"),
    *("read1", "read64", "read128", "readdeep4"),
)
"""The tilings of float32 products on tensor cores (see `split.products`)."""
HALVES = ("half256", "halftall", "half128", "half64")
"""The tilings of 16-bit products on tensor cores (see `half_products`)."""
CONVOLUTIONS = ("direct", "weights", "channels", "gemm16", "gemm32", "gemm64", "gemm128", "double64")
"""The ways to compute a convolution (see `convolution_ways`)."""
WINDOW = "window"
"""Computes neighbouring results of a convolution of few channels in a thread (see `window_tiles`)."""
SKINNY = "skinny"
"""Reads the large operand of a product once, where the other has few rows or columns (see `skinny`)."""
VECTOR = "vector"
"""Computes 8 by 8 results of a product in a thread, from operands that no other kernel packs (see `skinny`)."""
POOLS = ("direct", "block")
"""The ways to pool windows: one thread a result, or one block a result where windows are large (adaptive)."""
MEMORY = ("plain", "wide")
"""The ways to move data where memory is the limit: `wide` uses `kernelwright/memory.cuh` and its like."""
ATTENTION = ("steps", "flash")
"""The ways to compute attention: by products and a softmax, or in one pass where its operands have 16 bits."""
AUTO = "auto"
"""The way that suits the operator's own sizes, for products and convolutions (`cost`)."""
NAMED = {
    "product": ("", *PRODUCTS, *SPLITS, *HALVES, SKINNY, VECTOR, AUTO),
    "conv": (*CONVOLUTIONS, WINDOW, *SPLITS, AUTO),
    "pool": POOLS,
    "memory": MEMORY,
    "attention": ATTENTION,
}


@dataclass(frozen=True)
class Schedule:
    """The parameters of generated kernels. Every combination gives correct results."""

    block: int = 256
    """Threads of a block."""
    per_thread: int = 1
    """Elements that a thread computes in an elementwise kernel (grid-stride where more than one)."""
    vector: int = 1
    """Floats that a thread loads at once (1 or 4) where alignment allows it."""
    shuffle: bool = False
    """True reduces blocks by warp shuffles instead of a tree in shared memory."""
    one_pass: bool = False
    """True reads rows once where an online formula exists (softmax, variance)."""
    thread_rows: bool = True
    """True gives each of neighbouring rows one thread (coalesced) instead of one block."""
    tile: int = 16
    """Edge of a matrix product's shared tile."""
    coarsen: int = 1
    """Results that a thread computes along each edge of a shared tile."""
    product: str = ""
    """The tiling of products, one of `PRODUCTS`; empty for the canonical one."""
    conv: str = "direct"
    """The way to compute convolutions, one of `CONVOLUTIONS`."""
    pool: str = "direct"
    """The way to pool windows, one of `POOLS`."""
    memory: str = "plain"
    """The way to move data in elementwise kernels, reductions, norms and scans, one of `MEMORY`."""
    attention: str = "steps"
    """The way to compute attention, one of `ATTENTION`."""
    in_place: bool = False
    """True lets kernels read and write 16-bit tensors in their own type, where they do so element by element."""
    fuse: bool = True
    """True lets operators share kernels; False gives each operator of the text a tensor and kernels of its own."""

    @property
    def name(self) -> str:
        """The fields that differ from the canonical schedule, e.g. `block=128,product=shared32`; or `canonical`."""
        parts = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default]
        return ",".join(parts) or "canonical"


def named(text: str) -> Schedule:
    """Returns the schedule of a name; `tuned` is `TUNED`. Raises `UsageError` for any other text."""
    if text == "tuned":
        return TUNED
    known = {f.name: f for f in fields(Schedule)}
    values: dict[str, Any] = {}
    for part in text.split(",") if text != "canonical" else []:
        name, _, value = part.partition("=")
        if name not in known or not value:
            hint = f"canonical, tuned, or NAME=VALUE with a name of {', '.join(known)}"
            raise UsageError(f"{part!r} is no part of a schedule", hint=hint)
        if name in values:
            raise UsageError(f"the schedule {text!r} says twice what {name} is", hint="say it once")
        values[name] = _value(name, value, known[name].default)
    return Schedule(**values)


def _value(name: str, text: str, default: object) -> Any:
    """Returns a field's value; checks that kernels exist for it."""
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
TUNED = Schedule(
    block=512,
    vector=4,
    shuffle=True,
    one_pass=True,
    product=AUTO,
    conv=AUTO,
    memory="wide",
    attention="flash",
    in_place=True,
)
"""The schedule that was fastest, or near it, in most timings (`benchmarks/results/gpu_tune.json.gz`)."""
PLAINEST = Schedule(block=128, thread_rows=False, tile=8)
_CHOICES = (
    TUNED,
    Schedule(256, 4, thread_rows=True, tile=16),
    Schedule(128, 2, thread_rows=True, tile=16),
    Schedule(512, 1, thread_rows=True, tile=32),
    Schedule(256, 1, thread_rows=False, tile=16),
)


def choices() -> list[Schedule]:
    """Returns the schedules to choose from, from the plainest to the best."""
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
    """Returns a turn's schedule: by seed at first (the tuned one for seed 0), from the third turn on the plainest."""
    return PLAINEST if turn >= 2 else _CHOICES[(seed + turn) % len(_CHOICES)]
